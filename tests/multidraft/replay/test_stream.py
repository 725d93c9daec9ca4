"""Recorded texts as traffic: each begins with what those before it taught."""

import pytest

from drafters.traffic import Prior, stretches_of, suitability
from multidraft.replay.recorded import recorded_texts, texts_with_costs
from multidraft.replay.stream import as_traffic, in_parts
from tests.runs import result_of

COLD, TRAFFIC = "ucb:reward=be", "ucb:reward=be,start=traffic"


@pytest.fixture(scope="module")
def texts(bench_db):
    return texts_with_costs(recorded_texts(bench_db), bench_db)[:6]


def played(texts, specs):
    return result_of(as_traffic(texts, specs))


def test_it_yields_after_each_text(texts):
    assert len(list(as_traffic(texts, [COLD]))) == len(texts)


def test_cold_is_the_replay_and_so_is_the_first_of_the_traffic(texts):
    found = played(texts, [COLD, TRAFFIC])
    for text, cold in zip(texts, found[COLD], strict=True):
        assert cold == text.replay(COLD)
    assert found[TRAFFIC][0] == found[COLD][0]
    assert [p.arms for p in found[TRAFFIC][1:]] != [p.arms for p in found[COLD][1:]]


def test_a_prompt_that_comes_again_begins_with_its_best_drafter(texts):
    text = texts[0]
    again = played([text, text], [TRAFFIC])[TRAFFIC][1]
    told = stretches_of(suitability(text.table.accepted, text.run.params.draft_length)).max(axis=0)
    assert again.arms[0] == told.argmax()


def test_what_was_recorded_as_known_does_not_count(texts):
    knowing = [text.beginning_with(Prior((0.1,) * 7 + (0.9,), (0.1,) * 8, 99)) for text in texts[:2]]
    assert knowing[0].replay(TRAFFIC).arms[0] == 7
    assert played(knowing, [TRAFFIC]) == played(texts[:2], [TRAFFIC])


def test_parts_of_a_stream():
    assert in_parts(10) == [range(10)]
    assert in_parts(60) == [range(20), range(20, 60)]
    assert in_parts(240)[-1] == range(120, 240) and in_parts(300)[-1] == range(240, 300)
