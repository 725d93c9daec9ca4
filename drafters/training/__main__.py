"""Retrain the pocket pool: ``python -m drafters.training STAGE``."""

from __future__ import annotations

import argparse
from pathlib import Path

from transformers import AutoTokenizer

from drafters.training.data import Mixture
from drafters.training.pretrain import FAMILY_WEIGHTS, train_target
from drafters.training.tokenizer import train_tokenizer

VOCAB_SIZE = 4096


def main() -> None:
    """Parse the command line and run one stage."""
    parser = argparse.ArgumentParser(prog="python -m drafters.training", description=__doc__)
    parser.add_argument("stage", choices=["tokenizer", "target"])
    parser.add_argument("--pool", type=Path, default=Path("drafters/pocket"), help="folder of the pool's weights")
    parser.add_argument("--work", type=Path, default=Path("runs/pocket"), help="checkpoints and generated data")
    parser.add_argument("--minutes", type=float, default=60.0, help="time budget of the stage")
    parser.add_argument("--tokens", type=float, default=float("inf"), help="token budget of the stage")
    parser.add_argument("--gsm8k", type=Path, help="gsm8k_train.jsonl, a spice of real text where it is at hand")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    if options.stage == "tokenizer":
        mixture = Mixture(FAMILY_WEIGHTS, seed=1, gsm8k=options.gsm8k)
        examples = (mixture.draw() for _ in range(40_000))
        train_tokenizer((f"{e.prompt}\n{e.completion}" for e in examples), VOCAB_SIZE, options.pool / "target")
    else:
        tokenizer = AutoTokenizer.from_pretrained(options.pool / "target")
        train_target(
            tokenizer,
            options.minutes,
            options.pool / "target",
            tokens=options.tokens,
            checkpoint=options.work / "target.pt",
            gsm8k=options.gsm8k,
            device=options.device,
        )


if __name__ == "__main__":
    main()
