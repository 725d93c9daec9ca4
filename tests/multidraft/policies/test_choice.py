"""Drawing an arm from its probabilities."""

from collections import Counter

import numpy as np
import pytest

from multidraft.policies.exp3 import sample_arm


class Always:
    """A generator whose next uniform number is known."""

    def __init__(self, number):
        self.number = number

    def random(self):
        return self.number


@pytest.mark.parametrize(("number", "arm"), [(0.0, 1), (0.24, 1), (0.26, 3), (0.999999, 3)])
def test_the_number_falls_into_the_interval_of_its_arm(number, arm):
    assert sample_arm([0.0, 0.25, 0.0, 0.75], Always(number)) == arm


def test_a_gap_left_by_rounding_goes_to_the_likeliest_arm():
    assert sample_arm([0.2, 0.79, 0.0], Always(0.995)) == 1


def test_frequencies():
    rng = np.random.default_rng(0)
    counts = Counter(sample_arm([0.5, 0.3, 0.2], rng) for _ in range(6000))
    assert [counts[arm] / 6000 for arm in range(3)] == pytest.approx([0.5, 0.3, 0.2], abs=0.025)
