import random

import pytest

from drafters.base import Lesson
from drafters.learning.memory import Memory, held_out, key, size


def text(number, length=10):
    return Lesson([number], [number % 7] * (length - 1))


def test_half_is_the_latest_and_half_a_fair_sample_of_all_before():
    found = [0] * 200
    for seed in range(60):
        memory = Memory(400, random.Random(seed))
        for number in range(200):
            assert memory.add(text(number))
            assert sum(map(size, memory)) <= 400
        assert [lesson.prompt[0] for lesson in memory.latest.values()] == list(range(180, 200))
        for lesson in memory.sample.values():
            found[lesson.prompt[0]] += 1
    early, late = sum(found[:90]), sum(found[90:180])
    assert sum(found) == 60 * 20 and found[180:] == [0] * 20
    assert early == pytest.approx(late, rel=0.25)


def test_a_text_is_kept_once_and_one_without_room_not_at_all():
    memory = Memory(40, random.Random(0))
    assert memory.add(text(1)) and not memory.add(text(1)) and not memory.add(text(2, 21))
    assert memory.add(text(2, 20)) and [size(lesson) for lesson in memory] == [10, 20], "the first is in the sample now"


def test_texts_are_drawn_from_both_halves_alike():
    memory = Memory(400, random.Random(0))
    for number in range(100):
        memory.add(text(number))
    old = [lesson.prompt[0] < 80 for lesson in memory.draw(20_000)]
    assert sum(old) / len(old) == pytest.approx(0.5, abs=0.05)


def test_one_prompt_in_eight_is_held_out_whatever_the_answer():
    held = [held_out(Lesson([number, 5], [1])) for number in range(4000)]
    assert sum(held) / 4000 == pytest.approx(1 / 8, abs=0.02)
    assert held[:50] == [held_out(Lesson([number, 5], [2, 3])) for number in range(50)]
    assert key([1], [2, 3]) != key([1, 2], [3])
