"""Run as each of two processes: they must train as one would, and then train a pool together.

Arguments: a folder to write what came out, then those of ``python -m multidraft``.
"""

import sys
from contextlib import redirect_stdout
from pathlib import Path

import torch
from torch import nn

from multidraft.__main__ import main
from multidraft.training.loop import Budget, train
from multidraft.training.processes import ALONE, Processes


def trained(shares, processes):
    """A linear map after ten steps, each on one batch of each share."""
    torch.manual_seed(0)
    model = nn.Linear(4, 4)

    def batches():
        step = 0
        while True:
            for share in shares:
                generator = torch.Generator().manual_seed(100 * share + step)
                x = torch.randn(8, 4, generator=generator)
                yield x, x.flip(1)
            step += 1

    def loss_of(batch):
        return nn.functional.mse_loss(model(batch[0]), batch[1]), 8

    budget = Budget(10, tokens=160)
    train(model, batches(), loss_of, budget, 0.05, accumulate=len(shares), processes=processes)
    return model.weight.detach()


if __name__ == "__main__":
    torch.set_num_threads(1)
    processes = Processes.join("cpu")
    with redirect_stdout(None):
        ours, alone = trained([processes.rank], processes), trained([0, 1], ALONE)
    torch.testing.assert_close(ours, alone, rtol=1e-4, atol=1e-5)
    (Path(sys.argv[1]) / f"agreed-{processes.rank}").write_text(str(processes.count))
    sys.exit(main(sys.argv[2:]))
