"""Who is next, how long the others wait, and what each visitor may have."""

import threading
from collections.abc import Generator, Iterator
from dataclasses import replace

import pytest

from drafters.errors import BusyError, PromptError, UserError
from multidraft.service import jobs as service_jobs
from multidraft.service.jobs import WAITING, Job, Jobs
from multidraft.service.limits import Allowance, Limits
from multidraft.service.queue import CALLER, Caller, Pace, Queue

SECONDS = 30


class Steps(Job[str]):
    """Notes its visitor at every step, after ``gate``."""

    kind, plural = "walk", "walks"
    allowed = "run_seconds"
    limit = 6

    def __init__(self, visitor: str, count: int, notes: list[str], gate: threading.Event | None = None):
        token = CALLER.set(Caller(visitor, session=visitor + "-page"))
        super().__init__()
        CALLER.reset(token)
        self.count, self.notes, self.gate, self.left = count, notes, gate, 0

    def steps(self) -> Generator[object, None, str]:
        for number in range(self.count):
            assert self.gate is None or self.gate.wait(SECONDS)
            self.notes.append(self.caller.visitor)
            yield WAITING if number < 0 else None
        return CALLER.get().visitor

    def leave(self) -> None:
        self.cancel()


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    monkeypatch.setattr(service_jobs, "TURN_SECONDS", 0.0)  # every step is a turn
    jobs = Jobs(Limits(queue=8, share=0.5))
    yield jobs
    jobs.close()


def test_visitors_take_turns_however_many_jobs_each_has(jobs: Jobs) -> None:
    notes, gate = list[str](), threading.Event()
    own = [jobs.submit(Steps(visitor, 2, notes, gate)) for visitor in "aaabc"]
    assert [job.ahead for job in own] == [0, 3, 4, 1, 2], "b and c are before the second of a"
    gate.set()
    assert all(job.wait(SECONDS) for job in own)
    assert notes == list("abcabcaaaa") and own[0].result == "a", "a job's steps know whose it is"


def test_a_visitor_has_a_share_and_the_server_needs_no_place(jobs: Jobs) -> None:
    gate = threading.Event()
    for visitor in ("a", "a", "a", "b", "c"):
        jobs.submit(Steps(visitor, 1, [], gate))
    with pytest.raises(BusyError, match=r"3 walks of yours are already running, and a visitor may have 3 here"):
        jobs.submit(Steps("a", 1, [], gate))
    jobs.submit(Steps("d", 1, [], gate))
    with pytest.raises(BusyError, match=r"6 walks are already running on this server; try again when one has ended"):
        jobs.submit(Steps("e", 1, [], gate))
    ready = jobs.do(lambda: 1)
    gate.set()
    assert ready.result(SECONDS) == 1


def test_who_leaves_takes_their_jobs_along(jobs: Jobs) -> None:
    gate = threading.Event()
    gone, stays = jobs.submit(Steps("a", 1, [], gate)), jobs.submit(Steps("b", 1, [], gate))
    jobs.left("a-page")
    gate.set()
    assert gone.wait(SECONDS) and gone.cancelled.is_set() and stays.wait(SECONDS) and not stays.cancelled.is_set()


def test_a_job_ends_when_it_has_had_the_device_for_as_long_as_it_may(jobs: Jobs) -> None:
    jobs.limits = replace(jobs.limits, run_seconds=1e-9)
    notes = list[str]()
    job = jobs.submit(Steps("a", 1000, notes))
    assert job.wait(SECONDS) and len(notes) == 1 and job.device_seconds > 0
    assert job.error and "for 1e-09 s, the most a walk may take" in job.error and job.result is None


def test_the_wait_is_told_from_how_long_texts_had_the_device_of_late() -> None:
    now = [100.0]
    pace = Pace(lambda: now[0])
    first = pace.begin()
    now[0] += 4.0
    assert pace.wait(0) is None, "none has ended"
    pace.end(first, counts=True)
    assert pace.wait(0) is None, "none is under way, and how long the first one will wait for others is not known"
    now[0] += 50.0
    second = pace.begin()
    now[0] += 1.0
    assert pace.wait(0) == 3.0 and pace.wait(2) == 3.0 + 4.0 + 4.0
    now[0] += 3.0
    assert pace.wait(0) == 1.0, "a quarter of the mean at least"
    now[0] += 2.0
    assert pace.wait(0) == 2.0, "2 s longer than usual: as much again"
    third = pace.begin()
    assert pace.wait(0) == 4.0 and pace.wait(1) == 8.0, "with two, each has every other turn"
    now[0] += 4.0
    pace.end(second, counts=True)  # after 8 s, in which the third has had 2
    mean = (0.9 * 4 + 8) / 1.9
    assert pace.wait(0) == pytest.approx(mean - 2)
    pace.end(third, counts=False)
    pace.begin()
    assert pace.wait(0) == pytest.approx(mean), "what waited for its page says nothing"


def queued(queue: Queue[Steps], *visitors: str) -> list[Steps]:
    jobs = [Steps(visitor, 1, []) for visitor in visitors]
    for job in jobs:
        queue.add(job)
    return jobs


def test_a_place_in_the_line_stays_while_others_have_their_turns() -> None:
    queue = Queue[Steps]()
    first, *others = queued(queue, *"abcd")
    first.started = True
    for _ in range(9):
        assert [queue.place(job) for job in others] == [(1, 0), (2, 1), (3, 2)] and queue.place(first) is None
        queue.turned(queue.first)
    (second,) = queued(queue, "a")
    (newest,) = queued(queue, "e")
    assert [queue.place(job) for job in (second, newest)] == [(5, 4), (4, 3)], "who has a place already comes last"


def test_what_needs_no_place_waits_for_none() -> None:
    queue = Queue[Steps]()
    first, last = queued(queue, *"ab")
    (brief,) = queued(queue, "e")
    brief.decodes = False  # type: ignore[misc]
    first.started = True
    assert queue.place(brief) is None and queue.place(last) == (1, 0)


def test_limits_say_what_is_too_much_and_what_there_may_be() -> None:
    limits = Limits(share=0.25, prompt_tokens=10, new_tokens=20, batch_runs=30)
    limits.check_text(10, 20)
    limits.check_batch(10, 3)
    with pytest.raises(PromptError, match="has 11 tokens, but prompts may have 10"):
        limits.check_text(11, 1)
    with pytest.raises(UserError, match="at most 20 on this server, got 21"):
        limits.check_text(1, 21)
    with pytest.raises(UserError, match="11 prompts under 3 policies are 33 runs, but a batch may have 30"):
        limits.check_batch(11, 3)
    assert (limits.own(8), limits.own(2), limits.own(1)) == (2, 1, 1)
    Limits().check_text(10**9, 10**9)


def test_uploads_are_shared_and_free_again_after_a_day() -> None:
    now = [0.0]
    allowance = Allowance(Limits(share=0.5, stored_bytes=100), lambda: now[0])
    allowance.take("a", 50)
    with pytest.raises(BusyError, match="a visitor may upload"):
        allowance.take("a", 1)
    allowance.take("b", 30)
    now[0] = 3600.0
    allowance.take("b", 20)
    with pytest.raises(BusyError, match="are kept here for a day"):
        allowance.take("c", 1)
    now[0] = 24 * 3600.0
    allowance.take("c", 50)
    with pytest.raises(BusyError):
        allowance.take("d", 31)
    now[0] = 50 * 3600.0
    allowance.take("d", 50)
    assert len(allowance._hours) == 1 and allowance._used.total() == 50
