"""Jobs: their turns on the device, their ends, and how they are found."""

import threading
from collections.abc import Generator, Iterator
from concurrent.futures import CancelledError

import pytest

from drafters.errors import StoppingError, UserError
from multidraft.service import jobs as service_jobs
from multidraft.service.jobs import Job, Jobs

SECONDS = 30


class Steps(Job[str]):
    """Notes its name at every step; ``gate`` holds it before the first."""

    kind, plural = "walk", "walks"
    limit, retained = 3, 2

    def __init__(self, name: str, count: int, notes: list[str], gate: threading.Event | None = None):
        super().__init__()
        self.name, self.count, self.notes, self.gate = name, count, notes, gate
        self.begun, self.finished = threading.Event(), 0

    def steps(self) -> Generator[None, None, str]:
        self.begun.set()
        assert self.gate is None or self.gate.wait(SECONDS)
        for _ in range(self.count):
            self.notes.append(self.name)
            yield
        return self.name

    def finish(self) -> None:
        self.finished += 1


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    monkeypatch.setattr(service_jobs, "TURN_SECONDS", 0.0)  # every step is a turn
    jobs = Jobs()
    yield jobs
    jobs.close()


def test_what_there_is_to_do_meanwhile_is_done_only_while_there_is_no_job(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, made, gate, tried = list[str](), threading.Event(), threading.Event(), threading.Event()

    def meanwhile() -> float:
        assert made.wait(SECONDS), "its thread may come here before the line that names it has ended"
        notes.append("meanwhile")
        if len(notes) < 3:
            return 0.1
        jobs.submit(Steps("job", 2, notes, gate))
        tried.set()
        raise RuntimeError("no more")

    monkeypatch.setattr(service_jobs, "LOOK_SECONDS", 0.01)
    jobs = Jobs(meanwhile=meanwhile)
    made.set()
    assert tried.wait(SECONDS)
    gate.set()
    while jobs.counts != (0, 0):
        jobs.do(lambda: None).result(SECONDS)
    jobs.close()
    assert notes == ["meanwhile"] * 3 + ["job"] * 2, "what failed is not tried again"
    assert "no more" in caplog.text


def test_jobs_take_turns_and_tell_what_is_ahead(jobs: Jobs) -> None:
    notes, gate = list[str](), threading.Event()
    first = jobs.submit(Steps("a", 2, notes, gate))
    second = jobs.submit(Steps("b", 2, notes))
    assert first.begun.wait(SECONDS) and (first.ahead, second.ahead) == (0, 1)
    gate.set()
    assert first.wait(SECONDS) and second.wait(SECONDS)
    assert notes == ["a", "b", "a", "b"] and (first.result, second.result) == ("a", "b")
    assert first.finished == 1 and first.error is None


def test_short_steps_share_a_turn(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_jobs, "TURN_SECONDS", 1000.0)
    notes, gate = list[str](), threading.Event()
    both = [jobs.submit(Steps("a", 2, notes, gate)), jobs.submit(Steps("b", 2, notes))]
    gate.set()
    assert all(job.wait(SECONDS) for job in both) and notes == ["a", "a", "b", "b"]


def test_a_job_that_waits_leaves_the_queue_at_once(jobs: Jobs) -> None:
    notes, gate = list[str](), threading.Event()
    jobs.submit(Steps("a", 1, notes, gate))
    waiting = jobs.submit(Steps("b", 1, notes))
    waiting.cancel()
    assert waiting.done and waiting.finished == 1 and not waiting.begun.is_set()
    gate.set()


def test_a_cancelled_job_is_closed_where_it_yielded(jobs: Jobs) -> None:
    notes, gate = list[str](), threading.Event()
    job = jobs.submit(Steps("a", 100, notes, gate))
    assert job.begun.wait(SECONDS)
    job.cancel()
    gate.set()
    assert job.wait(SECONDS) and notes == ["a"] and job.result is None and job.error is None
    job.cancel()
    assert job.finished == 1


def test_a_failure_is_the_jobs_own(jobs: Jobs) -> None:
    class Failing(Job[None]):
        def steps(self) -> Generator[None, None, None]:
            yield
            raise UserError("no such thing; choose another")

    job = jobs.submit(Failing())
    assert job.wait(SECONDS) and job.error == "no such thing; choose another"
    assert jobs.do(lambda: 7).result(SECONDS) == 7
    with pytest.raises(ZeroDivisionError):
        jobs.do(lambda: 1 / 0).result(SECONDS)


def test_what_is_prepared_holds_nobody_up(jobs: Jobs) -> None:
    class Prepared(Steps):
        def prepare(self) -> None:
            assert self.gate and self.gate.wait(SECONDS)

    gate = threading.Event()
    job = jobs.submit(Prepared("a", 1, [], gate))
    assert jobs.do(lambda: 1).result(SECONDS) == 1 and not job.begun.is_set()
    gate.set()
    assert job.wait(SECONDS) and job.result == "a"
    gate.clear()
    job = jobs.submit(Prepared("a", 1, [], gate))
    job.cancel()
    gate.set()
    assert job.wait(SECONDS) and not job.begun.is_set() and job.finished == 1


def test_a_failing_preparation_ends_the_job(jobs: Jobs) -> None:
    class Broken(Steps):
        def prepare(self) -> None:
            raise UserError("not today")

    job = jobs.submit(Broken("a", 1, []))
    assert job.wait(SECONDS) and job.error == "not today" and not job.begun.is_set()


def test_so_many_may_be_under_way_and_the_last_that_ended_are_found(jobs: Jobs) -> None:
    class Detour(Steps):
        """Another class of the same kind."""

    gate = threading.Event()
    running = [jobs.submit(walk("a", 1, [], gate)) for walk in (Steps, Detour, Steps)]
    with pytest.raises(UserError, match="3 walks are already running on this server"):
        jobs.submit(Steps("a", 1, []))
    gate.set()
    assert all(job.wait(SECONDS) for job in running)
    last = jobs.submit(Steps("a", 1, []))
    assert last.wait(SECONDS)
    assert [jobs.find(job.id, Steps) is job for job in (*running, last)] == [False, False, True, True]
    assert jobs.find(last.id, service_jobs.Task) is None and jobs.find("unknown", Steps) is None
    jobs.forget(last)
    assert jobs.find(last.id, Steps) is None


def test_closing_ends_all_of_them(jobs: Jobs) -> None:
    gate, notes = threading.Event(), list[str]()
    running, waiting = jobs.submit(Steps("a", 100, notes, gate)), jobs.submit(Steps("b", 1, notes))
    assert running.begun.wait(SECONDS)
    closing = threading.Thread(target=jobs.close)
    closing.start()
    assert waiting.wait(SECONDS)
    gate.set()
    closing.join(SECONDS)
    assert running.done and notes == ["a"]
    with pytest.raises(UserError, match="shutting down"):
        jobs.submit(Steps("a", 1, []))


def test_a_task_that_is_cancelled_says_so(jobs: Jobs) -> None:
    gate = threading.Event()
    jobs.submit(Steps("a", 1, [], gate))
    task = jobs.submit(service_jobs.Task(lambda: 1))
    task.cancel()
    with pytest.raises(CancelledError):
        task.future.result(SECONDS)
    gate.set()


def test_a_job_that_fails_as_it_is_closed_ends_all_the_same(jobs: Jobs) -> None:
    class Failing(Steps):
        def steps(self) -> Generator[None, None, str]:
            try:
                yield from super().steps()
            finally:
                raise RuntimeError("closing failed")

    gate = threading.Event()
    job = jobs.submit(Failing("a", 100, [], gate))
    assert job.begun.wait(SECONDS)
    job.cancel()
    gate.set()
    assert job.wait(SECONDS) and job.finished == 1
    assert jobs.do(lambda: 7).result(SECONDS) == 7


def test_a_step_that_is_stuck_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck, reached = threading.Event(), threading.Event()
    monkeypatch.setattr(service_jobs, "CLOSING_SECONDS", 0.05)
    queue = Jobs()
    queue.do(lambda: (reached.set(), stuck.wait(30)))
    assert reached.wait(30)
    queue.close()
    with pytest.raises(StoppingError):
        queue.do(lambda: None)
    stuck.set()
