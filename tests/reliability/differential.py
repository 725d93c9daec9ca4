"""Differential testing: random models, drafters, policies, parameters and batches against plain decoding.

``python -m tests.reliability.differential --generations 10000`` takes about half an hour on one core. What is expected
comes from cacheless forwards of ``transformers``, so nothing of ours is compared with itself:

- greedy outputs: every token is the most probable one there, and the output ends where plain decoding would. A token
  that is not, but whose logit is within rounding of the largest, is a near-tie, told with its gap;
- sampled outputs: the tokens' randomised probability integral transforms are uniform, for every runtime, policy and
  drafter (chi-square); and outputs of three tokens are distributed as an enumeration of all of them says, for every
  drafter on every runtime (``--samples`` of each).

Worlds are pools of random weights. All that is random comes from ``--seed`` and the world's number, so that
``--world N`` does again what failed there.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from logging import getLogger
from pathlib import Path
from random import Random

import torch
from transformers.utils import logging

from drafters.pool import Pool
from drafters.sampling import SamplingParams, probabilities
from multidraft.engine.batch import Batch
from multidraft.engine.decoding import Decoding
from multidraft.engine.lossless import ROUNDING
from multidraft.engine.output import Output
from multidraft.policies import POLICIES
from storage.records import Generation
from tests import tiny
from tests.distributions import ALPHA, BINS, exact_outputs, p_value
from tests.reliability.worlds import World

PER_WORLD = 100
"""Generations in one world."""

SETTINGS = {
    "ucb": ["reward=be", "reward=bd", "start=router", "start=previous"],
    "thompson": ["start=previous", "reward=bd"],
    "normal-hedge": ["game=chunk", "loss=length,warmup=1,every=2", "loss=hybrid,warmup=2,every=3", "gamma=soft"],
    "hedge": ["loss=acceptance,every=2", "span=4"],
    "ada-normal-hedge": ["start=previous", "every=1"],
    "draft-all": ["nodes=6", "nodes=40"],
    "rate-hedge": ["start=router"],
    "sh": ["period=3"],
}
"""What policies are tried with beside their defaults."""


@dataclass(frozen=True)
class Case:
    """One text: what is decoded, and how."""

    prompt: list[int]
    policy: str
    params: SamplingParams
    seed: int
    output: Output


@dataclass
class Tally:
    """What was found.

    Attributes:
        problems: a line each.
        ties: gaps of near-ties.
        benched: texts in which a drafter failed and was left out.
        transforms: by what a sampled output was made with, how many transforms fell into each of ``BINS`` bins.
    """

    generations: int = 0
    tokens: int = 0
    accepted: int = 0
    batched: int = 0
    sampled: int = 0
    benched: int = 0
    problems: list[str] = field(default_factory=list)
    ties: list[float] = field(default_factory=list)
    transforms: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))

    def p_values(self) -> dict[str, float]:
        """Of the transforms' chi-square tests, where there are enough of them."""
        uniform = dict.fromkeys(range(BINS), 1 / BINS)
        return {what: p_value(counts, uniform) for what, counts in self.transforms.items() if counts.total() >= 200}


def policy_of(random: Random, names: list[str]) -> str:
    """A random spec for a pool with these drafters."""
    name = random.choice(sorted(name for name, policy in POLICIES.items() if policy.live))
    if name == "fixed" or (name == "ucb-length" and random.random() < 0.5):
        return f"{name}:{random.choice(names)}" if name == "fixed" else f"{name}:drafter={random.choice(names)}"
    options = ["", *SETTINGS.get(name, [])]
    chosen = random.choice(options)
    return f"{name}:{chosen}" if chosen else name


def case_of(random: Random, names: list[str]) -> Case:
    """A random text for a pool with these drafters."""
    prompt = [random.randrange(1, tiny.VOCAB) for _ in range(random.randint(1, random.choice([4, 20, 62])))]
    greedy = random.random() < 0.6
    params = SamplingParams(
        max_new_tokens=random.choice([1, 2, random.randint(3, 30), 64]),
        temperature=0.0 if greedy else random.choice([0.3, 1.0, 2.5]),
        top_p=random.choice([1.0, 1.0, 0.9, 0.5]),
        top_k=random.choice([0, 0, 1, 3, 8]),
        draft_length=random.choice([1, 2, 4, 7, 20]),
    )
    letters = tiny.CHARACTERS[1:]
    stop = ["".join(random.choices(letters, k=random.randint(1, 3))) for _ in range(random.choice([0, 0, 1, 2]))]
    after = random.choice([0, 0, random.randint(1, 20)])
    output = Output(tuple(stop), random.random() < 0.3, random.choice([None, None, 2]), stop_after=after)
    return Case(prompt, policy_of(random, names), params, random.randrange(2**40), output)


def part_of(pool: Pool, random: Random) -> Pool:
    """The pool with some of its drafters, sometimes with others' stop tokens, or without trees."""
    drafters = random.sample(pool.drafters, random.choice([1, 2, 3, 5]))
    stop = frozenset(random.sample(range(tiny.VOCAB), random.choice([0, 0, 1, 2])))
    part = Pool(pool.target, drafters, pool.tokenizer, pool.card, stop_ids=stop, router=pool.router)
    part.target.trees = pool.target.trees and random.random() < 0.9
    return part


def end_of(pool: Pool, case: Case, ids: list[int]) -> tuple[int, str]:
    """How many of these tokens plain decoding would have written, and how it would have ended."""
    passed = len(pool.tokenizer.decode(ids[: case.output.stop_after], skip_special_tokens=True))
    for count in range(1, len(ids) + 1):
        text = pool.tokenizer.decode(ids[:count], skip_special_tokens=True)
        if any(stop in text[max(passed - len(stop) + 1, 0) :] for stop in case.output.stop):
            return count, "stopped"
        if ids[count - 1] in pool.stop_ids and not case.output.ignore_end:
            return count, "stopped"
    if len(ids) == case.params.max_new_tokens:
        return len(ids), "completed"
    return pool.target.window - len(case.prompt), "context_limit"


def problems_of(world: World, pool: Pool, case: Case, out: Generation, tally: Tally, random: Random) -> Iterator[str]:
    """What is wrong with an output; what is right is counted."""
    ids = out.token_ids
    if out.status == "error":
        yield f"failed: {out.error}"
        return
    count, status = end_of(pool, case, ids)
    if (len(ids), out.status) != (count, status):
        yield f"{len(ids)} tokens, {out.status}; plain decoding has {count}, {status}"
    logits = tiny.logits_of(pool.target.model, [*case.prompt, *ids])[len(case.prompt) - 1 : -1].float().cpu()
    chosen = torch.tensor(ids)[:, None]
    if case.params.greedy:
        gaps = (logits.amax(dim=1) - logits.gather(1, chosen)[:, 0]).tolist()
        for position, (gap, best) in enumerate(zip(gaps, logits.argmax(dim=1).tolist(), strict=True)):
            if best != ids[position] and gap <= ROUNDING["float32"]:
                tally.ties.append(gap)
            elif best != ids[position]:
                yield f"token {position} is {ids[position]}, plain decoding has {best}; gap {gap:.3g}"
                return
        return
    tally.sampled += 1
    p = probabilities(logits, case.params).double()
    own = p.gather(1, chosen)
    if not (own > 0).all():
        yield f"token {int((own <= 0).nonzero()[0, 0])} has no probability"
        return
    before = p.where(p > own, 0.0).sum(dim=1)
    places = [
        min(int((b + random.random() * o) * BINS), BINS - 1)
        for b, o in zip(before.tolist(), own[:, 0].tolist(), strict=True)
    ]
    for what in (f"runtime {world.runtime}", f"policy {case.policy.partition(':')[0]}", f"drafters {_kind(pool)}"):
        tally.transforms[what].update(places)


def _kind(pool: Pool) -> str:
    return pool.drafters[0].name if len(pool.drafters) == 1 else "several"


def decoded(pool: Pool, cases: list[Case]) -> list[Generation]:
    """Decode some texts, several of them at once."""
    decodings = [Decoding(pool, c.prompt, c.policy, c.params, c.seed, output=c.output) for c in cases]
    if len(decodings) == 1:
        return [decodings[0].run()]
    with Batch(pool, len(decodings)) as batch:
        return batch.run(decodings)


def run_world(seed: int, number: int, generations: int, tally: Tally) -> None:
    """Try so many random texts in one world."""
    random = Random(f"{seed} {number}")
    with tempfile.TemporaryDirectory() as folder:
        world = World(random.randrange(10**6), Path(folder))
        trees, done = world.pool.target.trees, 0
        while done < generations:
            world.pool.target.trees = trees
            pool = part_of(world.pool, random)
            names = [drafter.name for drafter in pool.drafters]
            cases = [case_of(random, names) for _ in range(random.choice([1, 1, 1, random.randint(2, 6)]))]
            try:
                outputs = decoded(pool, cases)
            except Exception as error:
                tally.problems.append(_problem(seed, number, world, names, cases[0], f"raised {error!r}"))
                outputs = []
            for case, out in zip(cases, outputs, strict=False):
                tally.tokens += len(out.token_ids)
                tally.benched += bool(out.benched)
                tally.problems += [
                    _problem(seed, number, world, names, case, f"{name} failed: {why}")
                    for name, why in out.benched.items()
                    if name != "hostile"
                ]
                tally.accepted += sum(r.accepted for r in out.rounds)
                for problem in problems_of(world, pool, case, out, tally, random):
                    tally.problems.append(_problem(seed, number, world, names, case, problem))
            tally.generations += len(cases)
            tally.batched += len(cases) if len(cases) > 1 else 0
            done += len(cases)


def _problem(seed: int, number: int, world: World, names: list[str], case: Case, what: str) -> str:
    again = f"python -m tests.reliability.differential --seed {seed} --world {number}"
    return f"{world.family} on {world.runtime}, drafters {', '.join(names)}, {case}: {what}\n    {again}"


ENUMERATED = SamplingParams(3, temperature=1.2, top_k=6, draft_length=3)


def enumerate_world(seed: int, runtime: str, samples: int, names: Collection[str] = ()) -> dict[str, float]:
    """p-values by drafter (of ``names``, by default all): are outputs of three tokens distributed as the enumeration of
    all says?"""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        pool = World(Random(f"{seed} {runtime}").randrange(10**6), Path(folder), runtime).pool
        prompt = tiny.prompts(1, seed, shortest=8, longest=8)[0]
        exact = exact_outputs(pool.target.model, prompt, ENUMERATED)
        for drafter in [drafter for drafter in pool.drafters if not names or drafter.name in names]:
            part = Pool(pool.target, [drafter], pool.tokenizer, pool.card)
            counts = Counter(
                tuple(Decoding(part, prompt, f"fixed:{drafter.name}", ENUMERATED, sample).run().token_ids)
                for sample in range(samples)
            )
            found[f"{drafter.name} on {runtime}"] = p_value(counts, exact)
    return found


def report(tally: Tally, exact: Mapping[str, float], seconds: float) -> bool:
    """Print what was found; returns whether all is well."""
    transforms = tally.p_values()
    low = {what: p for what, p in {**transforms, **exact}.items() if p < ALPHA}
    print(f"{tally.generations:,} generations, {tally.tokens:,} tokens of which {tally.accepted:,} accepted drafts,")
    print(f"{tally.sampled:,} sampled, {tally.batched:,} in batches, {tally.benched:,} with a drafter that failed:")
    print(f"{len(tally.problems)} mismatches")
    ties = f", gaps up to {max(tally.ties):.1e}" if tally.ties else ""
    print(f"near-ties decided by rounding: {len(tally.ties)}{ties} (tolerance {ROUNDING['float32']:.0e})")
    for what, values in (("transforms", transforms), ("enumerations", exact)):
        if values:
            print(f"{what}: {len(values)} chi-square tests, the smallest p-value {min(values.values()):.2g}")
    for what, p in low.items():
        print(f"NOT the target's distribution (p = {p:.2g}): {what}")
    for problem in tally.problems:
        print("MISMATCH", problem)
    print(f"{seconds:.0f} seconds")
    return not low and not tally.problems


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generations", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=0, help="of each drafter on each runtime, to be enumerated")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--world", type=int, help="this world alone")
    options = parser.parse_args(arguments)
    logging.disable_progress_bar()
    getLogger("drafters.benched").setLevel("ERROR")  # of drafters that fail on purpose
    torch.set_num_threads(1)
    tally, begun, exact = Tally(), time.monotonic(), dict[str, float]()
    if options.world is not None:
        run_world(options.seed, options.world, PER_WORLD, tally)
    else:
        for number in range(-(-options.generations // PER_WORLD)):
            run_world(options.seed, number, min(PER_WORLD, options.generations - number * PER_WORLD), tally)
            print(
                f"world {number}: {tally.generations:,}, {len(tally.problems)} mismatches", file=sys.stderr, flush=True
            )
        for runtime in tiny.RUNTIMES if options.samples else ():
            exact |= enumerate_world(options.seed, runtime, options.samples)
    return 0 if report(tally, exact, time.monotonic() - begun) else 1


if __name__ == "__main__":
    sys.exit(main())
