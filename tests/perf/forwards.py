"""What forwards take on each runtime, and how much of a round is outside them.

    python -m tests.perf.forwards

The first table has the target and a drafter on ONNX Runtime, in float32 and with int8 weights, and on our forward in
PyTorch: milliseconds by tokens fed, on a cache of 150 positions, the 20 % quantile of 60. Below each stands what is the
least that the machine allows in float32: reading the weights once, or multiplying and adding, whichever takes longer,
at the speeds measured here with a tensor of the same size and with a large product. The second table has, by policy,
the share of the rounds' seconds that is outside the calls of ONNX Runtime, over the card's examples or the prompt
given.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import numpy as np
import onnxruntime
import torch

import multidraft as md
from drafters.kinds.lm import LMDrafter
from drafters.models.decoder import Decoder
from drafters.models.onnx_decoder import OnnxDecoder
from drafters.models.torch_decoder import TorchDecoder
from drafters.pool import Pool
from multidraft.bench.table import markdown

WIDTHS = (1, 2, 4, 8, 13, 16)
CACHED, REPEATS = 150, 60


def milliseconds(call: Callable[[], object]) -> float:
    """The 20 % quantile of ``REPEATS`` calls."""
    spans = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        call()
        spans.append(time.perf_counter() - begun)
    return float(np.quantile(spans, 0.2)) * 1e3


def least(model: torch.nn.Module) -> tuple[list[float], str]:
    """Milliseconds that the products of a forward take at least, for each of ``WIDTHS``, and the speeds that say so."""
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings()  # type: ignore[operator]
    tied = any(each is embedding for each in head.parameters())
    numbers = sum(each.numel() for each in model.parameters()) - (0 if tied else embedding.numel())
    read = torch.ones(numbers // 512, 512)
    reading = min(milliseconds(read.sum), milliseconds(lambda: read.mv(read[0])))
    square = torch.ones(1024, 1024)
    multiplying = milliseconds(lambda: square @ square) / square.numel() / 1024
    speeds = f"{numbers * 4 / reading / 1e6:.0f} GB/s, {2 / multiplying / 1e6:.0f} GFLOP/s"
    return [max(reading, numbers * width * multiplying) for width in WIDTHS], speeds


def by_width(decoder: Decoder) -> list[float]:
    """Milliseconds of a forward for each of ``WIDTHS``."""
    decoder.forward(list(range(CACHED)), 0, last=1)
    return [milliseconds(lambda width=width: decoder.forward(list(range(width)), CACHED)) for width in WIDTHS]  # type: ignore[misc]


def outside(pool: Pool, policy: str, prompts: Sequence[str]) -> float:
    """The share of the rounds' seconds that is outside ONNX Runtime, without each text's first round."""
    run, inside = onnxruntime.InferenceSession.run_with_iobinding, 0.0

    def timed(*arguments: object) -> None:
        nonlocal inside
        begun = time.perf_counter()
        run(*arguments)
        inside += time.perf_counter() - begun

    onnxruntime.InferenceSession.run_with_iobinding = timed
    try:
        within = seconds = 0.0
        for prompt in prompts:
            rounds = iter(md.stream(pool, prompt, policy, md.SamplingParams(256, draft_length=8)))
            next(rounds)
            inside = 0.0
            seconds += sum(round.seconds for round in rounds)
            within += inside
        return 1 - within / seconds
    finally:
        onnxruntime.InferenceSession.run_with_iobinding = run


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pool", default="pocket", help="a bundled pool or a card; target and drafter on ONNX Runtime")
    parser.add_argument("--drafter", default="general", help="the drafter measured (general)")
    parser.add_argument("--prompt", help="what the rounds are measured on (the card's examples)")
    options = parser.parse_args(arguments)
    pool = md.load_pool(options.pool)
    drafter = next(d for d in pool.drafters if d.name == options.drafter)
    assert isinstance(drafter, LMDrafter) and isinstance(drafter.model, OnnxDecoder)
    rows = []
    for name, model in (("target", pool.target.model), (drafter.name, drafter.model.model)):
        runtimes = {
            "ONNX Runtime": OnnxDecoder(model),
            "ONNX Runtime, int8": OnnxDecoder(model, int8=True),
            "PyTorch": TorchDecoder(model),
        }
        for runtime, decoder in runtimes.items():
            with pool.lock if isinstance(decoder, OnnxDecoder) else nullcontext():  # torch's threads are as in decoding
                rows.append([name, runtime, *(f"{span:.2f}" for span in by_width(decoder))])
        spans, speeds = least(model)
        rows.append([name, f"least: {speeds}", *(f"{span:.2f}" for span in spans)])
    print(f"{torch.get_num_threads()} threads\n")
    print(markdown(["model", "runtime", *map(str, WIDTHS)], rows), "\n")
    prompts = [options.prompt] if options.prompt else [prompt for _, prompt in pool.examples]
    rows = []
    for policy in ("autoregressive", f"fixed:{drafter.name}", "rate-hedge"):
        outside(pool, policy, prompts)  # a warm-up
        rows.append([policy, f"{outside(pool, policy, prompts):.0%}"])
    print(markdown(["policy", "outside forwards"], rows))


if __name__ == "__main__":
    main()
