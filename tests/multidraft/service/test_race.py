"""A race leaves the machine to the page that shows it before each lane, where both may share a CPU."""

import pytest

from drafters.sampling import SamplingParams
from multidraft.service import race
from multidraft.service.race import RaceJob
from multidraft.service.workbench import Workbench


def test_the_page_draws_before_each_lane_and_not_beside_it(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = []

    def left(jobs: object, cancelled: object, until: float) -> bool:
        measurement = job.measurement
        assert measurement is not None and measurement.phase == "waiting", "the lane is named, and has not begun"
        measured.append((job.states, len(job.runs)))
        return True

    monkeypatch.setattr(race, "leave_to_page", left)
    job = RaceJob(workbench, "abc abd", ["ucb", "fixed:near"], SamplingParams(max_new_tokens=8, draft_length=4))
    assert workbench.jobs.submit(job).wait(60) and len(job.measured) == 2
    assert measured == [(["measuring", "waiting"], 0), (["measured", "measuring"], 1)]


def test_a_stopped_race_waits_for_no_page(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "DRAWING_SECONDS", 60.0)
    job = RaceJob(workbench, "abc abd", ["ucb", "fixed:near"], SamplingParams(max_new_tokens=8, draft_length=4))
    workbench.jobs.submit(job)
    assert not job.wait(0.2), "it waits before its first lane"
    job.cancel()
    assert job.wait(10) and not job.measured
