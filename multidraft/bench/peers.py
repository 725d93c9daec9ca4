"""Other engines on the same prompts, interleaved with our runs: what ``bench --peers`` compares policies with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from drafters.pool import Pool
from drafters.sampling import SamplingParams
from multidraft.bench.engines import Output, Peer
from multidraft.bench.runner import Entry, rotated
from multidraft.bench.table import markdown, shown
from storage.figures import FEWEST_TOKENS, ratio_of_totals, value_of_totals
from storage.records import FINISHED, PLAIN, Generation


@dataclass(frozen=True)
class PeerRun:
    """A peer's output beside our runs of the same prompt.

    Attributes:
        prompt: its text: two suites may have the same ids.
        ours: by policy, the run.
    """

    peer: str
    prompt: str
    output: Output
    ours: dict[str, Entry]

    @property
    def equal(self) -> bool:
        """Whether the output is that of our autoregressive decoding."""
        return self.output.token_ids == self.ours[PLAIN].run.generation.token_ids


def beside_peers(
    entries: Iterable[Entry], pool: Pool, peers: Sequence[Peer], params: SamplingParams, done: list[PeerRun]
) -> Iterator[Entry]:
    """``entries`` as they come; after those of each prompt the peers decode it, in an order that rotates.

    Args:
        done: what the peers' runs are appended to; prompts that our autoregressive decoding could not answer, or of
            which it made fewer than ``FEWEST_TOKENS``, are left to us.
    """
    for turn, ((item, _), group) in enumerate(groupby(entries, key=lambda entry: (entry.item, entry.repeat))):
        ours: dict[str, Entry] = {}
        for entry in group:
            ours[entry.policy] = entry
            yield entry
        plain = ours[PLAIN].run.generation
        if plain.status not in FINISHED or len(plain.token_ids) < FEWEST_TOKENS:
            continue
        ids = pool.encode(item.prompt)
        most = min(params.max_new_tokens, pool.target.window - len(ids))
        for peer in rotated(peers, turn):
            if not turn:
                peer.generate(ids, min(most, 8))  # a warm-up that is not counted
            done.append(PeerRun(peer.name, item.prompt, peer.generate(ids, most), ours))


def summary_of_peers(runs: Sequence[PeerRun]) -> dict[str, Any]:
    """By peer: tokens per second of decoding and of the whole request, outputs that are equal to ours, and by policy
    how many times as fast it is as the peer, with 95 % intervals over prompts. Rates are ratios of totals in which each
    distinct prompt counts once, as everywhere."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(run.peer for run in runs):
        own = [run for run in runs if run.peer == name]
        prompts, outputs = [run.prompt for run in own], [run.output for run in own]
        tokens, seconds = [len(o.token_ids) for o in outputs], [o.seconds for o in outputs]
        after_first = [count - o.first for count, o in zip(tokens, outputs, strict=True)]
        decoding = [o.seconds - o.prefill_seconds for o in outputs]
        found[name] = {
            "prompts": len(set(prompts)),
            "equal": sum(run.equal for run in own),
            "runs": len(own),
            "tokens": sum(tokens),
            "tokens_per_second": value_of_totals(after_first, decoding, prompts),
            "request_tokens_per_second": value_of_totals(tokens, seconds, prompts),
            "prefill_seconds": sum(o.prefill_seconds for o in outputs),
            "seconds": sum(seconds),
            "policies": {policy: _times_as_fast(own, policy) for policy in own[0].ours},
        }
    return found


def _times_as_fast(runs: Sequence[PeerRun], policy: str) -> dict[str, Any]:
    """Speed of our decoding, and of our whole requests, over those of a peer: ratios of totals, both per token."""
    ours = [run.ours[policy].run.generation for run in runs]

    def ratio(per_token: Callable[[Output], float], seconds: Callable[[Generation], float]) -> dict[str, Any] | None:
        theirs = [per_token(run.output) * len(g.token_ids) for run, g in zip(runs, ours, strict=True)]
        found = ratio_of_totals(theirs, map(seconds, ours), [run.prompt for run in runs])
        return {"value": found.value, "interval": found.interval and list(found.interval)} if found else None

    return {
        "decode": ratio(
            lambda o: (o.seconds - o.prefill_seconds) / max(len(o.token_ids) - o.first, 1), attrgetter("seconds")
        ),
        "request": ratio(lambda o: o.seconds / len(o.token_ids), attrgetter("request_seconds")),
    }


def render_peers(summary: dict[str, Any]) -> str:
    """A Markdown table of :func:`summary_of_peers`."""
    policies = list(next(iter(summary.values()))["policies"])
    rows = []
    for name, figures in summary.items():
        ratios = []
        for policy in policies:
            of = figures["policies"][policy]
            ratios.append(
                " / ".join(shown(of[kind] and of[kind]["value"], "{:.2f}x") for kind in ("decode", "request"))
            )
        speeds = [shown(figures[key], "{:.0f}") for key in ("tokens_per_second", "request_tokens_per_second")]
        rows.append([name, *speeds, f"{figures['equal']}/{figures['runs']}", *ratios])
    head = ["engine", "tokens/s", "whole request", "equal outputs", *(f"{policy} against it" for policy in policies)]
    return markdown(head, rows)
