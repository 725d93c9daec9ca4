"""What is certain is said, also where the policy with the highest estimate is not."""

from dataclasses import replace

import numpy as np
import pytest

from multidraft.bench.measured_verdict import of_rows
from multidraft.bench.summary import Row
from multidraft.bench.verdict import sentences
from multidraft.replay.advice import Advice
from multidraft.ui.result_pages.result import _headline
from tests.multidraft.bench.test_verdict import NOISE, PLAIN, option

ABOUT = {"draft_length": 6, "suite": None, "source": "batch", "prompt": "p"}


def rows(off: float = 0.05, **seconds: list[float]) -> list[Row]:
    """Of policies, by the seconds of each prompt, which may be off by so much; UCB takes the fewest rounds."""
    made = {"tokens": 20, "speedup_uncertainty": off}
    return [
        Row(
            str(prompt),
            "",
            policy,
            "completed",
            **made,
            rounds=5 if policy == "ucb" else 10,
            mean_accepted_tokens=4.0 if policy == "ucb" else 2.0,
            seconds=each,
            request_seconds=each,
            speedup=1 / each,
            request_speedup=1 / each,
            baseline_seconds=1.0,
            baseline_request_seconds=1.0,
            prompt=prompt,
        )
        for policy, all in seconds.items()
        for prompt, each in enumerate(all)
    ]


def test_a_speed_up_that_is_certain_is_named_though_another_policy_has_a_higher_estimate():
    varied = np.array([0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 4.0])
    found = Advice.of(PLAIN, [option("rate-hedge", 1.0, noise=varied), option("ucb", 0.7, noise=NOISE)])
    assert found.pays == "open" and found.best.spec == "rate-hedge" and found.sure and found.sure.spec == "ucb"
    conclusion, todo, *_ = sentences(found)
    assert "For this traffic: `ucb`, draft length up to 6: decoding is 1.4" in conclusion
    assert "The estimate of `rate-hedge` is higher, 1.7" in conclusion and "no speed-up of it is certain" in conclusion
    assert "run `ucb`, draft length up to 6: it is certainly faster than decoding without" in todo
    assert "of `rate-hedge` that is not certain" in todo
    title, _, best = _headline(ABOUT, rows(ucb=list(0.7 * NOISE), exp3=list(varied)), {"ucb": "UCB", "exp3": "EXP3"})
    assert title.startswith("UCB answers 1.4") and best == "ucb"


def test_of_many_policies_none_seems_to_be_faster_than_plain_decoding_by_chance():
    """Of 100 samples of ten policies that are as fast as it; more than 13 has a probability below 0.001 at 5 %. Judged
    each by itself, one of the ten would be called faster in 40 of them."""
    rng, wrong = np.random.default_rng(7), 0
    for _ in range(100):
        found = Advice.of(PLAIN, [option(f"fixed:{n}", 1.0, noise=rng.gamma(25.0, 0.04, 8)) for n in range(10)])
        wrong += found.sure is not None
    assert wrong <= 13


def test_sampled_answers_of_different_lengths_are_not_said_to_be_of_different_times():
    made = rows(ucb=[0.5] * 8, exp3=[0.6] * 8)
    longer = [replace(row, baseline_seconds=1.5) if row.policy == "ucb" else row for row in made]
    alike, unlike = (sentences(of_rows(found, 6))[-1] for found in (made, longer))
    assert "baselines differ (measured at different times, or on sampled answers of different lengths)" in unlike
    assert "baselines" not in alike


@pytest.mark.parametrize(
    ("seconds", "off", "title"),
    [
        ({"ucb": [3.0], "exp3": [2.0]}, 0.05, "Every policy was slower than no drafter on 1 prompt"),
        ({"ucb": [3.0] * 8, "exp3": [2.0] * 8}, 0.05, "Drafting does not pay on 8 prompts"),
        (
            {"ucb": [3.0], "exp3": [1.0]},
            0.4,
            "UCB saves 75 % of the target's calls on 1 prompt, yet was slower on a busy machine",
        ),
        (
            {"ucb": [1.0], "exp3": [3.0]},
            0.4,
            "UCB saves 75 % of the target's calls on 1 prompt, timed on a busy machine",
        ),
    ],
)
def test_a_title_does_not_praise_what_is_slower(seconds: dict[str, list[float]], off: float, title: str):
    assert _headline(ABOUT, rows(off, **seconds), {"ucb": "UCB", "exp3": "EXP3"})[0] == title


def test_a_policy_that_was_slower_is_not_advised_for_the_calls_that_it_saves():
    _, end, *_ = sentences(of_rows(rows(0.4, ucb=[9.0] * 3, exp3=[9.5] * 3), 6))
    assert end.startswith("What to do: decode without drafters (`autoregressive`) for now: `ucb` saves the most calls")
    _, end, *_ = sentences(of_rows(rows(0.4, ucb=[1.1] * 3, exp3=[1.2] * 3), 6))
    assert end.startswith("What to do: run `ucb`, draft length up to")
