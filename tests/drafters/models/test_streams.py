"""Streams: calls of one model are answered together, drafters before the target, and each is charged with its own."""

import pytest
import torch

from drafters.models import streams
from drafters.models.streams import Stream, Streams, answer, let_others_on, own_seconds, texts_at_once


class Doubler:
    """A model that doubles what it is fed; ``log`` has what was fed together."""

    def __init__(self, log, name="", seconds=lambda tokens: 0.0, clock=None):
        self.log, self.name, self.seconds, self.clock = log, name, seconds, clock

    def run(self, feeds):
        self.log.append((self.name, tuple(feeds)))
        if self.clock:
            self.clock.now += self.seconds(len(feeds))
        if None in feeds:
            raise MemoryError("no room")
        return [2 * feed for feed in feeds]


class Clock:
    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now


def run(group):
    ended = []
    while len(group):
        ended += group.step()
    return ended


def test_a_call_outside_of_streams_is_answered_at_once():
    assert answer(Doubler([]), 4, 1) == 8 and texts_at_once() == 1


def test_calls_of_one_model_are_answered_together_and_the_last_model_waits_for_all():
    log = []
    target, drafter = Doubler(log, "target"), Doubler(log, "drafter")

    def work(number, drafts):
        for _ in range(drafts):
            answer(drafter, number, 1)
        return answer(target, number, 1), texts_at_once()

    group = Streams(target)
    found = [Stream(lambda n=n: work(n, drafts=n)) for n in range(3)]
    for stream in found:
        group.add(stream)
    assert set(run(group)) == set(found)
    assert [stream.result for stream in found] == [(0, 3), (2, 3), (4, 3)]
    assert log == [("drafter", (1, 2)), ("drafter", (2,)), ("target", (0, 1, 2))]


def test_long_calls_are_answered_by_themselves():
    log = []
    target = Doubler(log)
    group = Streams(target)
    for tokens in (1, streams.ALONE + 1, 1):
        group.add(Stream(lambda n=tokens: answer(target, n, n, prompt=True)))
    run(group)
    assert log == [("", (streams.ALONE + 1,)), ("", (1, 1))]


def test_a_forward_that_fails_fails_for_those_who_asked():
    log = []
    target, drafter = Doubler(log), Doubler(log)
    group = Streams(target)
    well, bad = Stream(lambda: answer(target, 3, 1)), Stream(lambda: answer(drafter, None, 1))
    group.add(well)
    group.add(bad)
    run(group)
    assert well.result == 6 and well.error is None
    assert bad.result is None and isinstance(bad.error, MemoryError)


def test_where_there_is_no_room_for_all_fewer_are_answered_at_once():
    class Small(Doubler):
        def run(self, feeds):
            found = super().run(feeds)
            if len(feeds) > 2 or 7 in feeds:
                raise MemoryError("no room")
            return found

    log = []
    target = Small(log)
    group = Streams(target)
    found = [Stream(lambda n=n: answer(target, n, 1)) for n in (1, 2, 7, 3)]
    for stream in found:
        group.add(stream)
    run(group)
    assert [fed for _, fed in log] == [(1, 2, 7, 3), (1, 2), (7, 3), (7,), (3,)]
    assert [stream.result for stream in found] == [2, 4, None, 6]
    assert [type(stream.error) for stream in found] == [type(None), type(None), MemoryError, type(None)]


def test_where_no_forwards_can_be_shared_streams_take_turns():
    order = []

    def work(number):
        for _ in range(3):
            order.append((number, texts_at_once()))
            let_others_on()

    group = Streams(None)
    for number in range(2):
        group.add(Stream(lambda n=number: work(n)))
    run(group)
    assert order == [(0, 1), (1, 1)] * 3
    let_others_on()  # outside of streams there are no others


def test_a_stream_that_fails_leaves_the_others():
    target = Doubler([])
    group = Streams(target)
    well, bad = Stream(lambda: answer(target, answer(target, 1, 1), 1)), Stream(lambda: 1 // 0)
    group.add(bad)
    group.add(well)
    run(group)
    assert well.result == 4 and isinstance(bad.error, ZeroDivisionError)


def test_nobody_waits_in_inference_mode():
    group = Streams(None)

    def work():
        with torch.inference_mode():
            answer(Doubler([]), 1, 1)

    stream = Stream(work)
    group.add(stream)
    run(group)
    assert isinstance(stream.error, RuntimeError) and not torch.is_inference_mode_enabled()


def test_a_stream_is_charged_with_what_it_adds(monkeypatch):
    """A forward of the target takes 10 s and 1 s per token, one of the drafter 4 s and 1 s."""
    clock = Clock()
    monkeypatch.setattr(streams, "time", clock)
    target = Doubler([], seconds=lambda tokens: 10.0 + tokens, clock=clock)
    drafter = Doubler([], seconds=lambda tokens: 4.0 + tokens, clock=clock)
    spent = {}

    def work(number, rounds):
        for _ in range(rounds):
            begun = own_seconds(clock.now)
            answer(drafter, 1, 1)
            drafted = own_seconds(clock.now)
            clock.now += 0.5  # work of its own, at which the others wait
            computed = own_seconds(clock.now)
            answer(target, 1, 1)
            spent.setdefault(number, []).append(
                (drafted - begun, computed - drafted, own_seconds(clock.now) - computed)
            )

    group = Streams(target)
    for number, rounds in enumerate((30, 60, 90)):
        group.add(Stream(lambda n=number, r=rounds: work(n, r)))
    run(group)
    assert spent[1][25] == pytest.approx((16 / 3 - 3, 0.5, 13 / 3), rel=0.2), "of all three, before a slope is known"
    assert spent[1][55] == pytest.approx((3.0, 0.5, 1.0), rel=0.05), (
        "half of what is fixed, but nothing of the target's"
    )
    assert spent[2][85] == pytest.approx((5.0, 0.5, 11.0)), "alone: all of it"
    assert own_seconds(clock.now) == clock.now, "outside of streams"
