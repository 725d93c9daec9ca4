import pytest

from drafters.errors import UserError
from drafters.sampling import SamplingParams
from multidraft.service.inputs import make_params, whole_number


def test_parameters_from_the_pages_floats() -> None:
    params = make_params(64.0, 0.5, 0.9, 40.0, 6.0)
    assert params == SamplingParams(64, 0.5, 0.9, 40, 6)
    assert isinstance(params.max_new_tokens, int)


def test_a_large_seed_is_taken_to_the_digit() -> None:
    assert [whole_number("seed", seed) for seed in (2**53 + 1, 2**63 - 1)] == [2**53 + 1, 2**63 - 1]


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ((None, 0, 1, 0, 6), "max new tokens"),
        ((64, None, 1, 0, 6), "temperature"),
        ((64, 0, 1, 0.5, 6), "top-k"),
        ((64, 0, 1, 0, float("inf")), "draft length"),
        ((0, 0, 1, 0, 6), "^max new tokens must be at least 1"),
        ((64, 0, 2, 0, 6), "^top-p must be above"),
        ((64, 0, 1, 0, 1e8), "^draft length must be at most 64, got 100000000"),
        ((1e8, 0, 1, 0, 6), "^max new tokens must be at most 1,000,000"),
        ((64, 0, 1, 0, 10**400), "^draft length is too large: 10{39}…"),
        ((10**5000, 0, 1, 0, 6), "^max new tokens is too large: a value of type int"),
        ((64, 0, 1, 0, 0), "^draft length must"),
        ((64, -1, 1, 0, 6), "temperature"),
        ((64, float("nan"), 1, 0, 6), "temperature"),
    ],
)
def test_bad_parameters_are_named(values: tuple[float, ...], word: str) -> None:
    with pytest.raises(UserError, match=word):
        make_params(*values)
