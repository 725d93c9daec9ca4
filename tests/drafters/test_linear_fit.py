"""A line through measurements."""

import numpy as np
import pytest

from drafters.linear_fit import LinearFit


def test_a_line_through_noisy_measurements():
    rng = np.random.default_rng(0)
    line = LinearFit()
    for _ in range(300):
        k = int(rng.integers(0, 9))
        line.add(k, (5.0 + 0.5 * k) * rng.uniform(0.95, 1.05))
    assert line.fixed == pytest.approx(5.0, rel=0.05) and line.per_unit == pytest.approx(0.5, rel=0.15)


def test_a_line_through_measurements_of_one_size_is_flat():
    line = LinearFit()
    for _ in range(5):
        line.add(4, 2.0)
    assert (line.per_unit, line.at(9)) == (0.0, pytest.approx(2.0))
    assert LinearFit().at(3) == 0.0


def test_a_hiccup_counts_little():
    line = LinearFit()
    for _ in range(50):
        line.add(1, 1.0)
    line.add(1, 500.0)
    assert line.at(1) < 1.1


def test_old_measurements_fade():
    line = LinearFit()
    for seconds in [2.0] * 100 + [1.0] * 200:
        line.add(1, seconds)
    assert line.at(1) == pytest.approx(1.0, abs=0.05)


def test_a_fast_measurement_tells_that_those_before_were_disturbed():
    line = LinearFit()
    for k, seconds in ((1, 5.0), (1, 7.0), (1, 6.0), (1, 1.0), (1, 1.2)):
        line.clock(k, seconds)
    assert line.at(1) == pytest.approx(1.07, abs=0.02)


def test_long_work_that_is_fast_makes_those_before_count_less():
    disturbed = [(8.0, 10.0), (1.0, 1.0)] * 10
    line, other = line_through(*disturbed), line_through(*disturbed)
    for _ in range(3):
        line.clock(12.0, 3.75)
        other.add(12.0, 3.75)
    assert line.at(12) < 0.6 * other.at(12)
    even = line_through(*[(8.0, 1.0), (8.0, 1.1)] * 10)
    before = even.weight
    even.clock(8.0, 0.95)
    assert even.weight == pytest.approx(0.98 * before + 1.0), "what is a little faster is chance"


def test_fewer_units_may_take_less():
    line = LinearFit()
    for _ in range(20):
        line.clock(60, 20.0)
    line.clock(1, 1.0)
    line.clock(1, 1.0)
    assert line.at(60) == pytest.approx(20.0, rel=0.05) and line.at(1) == pytest.approx(1.0, rel=0.05)


def line_through(*points):
    line = LinearFit()
    for units, seconds in points:
        line.clock(units, seconds)
    return line


@pytest.mark.parametrize(
    ("points", "fixed", "per_unit"),
    [
        ([(1, 4.0), (3, 8.0)], 2.0, 2.0),
        ([(1, 5.0), (2, 5.5)], 4.5, 0.5),
        ([(1, 5.0), (3, 4.0)], (0.98 * 5 + 4) / 1.98, 0.0),  # more work never takes less
        ([(1, 2.0), (3, 12.0)], 0.0, (0.98 * 2 + 12) / (0.98 + 3)),  # nor no work a negative time
        ([(0, 4.0), (0, 3.5)], (0.98 * 4 + 3.5) / 1.98, 0.0),
        ([(0, 4.0), (0, 3.0)], (0.98 * 0.75 * 4 + 3) / (0.98 * 0.75 + 1), 0.0),  # much faster than expected
    ],
)
def test_a_line_through_two_measurements_by_hand(points, fixed, per_unit):
    """The older one weighs 0.98."""
    line = line_through(*points)
    assert (line.fixed, line.per_unit) == (pytest.approx(fixed), pytest.approx(per_unit))


@pytest.mark.parametrize(("before", "counted"), [(3, 100.0), (4, 3.0)])
def test_from_the_fifth_measurement_on_one_counts_as_three_times_the_expected_at_most(before, counted):
    line = LinearFit()
    for seconds in (*[1.0] * before, 100.0):
        line.add(1, seconds)
    older = sum(0.98**age for age in range(1, before + 1))
    assert line.mean == pytest.approx((older + counted) / (older + 1))


@pytest.mark.parametrize(
    ("units", "seconds", "together"),
    [
        (3, 2.9, True),  # less than half of the mean, 6.02
        (3, 3.1, False),
        (9, 2.9, True),  # so it is for more than the mean of the units, 2.01
        (1, 1.4, True),  # a line through the mean and 0 allows 3.0 of one unit, half of which is 1.5
        (1, 1.6, False),
    ],
)
def test_a_measurement_of_less_than_half_the_least_makes_those_before_one_of_its_own_speed(units, seconds, together):
    line = line_through((1, 4.0), (3, 8.0), (units, seconds))  # 2 + 2 a unit
    expected = 8.0 if units == 3 else (0.98 * 4.0 + 8.0) / (0.98 + 3.0)  # of one unit the least is expected
    older = 1.0 if together else 1.98 * seconds / expected
    assert line.weight == pytest.approx(0.98 * older + 1.0)
    if together:  # scaled to the newest, with which they lie on one line
        level = seconds / (2.0 + 2.0 * units)
        assert (line.fixed, line.per_unit) == (pytest.approx(2.0 * level), pytest.approx(2.0 * level))


def test_of_measurements_without_units_the_fast_one_counts_too():
    line = line_through((0, 4.0), (0, 1.9))
    assert (line.weight, line.mean) == (pytest.approx(1.98), pytest.approx(1.9))
