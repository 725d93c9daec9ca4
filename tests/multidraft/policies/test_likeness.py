"""The belief over stretches of past texts, by hand: two levels of acceptance, two drafters, texts that tell clearly."""

from dataclasses import replace

import numpy as np
import pytest

from drafters.costs import Costs
from drafters.traffic import STRETCH, Prior
from multidraft import make_policy
from multidraft.policies import Context, Feedback
from multidraft.policies.likeness import ALONE, Likeness

LEVELS = np.array([0.2, 0.8])
FIRST, SECOND = (0.8, 0.2), (0.2, 0.8)
REFUSED = 1.0 - LEVELS
EVEN = np.full((2, 2), 0.5)


def likeness(*texts, cosine=0.5):
    prior = Prior((0.6, 0.6), (0.1, 0.1), len(texts), (cosine,) * len(texts), texts)
    return Likeness(prior, np.log([LEVELS, REFUSED]))


def test_it_begins_with_the_third_power_of_the_prompts_likeness():
    begun = likeness((FIRST, SECOND))
    assert begun.weights == pytest.approx(np.array([0.125, 0.125, ALONE]) / (0.25 + ALONE))
    assert likeness((FIRST,), cosine=0.01).weights[-1] > 0.99, "what is hardly alike tells hardly anything"


def test_a_refusal_of_one_drafter_speaks_for_the_other():
    found = likeness((FIRST, SECOND))
    found.saw(0, REFUSED, 0.5)
    weights = np.array([0.125 * 0.2, 0.125 * 0.8, ALONE * 0.5])
    first, second, alone = weights / weights.sum()
    assert found.weights == pytest.approx([first, second, alone])
    good = [first + alone / 2, second + alone / 2]
    assert found.belief(EVEN)[:, 1] == pytest.approx(good)
    assert found.belief(EVEN).sum(axis=1) == pytest.approx([1.0, 1.0])


def test_where_all_fail_together_the_other_is_expected_to_fail_too():
    found = likeness(((0.8, 0.8), (0.2, 0.2)))
    before = found.belief(EVEN)[1, 1]
    found.saw(0, REFUSED, 0.5)
    assert found.belief(EVEN)[1, 1] < before - 0.1


def test_what_no_stretch_explains_leaves_each_drafter_to_itself():
    found = likeness((FIRST,))
    for _ in range(8):
        found.saw(0, REFUSED, 0.8)  # by itself it has been known as poor for long
    assert found.weights[-1] > 0.999


def test_an_evaluation_counts_for_all_drafters():
    found = likeness((FIRST, SECOND))
    found.saw_all(np.array([REFUSED, LEVELS]), np.array([0.5, 0.5]))
    weights = np.array([0.125 * 0.2 * 0.2, 0.125 * 0.8 * 0.8, ALONE * 0.25])
    assert found.weights == pytest.approx(weights / weights.sum())


def test_a_text_moves_on_through_its_stretches_and_begins_anew_with_a_change():
    found = likeness((FIRST, SECOND), (FIRST,))
    start = found.start
    found.pass_on(2, kept=1.0)
    moved = start[0] * (1.0 - (1.0 - 1.0 / STRETCH) ** 2)
    assert found.weights == pytest.approx(start + np.array([-moved, moved, 0.0, 0.0]))
    found.pass_on(1, kept=0.0)
    assert found.weights == pytest.approx(start)


def test_rate_hedge_after_a_refusal_plays_who_was_good_where_the_other_failed():
    """Of three drafters the first two are as good in the mean; only one of them is good where the third is poor."""
    texts = (((0.9, 0.3, 0.9), (0.3, 0.9, 0.3)),)
    prior = Prior((0.7, 0.65, 0.9), (0.1,) * 3, 9, (0.9,), texts)
    policy = make_policy("rate-hedge", ["a", "b", "c"])
    policy.begin(Context("p", 4, Costs.uniform(3, 4, step=0.1, verify=1.0), prior=prior))
    assert policy.select() == 2
    for _ in range(2):
        policy.select()
        length = policy.draft_length(4)
        policy.update(Feedback(2, length, 0, 1, length))
    assert policy.select() == 1
    policy.begin(
        Context("p", 4, Costs.uniform(3, 4, step=0.1, verify=1.0), prior=prior._replace(likeness=(), texts=()))
    )
    assert policy.likeness is None, "nothing is left of the query before"


def test_who_was_good_in_the_stretches_of_such_texts_reads_the_prompt():
    """The guess of each alone may be of a stretch that these texts do not begin with."""
    texts = (((0.9, 0.3, 0.3),),)
    prior = Prior((0.8, 0.9, 0.9), (0.1,) * 3, 9, (0.9,), texts)
    context = Context("p", 4, Costs.uniform(3, 4, step=0.1, verify=1.0), prior=prior)
    policy = make_policy("rate-hedge", ["a", "b", "c"])
    policy.begin(context)
    assert policy.candidates() == [0] and policy.select() == 0
    policy.begin(replace(context, prior=prior._replace(likeness=(), texts=())))
    assert policy.candidates() == [0, 1, 2]
