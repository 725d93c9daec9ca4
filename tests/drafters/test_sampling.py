"""Sampling parameters and the distributions they make."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from drafters.sampling import SamplingParams, draw, draw_by, probabilities, sampled

LOGITS = torch.log(torch.tensor([0.05, 0.4, 0.3, 0.15, 0.1]))


def of(**settings):
    return probabilities(LOGITS, SamplingParams(**{"temperature": 1.0, **settings}))


def test_truncation():
    torch.testing.assert_close(of(), torch.tensor([0.05, 0.4, 0.3, 0.15, 0.1]))
    torch.testing.assert_close(of(top_k=2), torch.tensor([0.0, 4 / 7, 3 / 7, 0.0, 0.0]))
    torch.testing.assert_close(of(top_k=50), of())
    torch.testing.assert_close(of(top_p=0.5), torch.tensor([0.0, 4 / 7, 3 / 7, 0.0, 0.0]))
    for top_p in (0.01, 1e-46, 1e-300):
        torch.testing.assert_close(of(top_p=top_p), torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0]))
    # top_p counts the mass of what top_k left
    torch.testing.assert_close(of(top_k=3, top_p=0.8), torch.tensor([0.0, 4 / 7, 3 / 7, 0.0, 0.0]))


def test_temperature():
    torch.testing.assert_close(of(temperature=0.5), LOGITS.exp() ** 2 / (LOGITS.exp() ** 2).sum())
    torch.testing.assert_close(of(temperature=0.0, top_k=1), LOGITS.exp())  # greedy: temperature 1, no truncation
    for temperature in (1e-3, 1e-12, 1e-37, 1e-50, 5e-324):
        torch.testing.assert_close(of(temperature=temperature), torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0]))


def test_any_temperature_leaves_out_what_has_no_probability():
    logits = torch.tensor([1.0, -torch.inf, 3.0])
    for temperature in (1e38, 1e39, 1e300):
        probs = probabilities(logits, SamplingParams(temperature=temperature))
        torch.testing.assert_close(probs, torch.tensor([0.5, 0.0, 0.5]))


def test_ties_at_the_border_of_top_k_are_all_kept():
    logits = torch.tensor([1.0, 2.0, 1.0, 0.0])
    assert (probabilities(logits, SamplingParams(temperature=1.0, top_k=2)) > 0).tolist() == [True, True, True, False]


@given(
    seed=st.integers(0, 1000),
    temperature=st.floats(0.01, 5.0),
    top_k=st.integers(0, 9),
    top_p=st.floats(0.01, 1.0),
)
def test_the_kept_tokens_are_the_fewest_that_reach_top_p(seed, temperature, top_k, top_p):
    logits = torch.randn(3, 8, generator=torch.Generator().manual_seed(seed))
    probs = probabilities(logits, SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p))
    torch.testing.assert_close(probs.sum(dim=-1), torch.ones(3))
    whole = probabilities(logits, SamplingParams(temperature=temperature, top_k=top_k)).double()
    for row, full in zip(probs, whole, strict=True):
        kept = full[row > 0]
        assert len(kept) >= 1
        assert kept.sum() >= top_p - 1e-5
        assert kept.sum() - kept.min() < top_p + 1e-5
        assert kept.min() >= full[row == 0].max() if (row == 0).any() else True


def test_half_precision_logits_become_float32():
    assert probabilities(LOGITS.bfloat16(), SamplingParams(temperature=1.0, top_p=0.9)).dtype == torch.float32


@given(
    st.integers(0, 9999),
    st.sampled_from([1e-40, 1e-3, 0.7, 1.0, 3.0, 1e35]),
    st.sampled_from([0, 1, 5]),
    st.sampled_from([0.4, 1.0]),
)
def test_a_row_in_numpy_is_drawn_from_the_same_distribution(seed, temperature, top_k, top_p):
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p)
    random = np.random.default_rng(seed)
    logits = (random.standard_normal(30) * random.choice([0.1, 3.0, 1e9])).astype(np.float32)
    logits[random.permutation(30)[: random.integers(0, 20)]] = -np.inf
    expected = probabilities(torch.from_numpy(logits), params)
    for uniform in (0.0, random.random(), 1.0 - 2.0**-53):
        place, chance, probs = sampled(logits.copy(), params, uniform)
        assert probs.dtype == np.float32 and probs == pytest.approx(expected.numpy(), abs=1e-6)
        assert probs[place] > 0.0 and np.exp(chance) == pytest.approx(probs[place], rel=1e-5)
        below, upto = probs[:place].sum(dtype=np.float64), probs[: place + 1].sum(dtype=np.float64)
        assert below - 1e-6 <= uniform <= upto + 1e-6
        assert probs[draw_by(expected, uniform)] > 0.0


def test_of_what_is_no_number_a_token_comes_without_a_warning():
    place, chance, probs = sampled(np.array([0.0, np.nan], np.float32), SamplingParams(temperature=1.0), 0.5)
    assert place in (0, 1) and np.isnan(chance) and np.isnan(probs).any()


def test_draw_never_takes_what_has_probability_zero():
    generator = torch.Generator().manual_seed(0)
    assert {draw(torch.tensor([0.0, 2.0, 0.0, 1.0]), generator) for _ in range(200)} == {1, 3}


def test_numbers_of_numpy_are_taken_as_pythons():
    params = SamplingParams(np.int64(5), np.float32(0.5), np.float64(0.9), np.int32(3))
    assert params == SamplingParams(5, 0.5, 0.9, 3)
    assert [type(value) for value in (params.max_new_tokens, params.temperature, params.top_p)] == [int, float, float]
    with pytest.raises(ValueError, match="temperature must be 0"):
        SamplingParams(temperature=np.float32("nan"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1"),
        ({"max_new_tokens": 2.5}, "max_new_tokens must be a whole number"),
        ({"max_new_tokens": True}, "max_new_tokens must be a whole number"),
        ({"max_new_tokens": 10**9}, "max_new_tokens must be at most 1,000,000, got 1000000000"),
        ({"draft_length": 10**8}, "draft_length must be at most 64, got 100000000"),
        (
            {"draft_length": 10**5000},
            "draft_length must be at most 64, got a value of type int that is too large to print",
        ),
        ({"top_k": 10**5000}, "top_k must be at most"),
        ({"temperature": 10**5000}, "temperature must be 0"),
        ({"temperature": "x" * 9999}, "temperature must be a number, got 'x{39}…$"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_p": float("nan")}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"draft_length": 0}, "draft_length"),
    ],
)
def test_settings_out_of_range_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        SamplingParams(**settings)
