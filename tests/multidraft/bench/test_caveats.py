"""What a verdict leaves open."""

from dataclasses import replace

import pytest

from multidraft.bench.caveats import caveats
from multidraft.bench.measured_verdict import loops, of_rows
from multidraft.bench.summary import Row


def row(prompt: int, uncertainty: float) -> Row:
    taken = {"seconds": 1.0, "request_seconds": 1.1, "baseline_seconds": 2.0, "baseline_request_seconds": 2.1}
    speeds = {"speedup": 2.0, "request_speedup": 2.1 / 1.1, "speedup_uncertainty": uncertainty}
    return Row(str(prompt), "math", "ucb", "stopped", 40, 10, prompt=prompt, **taken, **speeds)


@pytest.mark.parametrize(("noisy", "said"), [(0, False), (1, False), (2, True), (8, True)])
def test_a_busy_machine_is_named_where_a_quarter_of_the_runs_tell_nothing_by_themselves(noisy: int, said: bool) -> None:
    rows = [row(prompt, 0.4 if prompt < noisy else 0.05) for prompt in range(8)]
    found = caveats(of_rows(rows, 6))
    assert [f"The machine was busy: the timings of {noisy} of 8 runs" in text for text in found] == [True] * said
    assert not any("replays" in text for text in found), "there are none"
    assert not caveats(of_rows(rows[:5], 6)), "so few prompts have no verdict"
    finished = [replace(one, status="completed") for one in rows[:6]]
    assert caveats(of_rows(finished, 6))[-1].startswith("Most answers were cut: 6 of 6 ended at max new tokens.")


def test_policies_of_other_versions_have_no_start_that_is_known() -> None:
    rows = [replace(row(prompt, 0.05), policy=spec) for prompt in range(8) for spec in ("ucb", "rate-hedge", "of-old")]
    (found,) = caveats(of_rows(rows, 6))
    assert "`ucb` cold" in found and "of-old" not in found


SENSE = (
    "We know: 4 shelves with 41 books each, 44 books lent out, 3 equal boxes for the rest. Step 1: 4 * 41 = 164 books. "
)
SENSE += (
    "Step 2: 164 - 44 = 120 books are left on the shelves. Step 3: 120 / 3 = 40. So the answer is 40 books in each box."
)


def test_answers_that_end_in_a_loop() -> None:
    assert not loops(SENSE) and not loops("") and not loops("no " * 30), "too short to tell"
    assert loops(SENSE + "tr " * 200) and loops("The bus takes 4 hours and 30 minutes. " * 12)


@pytest.mark.parametrize(("looping", "said"), [(0, False), (1, True), (3, True)])
def test_answers_that_loop_are_named_where_they_are_a_tenth(looping: int, said: bool) -> None:
    rows = [replace(row(n, 0.05), output="tr " * 200 if n < looping else SENSE) for n in range(10)]
    found = caveats(of_rows(rows, 6))
    assert [
        f"The answers to {looping} of 10 prompts end by saying the same over and over" in line for line in found
    ] == ([True] * said)
    more = [replace(row(n, 0.05), output=SENSE) for n in range(10, 31)]
    assert bool(caveats(of_rows(rows[:3] + more, 6))) == (looping == 3), "of 24"
