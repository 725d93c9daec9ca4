"""Drafters trained one after the other, each for as long as it was asked for."""

from types import SimpleNamespace

from drafters.learning.distil import collate
from multidraft.training.answers import Answer, answer_batches
from multidraft.training.processes import ALONE
from multidraft.training.specialists import ANSWERS, train_all
from multidraft.training.work import SETTINGS


class Recipe:
    """Counts the batches that a drafter is trained on, as the training loop counts their tokens."""

    processes = ALONE

    def __init__(self, plan):
        self.plan, self.steps = plan, []

    def begin(self, own, general):
        return object()

    def fit(self, drafter, own, budget, lr, rng):
        batches, tokens, steps = answer_batches(own, self.plan.batch_tokens, rng), 0, 0
        while budget.progress(0.0, tokens) < 1.0:
            tokens, steps = tokens + collate(next(batches), 0).ids.numel(), steps + 1
        self.steps.append(steps)

    def save(self, drafter, folder):
        pass


def test_epochs_are_of_all_batches_however_much_of_them_is_padding(tmp_path):
    (tmp_path / ANSWERS).mkdir()
    (tmp_path / ANSWERS / SETTINGS).write_text("{}")
    answers = [Answer([1] * length, 1, "math", *[[0, 0]] * 2) for length in (2, 9, 10, 30, 31, 60)]
    how = {"kind": "lm", "drafters": ["math"], "asking": SimpleNamespace(seed=0), "trained_by": dict}
    budget = {"minutes": 1.0, "epochs": 3.0, "lr": 0.1, "batch_tokens": 64}
    recipe = Recipe(SimpleNamespace(work=tmp_path, out=tmp_path, **how, **budget))
    train_all(recipe, answers)
    assert recipe.steps == [3 * 3], "batches of three, two and one answers"
