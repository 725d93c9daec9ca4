"""Drafters of one's own: what they are handed is theirs, and what goes wrong in them is told with the line."""

import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from drafters import supervised
from drafters.base import Evidence, Lesson
from drafters.draft import Draft
from drafters.errors import DrafterError
from drafters.proposing import PointMassDrafter
from drafters.sampling import SamplingParams
from drafters.supervised import Supervised

PARAMS = SamplingParams(draft_length=3)


class Own(PointMassDrafter):
    """Does what it is given, when it drafts."""

    def __init__(self, act):
        self.act, self.seen = act, []

    def propose(self, context, length, params, generator, *, with_q=False):
        self.seen.append(threading.current_thread())
        return self.act(context, length, generator)

    def observe(self, draft, logits):
        logits.zero_()

    def prepare(self, context):
        context.clear()

    def learn(self, lesson):
        lesson.prompt.clear()


def recurse(*arguments):
    return recurse(*arguments)


def spoil(context, length, generator):
    context.clear()
    generator.manual_seed(0)
    return Draft.chain([7] * length)


def supervising(act, seconds=30.0):
    return Supervised(Own(act), "own", Path(__file__), seconds)


def proposed(drafter, context=(1, 2, 3), generator=None):
    return drafter.propose(context, 3, PARAMS, generator or torch.Generator())


def test_what_it_is_handed_are_copies():
    drafter, context, generator = supervising(spoil), [1, 2, 3], torch.Generator().manual_seed(5)
    assert proposed(drafter, context, generator).tokens == (7, 7, 7)
    drafter.prepare(context)
    lesson, logits = Lesson(context, [4]), torch.ones(2, 2)
    drafter.learn(lesson)
    drafter.observe(Draft.empty(), logits)
    drafter.gamma(Evidence(context, 1, None, PARAMS))
    assert drafter.acceptances(context, 1, 2).accepted.tolist() == [0, 0]
    assert context == [1, 2, 3] and lesson.prompt == [1, 2, 3] and logits.min() == 1
    other = torch.Generator().manual_seed(5)
    proposed(supervising(lambda *_: Draft.empty()), context, other)
    assert torch.rand((), generator=generator) == torch.rand((), generator=other), "its randomness is its own"


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda *_: 1 / 0, r"^ZeroDivisionError: division by zero in line \d+ of test_supervised\.py$"),
        (lambda *_: exit(3), r"^SystemExit: 3 in line \d+ of test_supervised\.py$"),
        (recurse, "^RecursionError: "),
        (lambda *_: bytearray(1 << 60), "^MemoryError"),
    ],
)
def test_what_goes_wrong_is_told(act, said):
    with pytest.raises(DrafterError, match=said):
        proposed(supervising(act))


def test_a_call_that_does_not_return_is_abandoned_once():
    left, running = threading.Event(), threading.Event()

    def work(*arguments):
        running.set()
        left.wait(30)
        return Draft.empty()

    drafter = supervising(work, seconds=0.1)
    with pytest.raises(DrafterError, match=r"propose took longer than 0\.1 seconds"):
        proposed(drafter)
    (thread,) = drafter._inner.seen
    assert thread.daemon, "it does not keep the process from ending"
    with pytest.raises(DrafterError, match="an earlier call has not returned"):
        drafter.forget()
    left.set()
    thread.join(30)
    drafter.forget()


def test_a_loop_in_python_is_ended():
    def loop(*arguments):
        while True:
            pass

    drafter = supervising(loop, seconds=0.1)
    with pytest.raises(DrafterError, match="took longer"):
        proposed(drafter)
    drafter._inner.seen[0].join(30)
    assert not drafter._inner.seen[0].is_alive()


def test_a_call_that_takes_most_of_the_memory_is_ended(monkeypatch):
    sizes = iter([0, 60, 400])
    monkeypatch.setattr(supervised, "free_memory", lambda device: 200)
    monkeypatch.setattr(supervised, "resident", lambda: next(sizes))
    left = threading.Event()
    with pytest.raises(DrafterError, match="took more than 0 KiB of memory, half of what was free"):
        proposed(supervising(lambda *_: left.wait(30)))
    left.set()


def test_resident_memory_is_known():
    assert supervised.resident() > np.empty(1000).nbytes


def test_a_network_of_its_own_may_read_the_targets_scores_and_be_trained(monkeypatch):
    net, seen = torch.nn.Linear(2, 2), []
    monkeypatch.setattr(Own, "observe", lambda self, draft, logits: seen.append(net(logits).numpy()))
    monkeypatch.setattr(Own, "learn", lambda self, lesson: net(torch.ones(1, 2)).sum().backward())
    drafter = supervising(lambda *_: Draft.chain(net(torch.ones(1, 2)).argmax(dim=-1).numpy().tolist()))
    with torch.inference_mode():
        logits = torch.ones(3, 2)
    drafter.observe(Draft.empty(), logits)
    assert seen[0].shape == (3, 2) and len(proposed(drafter)) == 1
    drafter.learn(Lesson([1], [2]))
    assert net.weight.grad is not None


def test_it_learns_between_queries_until_that_fails(monkeypatch):
    drafter, seconds = supervising(spoil), iter([0.25])
    monkeypatch.setattr(Own, "study", lambda self: next(seconds))
    monkeypatch.setattr(Own, "report", lambda self: "much")
    assert drafter.study() == 0.25 and drafter.report() == "much"
    assert drafter.study() == 0.0 and drafter.study() == 0.0, "it is not asked again"
    monkeypatch.setattr(Own, "report", lambda self: 1 / 0)
    assert drafter.report() == ""


def test_it_is_the_inner_drafter_otherwise():
    drafter = supervising(spoil)
    assert drafter.act is spoil and (drafter.name, drafter.version) == ("own", "")
    assert drafter.twin(None) is drafter, "the inner one is for all texts"
    with pytest.raises(AttributeError):
        drafter.unknown  # noqa: B018
