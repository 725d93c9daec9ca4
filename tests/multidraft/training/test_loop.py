"""The training loop: it learns, stops with its budget, and resumes where it was."""

import itertools
import math

import pytest
import torch
from torch import nn

from drafters.errors import TrainingError
from multidraft.training.loop import Budget, learning_rate_factor, train


def problem(seed=0):
    """A linear map to recover, and batches of it."""
    torch.manual_seed(seed)
    model, truth = nn.Linear(8, 8), torch.randn(8, 8)

    def batches():
        while True:
            x = torch.randn(32, 8)
            yield x, x @ truth

    def loss_of(batch):
        x, y = batch
        return nn.functional.mse_loss(model(x), y), len(x)

    return model, batches(), loss_of


def test_it_learns_within_its_token_budget():
    model, batches, loss_of = problem()
    before = loss_of(next(batches))[0].item()
    seen = []
    train(model, (seen.append(1) or b for b in batches), loss_of, Budget(10, tokens=32 * 300), lr=0.05)
    assert len(seen) == 300
    assert loss_of(next(batches))[0].item() < before / 20
    assert not model.training


def test_accumulated_batches_count_and_act_as_one():
    """Two batches of 16 in a step are one of 32, but for rounding."""
    results = []
    for size, accumulate in [(32, 1), (16, 2)]:
        model, batches, loss_of = problem()
        fixed = [next(batches) for _ in range(10)]
        split = [(x[i : i + size], y[i : i + size]) for x, y in fixed for i in range(0, 32, size)]
        train(model, itertools.cycle(split), loss_of, Budget(10, tokens=320), lr=0.01, accumulate=accumulate)
        results.append(model.weight.detach().clone())
    torch.testing.assert_close(results[0], results[1], rtol=1e-3, atol=1e-4)


def test_a_loss_that_is_none_ends_it_before_the_weights_change():
    model, batches, loss_of = problem()
    before, (x, y) = model.weight.detach().clone(), next(batches)
    split = itertools.cycle([(x, y * math.nan), (x, y)])
    with pytest.raises(TrainingError, match="the loss is nan at step 0: lower the learning rate"):
        train(model, split, loss_of, Budget(10, tokens=320), lr=0.01, accumulate=2)
    assert torch.equal(model.weight, before)


def test_a_run_resumes_from_its_checkpoint(tmp_path, capsys):
    checkpoint = tmp_path / "deep" / "model.pt"
    model, batches, loss_of = problem()
    train(model, batches, loss_of, Budget(10, tokens=32 * 50, checkpoint=checkpoint), lr=0.05)
    halfway = model.weight.detach().clone()

    model, batches, loss_of = problem(seed=1)
    seen = []
    capsys.readouterr()
    train(model, (seen.append(1) or b for b in batches), loss_of, Budget(10, 32 * 50, checkpoint), lr=0.05)
    assert "resumed at step 50" in capsys.readouterr().out and not seen  # the budget was spent
    assert torch.equal(model.weight, halfway)

    train(model, (seen.append(1) or b for b in batches), loss_of, Budget(10, 32 * 70, checkpoint), lr=0.05)
    assert len(seen) == 20


def test_a_checkpoint_of_other_optimizers_is_named(tmp_path):
    checkpoint = tmp_path / "model.pt"
    model, batches, loss_of = problem()
    train(model, batches, loss_of, Budget(10, 32, checkpoint), lr=0.05)
    state = torch.load(checkpoint, weights_only=True)
    torch.save({**state, "optimizers": [*state["optimizers"], {}]}, checkpoint)
    with pytest.raises(ValueError, match=r"model\.pt was written on a machine that trains with other optimizers"):
        train(model, batches, loss_of, Budget(10, 64, checkpoint), lr=0.05)


def test_time_ends_a_run():
    model, batches, loss_of = problem()
    train(model, batches, loss_of, Budget(minutes=0.5 / 60), lr=0.01)
    assert Budget(2).progress(60, 0) == 0.5 and Budget(2, 100).progress(60, 80) == 0.8


@pytest.mark.parametrize(
    ("progress", "factor"), [(0.0, 0.0), (0.01, 0.5), (0.02, 1.0), (0.6, 1.0), (0.825, 0.5), (1.0, 0.0)]
)
def test_the_learning_rate_warms_up_and_cools_down(progress, factor):
    assert learning_rate_factor(progress) == pytest.approx(factor)
