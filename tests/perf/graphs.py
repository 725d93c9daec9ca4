"""What the runtime of GPUs takes: plain decoding against the memory's bandwidth, a drafter's step, the host's part.

    python -m tests.perf.graphs

The models have the shapes of real ones and random weights, which take as long. Printed are, as they are measured: the
target's forwards by tokens fed and cached, with the share of the floor, which is the time of reading all weights once,
with the bandwidth that reading a large tensor shows here; the drafter's step within a draft; whole rounds (draft,
verification, acceptance), and how long the device had nothing to do in them; several texts at once, drafted by one
model and each by one of its own; eight drafters judged together; and the library's own forwards. ``--tiny`` takes small
shapes, as a test of the script.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PretrainedConfig, Qwen2Config

from drafters.kinds.lm import LMDrafter
from drafters.models.decoder import Decoder, DraftOptions
from drafters.models.feeds import DraftFeed, Feed
from drafters.models.runtimes import HubDecoder
from drafters.models.target import Target
from drafters.models.torch_decoder import TorchDecoder, TorchGroup
from drafters.sampling import SamplingParams
from multidraft.engine.verify import verify

LENGTH, DRAFTERS = 6, 8
Figure = tuple[str, str]


@dataclass(frozen=True)
class Sizes:
    """The two models: an 8B target and a drafter of half a billion with 24 layers, or tiny ones; and how many tokens
    are cached."""

    target: PretrainedConfig
    drafter: PretrainedConfig
    cached: tuple[int, int]


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
    (500, 3900),
)
SHAPE = {"vocab_size": 200, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
TINY = Sizes(
    LlamaConfig(hidden_size=64, num_key_value_heads=2, max_position_embeddings=1024, **SHAPE),
    Qwen2Config(hidden_size=32, num_key_value_heads=2, max_position_embeddings=1024, **SHAPE),
    (100, 500),
)


def clock(call: Callable[[], object], device: torch.device, repeats: int = 20) -> float:
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


@dataclass(frozen=True)
class Bench:
    """What all measurements share."""

    sizes: Sizes
    device: torch.device
    dtype: torch.dtype
    repeats: int

    def made(self, config: PretrainedConfig, count: int = 1) -> list[torch.nn.Module]:
        with self.device:
            return [AutoModelForCausalLM.from_config(config, dtype=self.dtype).eval() for _ in range(count)]

    def clock(self, call: Callable[[], object], most: int = 100) -> float:
        return 1e3 * clock(call, self.device, min(self.repeats, most))

    @property
    def context(self) -> list[int]:
        return [i % 100 for i in range(max(self.sizes.cached))]

    def ours(self) -> Iterator[Figure]:
        (model,), (small, *others) = self.made(self.sizes.target), self.made(self.sizes.drafter, DRAFTERS)
        decoder = TorchDecoder(model, static=True)
        yield from self.forwards(model, decoder)
        yield from self.texts(decoder)
        drafter = TorchDecoder(small, static=True)
        yield from self.drafts(drafter)
        yield from self.whole_rounds(Target(model, decoder), drafter)
        yield from self.stacked(TorchGroup([small, *others], static=True), drafter)

    def library(self) -> Iterator[Figure]:
        (model,), (small,) = self.made(self.sizes.target), self.made(self.sizes.drafter)
        cached, decoder, drafter = min(self.sizes.cached), HubDecoder(model), HubDecoder(small)
        for each, name in ((decoder, "target"), (drafter, "drafter")):
            each.forward(self.context[:cached], 0, last=1)
            for width in (1, LENGTH + 1) if each is decoder else (1,):
                spent = self.clock(self.choosing(each, width, cached), 5)
                yield f"transformers: {name}, {width} tokens after {cached}", f"{spent:.2f} ms"

    def choosing(self, decoder: Decoder, width: int, cached: int) -> Callable[[], object]:
        return lambda: decoder.forward(self.context[:width], cached).argmax(dim=-1).tolist()

    def forwards(self, model: torch.nn.Module, decoder: TorchDecoder) -> Iterator[Figure]:
        weights = sum(p.nbytes for p in model.parameters()) - model.get_input_embeddings().weight.nbytes
        speed = bandwidth(self.device, max(min(weights, 1 << 32), 1 << 20))
        yield "memory", f"{speed / 1e9:.0f} GB/s read"
        yield "floor: weights read once", f"{1e3 * weights / speed:.2f} ms"
        for cached in self.sizes.cached:
            decoder.forward(self.context[:cached], 0, last=1)
            prompt = self.clock(lambda cached=cached: decoder.forward(self.context[:cached], 0, last=1), 3)
            yield f"prompt of {cached}", f"{prompt:.0f} ms"
            for width in (1, 8, 64):
                spent = self.clock(self.choosing(decoder, width, cached))
                share = f", {1e3 * weights / speed / spent:.0%} of the floor" * (width == 1)
                yield f"target, {width} tokens after {cached}", f"{spent:.2f} ms{share}"
        nodes, cached = 60, max(self.sizes.cached)
        mask = torch.ones(nodes, cached + nodes, dtype=torch.bool)
        mask[:, cached:] = torch.ones(nodes, nodes).tril().bool()
        positions = cached + torch.arange(nodes) // 8
        spent = self.clock(
            lambda: decoder.forward(self.context[:nodes], cached, positions=positions, mask=mask).argmax(-1).tolist()
        )
        yield f"target, a tree of {nodes} after {cached}", f"{spent:.2f} ms"

    def texts(self, decoder: TorchDecoder) -> Iterator[Figure]:
        member, cached = decoder.runs, min(self.sizes.cached)
        slots = [member.take_slot() for _ in range(16)]
        for slot in slots:
            member.run([Feed(slot, self.context[:cached], 0, 1)])
        for count in (1, 8, 16):
            feeds = [Feed(slot, [1], cached, 1) for slot in slots[:count]]
            spent = self.clock(
                lambda feeds=feeds: torch.stack([answer.logits.argmax(-1) for answer in member.run(feeds)]).tolist()
            )
            yield f"target, 1 token of each of {count} texts", f"{spent:.2f} ms"
        for slot in slots:
            member.release_slot(slot)

    def options(self, length: int) -> DraftOptions:
        return DraftOptions(length, SamplingParams(), torch.Generator(self.device), int(self.sizes.target.vocab_size))

    def drafts(self, drafter: TorchDecoder) -> Iterator[Figure]:
        cached = min(self.sizes.cached)
        drafter.forward(self.context[:cached], 0, last=1)
        one, more = (
            self.clock(lambda length=length: drafter.draft(self.context[:1], cached, self.options(length)))
            for length in (1, LENGTH + 1)
        )
        yield "drafter, a draft of one token", f"{one:.2f} ms"
        yield "drafter, each further token", f"{(more - one) / LENGTH:.2f} ms"

    def whole_rounds(self, target: Target, decoder: TorchDecoder) -> Iterator[Figure]:
        drafter = LMDrafter("drafter", decoder, int(self.sizes.target.vocab_size))
        prompt = self.context[: min(self.sizes.cached)]
        few, many = rounds(target, drafter, prompt, 2), rounds(target, drafter, prompt, 12)
        each = (self.clock(many, 5) - self.clock(few, 5)) / 10
        yield f"round with {LENGTH} drafted tokens", f"{each:.2f} ms"
        kernels = busy(many, self.device), busy(few, self.device)
        if None not in kernels:
            yield "device idle within rounds", f"{1 - 100 * (kernels[0] - kernels[1]) / each:.0%}"  # type: ignore[operator]

    def stacked(self, group: TorchGroup, alone: TorchDecoder) -> Iterator[Figure]:
        width, cached, context = 8, min(self.sizes.cached), self.context
        group.forward(context[:cached], [0] * DRAFTERS, last=1)
        alone.forward(context[:cached], 0, last=1)
        one = self.clock(self.choosing(alone, width, cached))
        ids, had = context[:cached] + context[:width], [cached] * DRAFTERS
        judged = self.clock(lambda: group.forward(ids, had, last=width).argmax(dim=-1).tolist())
        yield f"{DRAFTERS} drafters judged on {width} tokens", f"{judged:.2f} ms, {judged / one:.2f} times one"
        member = group.decoders[0].runs
        slots = [member.take_slot() for _ in range(DRAFTERS)]
        for slot in slots:
            member.stack.forward([Feed(slot, context[:cached], 0, 1)], None)
        feeds = [DraftFeed(slot, context[:1], cached, self.options(LENGTH)) for slot in slots]
        for name, whose in (("by one drafter", [0] * DRAFTERS), ("each by its own", range(DRAFTERS))):
            asked = list(zip(whose, feeds, strict=True))
            spent = self.clock(lambda asked=asked: member.drafts.run(asked))
            yield f"drafts of {LENGTH} for {DRAFTERS} texts, {name}", f"{spent:.2f} ms"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--tiny", action="store_true", help="small shapes, to see that the script runs")
    parser.add_argument("--repeats", type=int, default=20, metavar="N")
    options = parser.parse_args(arguments)
    device, sizes = torch.device(options.device), TINY if options.tiny else REAL
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{name}, {options.dtype}, {'tiny shapes' if options.tiny else '8B target, 0.5B drafter with 24 layers'}\n")
    bench = Bench(sizes, device, getattr(torch, options.dtype), options.repeats)
    for part in (bench.ours, bench.library):  # one after the other, as two targets may not fit the memory
        for key, value in part():
            print(f"{key:<45} {value}", flush=True)


if __name__ == "__main__":
    main()
