"""The definitions of figures: values known by hand, and intervals that cover what they claim."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import figures
from storage.figures import (
    FEWEST_PROMPTS,
    FEWEST_TO_TELL,
    FEWEST_TOKENS,
    MOST_BLOCKS,
    Ratio,
    at_different_times,
    divided,
    ranks,
    ratio_of_totals,
    speedup,
    timed_short,
    timed_side,
    timed_text,
)

POSITIVE = st.floats(1e-3, 1e3)


def test_speedup_of_one_answer() -> None:
    assert speedup(FEWEST_TOKENS, 3.0, 1.5) == 2
    assert speedup(FEWEST_TOKENS - 1, 3.0, 1.5) is None
    assert speedup(64, 0.0, 1.5) is None and speedup(64, 3.0, 0.0) is None


def test_nothing_to_divide_by() -> None:
    assert divided(1, 0) is None and divided(3, 2) == 1.5
    assert ratio_of_totals([], []) is None and ratio_of_totals([1.0], [0.0]) is None


@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1, max_size=12))
def test_the_value_is_the_ratio_of_the_totals(pairs: list[tuple[float, float]]) -> None:
    above, below = zip(*pairs)
    found = ratio_of_totals(above, below)
    assert found is not None and found.value == pytest.approx(sum(above) / sum(below)) and found.prompts == len(pairs)
    if len(pairs) < FEWEST_PROMPTS:
        assert found.interval is None
    else:
        ratios = [a / b for a, b in pairs]
        assert found.low is not None and found.high is not None
        assert min(ratios) * (1 - 1e-9) <= found.low <= found.high <= max(ratios) * (1 + 1e-9)


@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=FEWEST_PROMPTS, max_size=8), st.integers(2, 5))
def test_repeating_prompts_leaves_value_and_interval(pairs: list[tuple[float, float]], repeats: int) -> None:
    above, below = (list(part) for part in zip(*pairs))
    prompts = list(range(len(pairs)))
    once = ratio_of_totals(above, below, prompts)
    often = ratio_of_totals(above * repeats, below * repeats, prompts * repeats)
    assert once is not None and often is not None and often.prompts == once.prompts
    assert (often.value, often.low, often.high) == pytest.approx((once.value, once.low, once.high))


def test_ten_runs_of_a_prompt_weigh_as_much_as_one() -> None:
    once = ratio_of_totals([4.0, 1.0, 1.0], [1.0, 1.0, 1.0], "abc")
    often = ratio_of_totals([4.0] * 10 + [1.0, 1.0], [1.0] * 12, "aaaaaaaaaabc")
    assert once is not None and often is not None and often == once and often.value == 2.0


def test_so_many_prompts_settle_a_comparison() -> None:
    """With the number that a large sample gives, the difference is found in some 80 % of the samples."""
    rng = np.random.default_rng(4)

    def sample(prompts: int) -> tuple[np.ndarray, np.ndarray]:
        fast = rng.gamma(4.0, 1.0, prompts)
        return 1.1 * fast * rng.normal(1.0, 0.2, prompts), fast

    known = ratio_of_totals(*sample(5000))
    assert known is not None and known.prompts_to_settle is not None and 20 < known.prompts_to_settle < 80
    needed = known.prompts_to_settle
    found = [ratio_of_totals(*sample(int(needed))) for _ in range(200)]
    assert 0.68 < np.mean([ratio is not None and (ratio.low or 0.0) > 1 for ratio in found]) < 0.92


def test_how_many_prompts_settle_it_goes_by_the_interval() -> None:
    """One that includes 1 with half of its reach to spare takes more than so many prompts again."""
    usual = ((1.959964 + 0.841621) / 1.959964) ** 2
    assert Ratio(1.2, 1.0, 1.44, 1000).prompts_to_settle == pytest.approx(1000 * usual, rel=0.01)
    assert Ratio(1 / 1.2, 1 / 1.44, 1.0, 1000).prompts_to_settle == Ratio(1.2, 1.0, 1.44, 1000).prompts_to_settle
    wide = Ratio(1.46, 0.79, 2.70, 6).prompts_to_settle
    assert wide is not None and 15 < wide < 40
    assert Ratio(1.2, None, None, 2).prompts_to_settle is None and Ratio(0.5, 0.0, 2.0, 9).prompts_to_settle is None
    assert Ratio(1.0, 0.5, 2.0, 9).prompts_to_settle == float("inf")
    assert Ratio(2.0, 2.0, 2.0, 3).prompts_to_settle == FEWEST_TO_TELL
    one, many = (Ratio(1.2, 1.0, 1.44, 1000).among(count).prompts_to_settle for count in (1, 10))
    assert one and many and many / one == pytest.approx((3.649 / 2.802) ** 2, rel=0.01), (
        "z of 0.9975 and 0.975, and of 0.8"
    )


def test_the_same_is_drawn_each_time() -> None:
    assert ratio_of_totals([1.0, 2.0, 4.0], [1.0, 1.0, 1.0]) == ratio_of_totals([1.0, 2.0, 4.0], [1.0, 1.0, 1.0])


def test_each_run_needs_a_prompt() -> None:
    with pytest.raises(ValueError, match="3 runs, but 2 prompts"):
        ratio_of_totals([1.0, 2.0, 3.0], [1.0, 1.0, 1.0], ["a", "b"])


@pytest.mark.parametrize(("prompts", "most"), [(5, 0.14), (21, 0.09)])
def test_intervals_cover_the_true_ratio(prompts: int, most: float) -> None:
    """Of 400 samples with true ratio 2: if 5 % are missed (10 % with five prompts), more than 9 % (14 %) has a
    probability below 0.005."""
    rng = np.random.default_rng(5)
    missed = 0
    for _ in range(400):
        below = rng.gamma(4.0, 1.0, prompts)
        above = 2 * below + rng.normal(0.0, 0.5, prompts) * below**0.5
        found = ratio_of_totals(above, below)
        assert found is not None and found.low is not None and found.high is not None
        missed += not found.low <= 2 <= found.high
    assert 0.02 <= missed / 400 <= most


def test_repeats_with_noise_of_their_own_are_clusters() -> None:
    """Speed-ups differ from prompt to prompt by 30 %, repeats by 1 %: ten repeats tell hardly more than one."""
    rng = np.random.default_rng(1)
    of_prompt = rng.lognormal(0.7, 0.3, 20)
    once, often = of_prompt, np.repeat(of_prompt, 10) * rng.lognormal(0, 0.01, 200)
    one = ratio_of_totals(once, np.ones(20), range(20))
    many = ratio_of_totals(often, np.ones(200), np.repeat(np.arange(20), 10).tolist())
    alone = ratio_of_totals(often, np.ones(200))
    assert one is not None and many is not None and alone is not None

    def width(ratio: figures.Ratio) -> float:
        assert ratio.low is not None and ratio.high is not None
        return ratio.high - ratio.low

    assert width(many) == pytest.approx(width(one), rel=0.1) and width(alone) < 0.5 * width(many)


def test_blocks_of_many_prompts_have_the_same_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    above, below = rng.gamma(4.0, 1.0, MOST_BLOCKS), np.ones(MOST_BLOCKS)
    each = ratio_of_totals(above, below)
    monkeypatch.setattr(figures, "MOST_BLOCKS", MOST_BLOCKS // 5)
    blocks = ratio_of_totals(above, below)
    assert each is not None and blocks is not None and each.low is not None and blocks.low is not None
    assert blocks.value == each.value and blocks.prompts == each.prompts == MOST_BLOCKS
    assert blocks.value - blocks.low == pytest.approx(each.value - each.low, rel=0.25)


def test_one_of_many_comparisons_has_a_wider_interval() -> None:
    """Student's t with 19 degrees of freedom: 2.093 at 5 %, 3.174 at 0.5 %."""
    one = Ratio(2.0, 1.5, 2.5, 20)
    many = one.among(10)
    assert one.among(1) == one and Ratio(2.0, None, None, 4).among(10).interval is None
    assert many.interval == pytest.approx([2 * (end / 2) ** (3.1737 / 2.0930) for end in (1.5, 2.5)], rel=1e-3)
    assert many.prompts_to_settle > one.prompts_to_settle


@pytest.mark.parametrize(
    ("low", "high", "prompts", "side"),
    [(1.1, 1.3, 6, 1), (0.7, 0.9, 6, -1), (0.9, 1.1, 6, 0), (1.1, 1.3, 5, 0), (None, None, 2, 0)],
)
def test_faster_and_slower_are_said_of_intervals_beside_one_and_six_prompts(low, high, prompts, side) -> None:
    assert Ratio(1.0, low, high, prompts).side == side


def test_what_cannot_be_told_apart_shares_a_rank() -> None:
    """b cannot be told from a, nor d from c; e took the same prompts as none of them."""
    up, down = ({n: 1.0 + sign * (-1) ** n * 0.4 for n in range(8)} for sign in (1, -1))
    slow = {name: {n: 3 * each + 0.1 for n, each in of.items()} for name, of in (("c", up), ("d", down))}
    seconds = {"a": up, "b": down, **slow, "e": {n + 10: 9.0 for n in range(8)}}
    assert ranks(seconds) == {"a": 1, "b": 1, "e": 1, "c": 4, "d": 4}
    assert ranks({"a": up}) == {"a": 1} and ranks({}) == {}
    few = {name: {n: of[n] for n in range(5)} for name, of in seconds.items() if name in "ac"}
    assert ranks(few) == {"a": 1, "c": 1}, "five prompts are too few to tell"


def test_what_is_known_is_said_however_noisy() -> None:
    assert timed_text(2.0, 0.05, "×") == "2.00× ± 0.10"
    assert Ratio(1.1, 1.004, 1.2, 9).text("×") == "1.10× (1.004–1.20)", "on which side of 1 it ends can be seen"
    assert Ratio(1.0, 1.0, 1.0, 9).text("×") == "1.00×"
    assert ratio_of_totals([0, 0, 0, 0, 0, 2], [1] * 6).low == 0.0
    asked = [3.0, 5.0, 2.0], [1.0, 2.0, 2.0], "aab"
    assert figures.value_of_totals(*asked) == ratio_of_totals(*asked).value == 6 / 3.5
    assert timed_text(2.0, 0.4, "×") == "faster: 1.20–2.80×"
    assert timed_text(0.5, 0.5, "×") == "slower: 0.25–0.75×"
    assert timed_text(1.2, 0.3) == "0.84–1.56", "nothing is known of its side"
    assert timed_short(2.0, 0.05, "×") == "2.00× ± 0.10" and timed_short(2.0, 0.4, "×") == "1.20–2.80×"
    assert timed_short(1.2, 0.3) == "0.84–1.56" and timed_short(1.2, 3.0, "×") == "too noisy"
    assert timed_short(0.4, 1.0, "×") == "below 0.80×" and Ratio(0.9, 0.8, 0.9998, 9).text() == "0.90 (0.80–0.9998)"
    assert [timed_side(value, 0.3) for value in (2.0, 1.2, 0.5)] == [1, 0, -1]


def test_runs_beside_different_baselines_are_of_different_times():
    runs = {"a": {1: (2.0, 1.0), 2: (3.0, 1.0)}, "b": {1: (2.0, 1.5)}, "plain": {1: (9.0, 9.0)}}
    assert not at_different_times(runs, "plain") and at_different_times(runs)
    assert at_different_times({**runs, "b": {2: (3.1, 1.0)}}, "plain")


def test_a_mean_may_be_negative() -> None:
    found = ratio_of_totals([-3, -2, -2, -1, 0, 1], [1] * 6)
    assert found is not None and found.value == pytest.approx(-7 / 6) and found.low and found.high
    assert -3 < found.low < -2 and -0.3 < found.high < 0.4
    other = ratio_of_totals([3, 2, 2, 1, 0, -1], [1] * 6)
    assert other is not None and (other.low, other.high) == pytest.approx((-found.high, -found.low), abs=0.3)


def test_a_ratio_and_its_inverse_have_one_interval():
    """Whichever of two is called the first, the verdict is the same; and totals may be 0."""
    rng = np.random.default_rng(4)
    above, below = rng.uniform(1, 2, 14).tolist(), rng.uniform(1, 2, 14).tolist()
    one, other = ratio_of_totals(above, below), ratio_of_totals(below, above)
    assert one and other and one.low and other.low and other.high
    assert (one.value, one.low, one.high) == pytest.approx((1 / other.value, 1 / other.high, 1 / other.low))
    nothing = ratio_of_totals([0.0] * 5, below[:5])
    assert nothing and nothing.value == 0.0 and nothing.high == pytest.approx(0.0)
