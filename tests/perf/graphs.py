"""What the runtime of GPUs takes: plain decoding against the memory's bandwidth, a drafter's step, the host's part.

    python -m tests.perf.graphs

The models have the shapes of real ones and random weights, which take as long. Printed are, for the target, the time of
plain decoding and its share of the floor, which is the time of reading all weights once, with the bandwidth that
reading a large tensor shows here; for the drafter, the time of a step within a draft; and of whole rounds (draft,
verification, acceptance) how long the device had nothing to do. ``--tiny`` takes small shapes, as a test of the script.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PretrainedConfig, Qwen2Config

from drafters.kinds.lm import LMDrafter
from drafters.models.decoder import Decoder, HubDecoder
from drafters.models.drafting import DraftOptions
from drafters.models.target import Target
from drafters.models.torch_decoder import TorchDecoder
from drafters.sampling import SamplingParams
from multidraft.bench.table import markdown
from multidraft.engine.verify import verify

LENGTH, CACHED, REPEATS = 6, 512, 30


@dataclass(frozen=True)
class Sizes:
    """The two models: an 8B target and a drafter of half a billion with 24 layers, or tiny ones."""

    target: PretrainedConfig
    drafter: PretrainedConfig


REAL = Sizes(
    LlamaConfig(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=8192,
    ),
    Qwen2Config(
        vocab_size=128256,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    ),
)
SHAPE = {"vocab_size": 200, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
TINY = Sizes(
    LlamaConfig(hidden_size=64, num_key_value_heads=2, max_position_embeddings=1024, **SHAPE),
    Qwen2Config(hidden_size=32, num_key_value_heads=2, max_position_embeddings=1024, **SHAPE),
)


def clock(call: Callable[[], object], device: torch.device, repeats: int = REPEATS) -> float:
    """Median seconds of a call, with the device waited for; the first calls, which record graphs, do not count."""
    spans = []
    for _ in range(repeats + 3):
        wait(device)
        begun = time.perf_counter()
        call()
        wait(device)
        spans.append(time.perf_counter() - begun)
    return sorted(spans[3:])[repeats // 2]


def wait(device: torch.device) -> None:
    """Until the device has nothing left to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def bandwidth(device: torch.device, size: int) -> float:
    """Bytes per second that are read when ``size`` bytes are summed up."""
    numbers = torch.ones(size // 4, dtype=torch.float32, device=device)
    return size / clock(numbers.sum, device)


def busy(call: Callable[[], object], device: torch.device) -> float | None:
    """Seconds of kernels within a call, by the profiler; ``None`` without a GPU."""
    if device.type != "cuda":
        return None
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        wait(device)
    return sum(event.self_device_time_total for event in profile.key_averages()) / 1e6


def rounds(target: Target, drafter: LMDrafter, prompt: Sequence[int], count: int) -> Callable[[], None]:
    """So many greedy rounds; the drafter's tokens are fed whatever the target makes of them."""
    generator, params = torch.Generator(target.device).manual_seed(0), SamplingParams(draft_length=LENGTH)

    def run() -> None:
        context = list(prompt)
        target.prefill(context)
        drafter.prepare(context)
        for _ in range(count):
            draft = drafter.propose(context, LENGTH, params, generator)
            verdict = verify(draft, target.score(draft), params, generator)
            target.accept(verdict.path, verdict.own)
            context += [*(draft.tokens[node] for node in verdict.path), verdict.own]

    return run


def measure(sizes: Sizes, device: torch.device, dtype: torch.dtype, *, library: bool) -> dict[str, str]:
    """All of it; ``library`` measures the library's own forward instead of ours."""

    def made(config: PretrainedConfig) -> tuple[torch.nn.Module, Decoder]:
        with device:
            model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
        return model, HubDecoder(model) if library else TorchDecoder(model, static=True)

    (model, decoder), (_, small) = made(sizes.target), made(sizes.drafter)
    weights = sum(p.nbytes for p in model.parameters()) - model.get_input_embeddings().weight.nbytes
    floor = weights / bandwidth(device, max(weights // 8, 1 << 20))
    prompt = [i % 100 for i in range(CACHED)]
    decoder.forward(prompt, 0, last=1)
    plain = clock(lambda: decoder.forward(prompt[:1], CACHED).argmax(dim=-1).tolist(), device)
    wide = clock(lambda: decoder.forward(prompt[: LENGTH + 1], CACHED).argmax(dim=-1).tolist(), device)
    small.forward(prompt, 0, last=1)
    vocab = int(sizes.target.vocab_size)

    def draft(length: int) -> float:
        options = DraftOptions(length, SamplingParams(), torch.Generator(device), vocab)
        return clock(lambda: small.draft(prompt[:1], CACHED, options), device)

    step = (draft(LENGTH + 1) - draft(1)) / LENGTH
    target, drafter = Target(model, decoder), LMDrafter("drafter", small, vocab)
    few, many = rounds(target, drafter, prompt, 2), rounds(target, drafter, prompt, 12)
    each = (clock(many, device, 5) - clock(few, device, 5)) / 10
    kernels = busy(many, device), busy(few, device)
    idle = "unknown without a GPU" if None in kernels else f"{1 - (kernels[0] - kernels[1]) / 10 / each:.0%}"  # type: ignore[operator]
    return {
        "plain decoding, ms a token": f"{1e3 * plain:.2f}",
        "floor (weights read once), ms": f"{1e3 * floor:.2f}",
        "share of the floor": f"{floor / plain:.0%}",
        f"verification of {LENGTH} tokens, ms": f"{1e3 * wide:.2f}",
        "drafter, ms a step": f"{1e3 * step:.2f}",
        f"round with {LENGTH} drafted tokens, ms": f"{1e3 * each:.2f}",
        "device idle within rounds": idle,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--tiny", action="store_true", help="small shapes, to see that the script runs")
    options = parser.parse_args(arguments)
    device, sizes = torch.device(options.device), TINY if options.tiny else REAL
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{name}, {options.dtype}, {'tiny shapes' if options.tiny else '8B target, 0.5B drafter with 24 layers'}\n")
    ours, theirs = (measure(sizes, device, getattr(torch, options.dtype), library=library) for library in (False, True))
    print(markdown(["", "ours", "transformers"], [[key, ours[key], theirs[key]] for key in ours]))


if __name__ == "__main__":
    main()
