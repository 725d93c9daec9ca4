import pytest
import torch

from drafters.models.projection import HELD_TWICE, LARGE_MATRIX, LARGE_MODEL, Projection, can_pack


@pytest.mark.parametrize("models", [1, 3])
@pytest.mark.parametrize("tokens", [1, 2, 7, 17, 40])
@pytest.mark.parametrize("shape", [(24, 16), (600, 256)])
def test_product_is_that_of_the_plain_matrices(models, tokens, shape):
    generator = torch.Generator().manual_seed(tokens)
    weights = torch.randn(models, *shape, generator=generator)
    x = torch.randn(models, tokens, shape[1], generator=generator)
    projection = Projection(weights, weights[0].numel())
    large = weights[0].numel() >= LARGE_MATRIX
    assert bool(projection.packed) == ((large or models > 1) and can_pack(weights))
    assert bool(projection.of(0).packed) == (large and can_pack(weights))
    expected = torch.einsum("mti,moi->mto", x, weights)
    torch.testing.assert_close(projection(x), expected, rtol=1e-4, atol=1e-4)
    last = projection.of(models - 1)
    torch.testing.assert_close(last(x[-1:]), expected[-1:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("parameters", [LARGE_MODEL, HELD_TWICE, HELD_TWICE + 1])
def test_every_matrix_of_a_large_model_is_packed(parameters):
    weights = torch.randn(1, 8, 6)
    projection = Projection(weights, parameters)
    if can_pack(weights):
        assert len(projection.packed) == 1 and bool(projection.weights.numel()) == (parameters <= HELD_TWICE)
    for tokens in (1, 2, 5):
        x = torch.randn(1, tokens, 6)
        torch.testing.assert_close(projection.of(0)(x), x @ weights.transpose(1, 2))
        torch.testing.assert_close(projection(x), x @ weights.transpose(1, 2))


def test_small_matrices_of_small_models_are_left_alone():
    assert not Projection(torch.randn(1, 8, 8), LARGE_MODEL - 1).packed


def test_half_precision_is_left_alone():
    weights = torch.randn(1, 600, 256, dtype=torch.bfloat16)
    assert not can_pack(weights) and not Projection(weights, LARGE_MODEL).packed
