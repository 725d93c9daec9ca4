"""Would several drafters in one round pay? ``rate-hedge`` with and without unions of two drafts, by replay.

    python -m multidraft bench stream.jsonl --policies round-robin --max-new-tokens 256 --db runs.db
    python -m tests.perf.unions runs.db general+lookup:4 suffix+rest:12

In a round of ``A+B:n`` both drafters draft, B up to ``n`` tokens, and the target verifies the union of both drafts as a
tree: as many tokens are accepted as of the better one. Drafts share the nodes that both have right; all others are
counted for each. The unions named are further arms, learnt like drafters, of the texts of a history, which begin cold
and with what those before them taught, the router being no part of it.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from drafters.base import Acceptances
from multidraft.bench.table import markdown
from multidraft.replay.experiment import as_traffic
from multidraft.replay.recorded import Recorded, recorded_texts, texts_with_costs
from storage.figures import ratio_of_totals
from tests.runs import result_of

SPECS = ("rate-hedge:start=cold", "rate-hedge:start=traffic")


def with_union(text: Recorded, first: str, second: str, most: int) -> Recorded:
    """The text, had its pool one more drafter: both of these, the second up to ``most`` tokens."""
    table, costs, names = text.table, text.costs, text.drafters
    one, other = names.index(first), names.index(second)
    shorter = np.minimum(table.drafted[other], most)
    accepted = np.minimum(table.accepted[other], most)
    nodes = table.nodes[other] * shorter / np.maximum(table.drafted[other], 1)
    shared = np.minimum(table.accepted[one], accepted)
    union = (
        np.maximum(table.accepted[one], accepted),
        np.maximum(table.drafted[one], shorter),
        table.nodes[one] + np.rint(nodes).astype(int) - shared,
    )
    start = np.zeros(len(names)) if costs.draft_start is None else costs.draft_start
    width = np.ones(len(names)) if costs.width is None else costs.width
    goes_on = np.ones(len(names)) if costs.overrun is None else costs.overrun
    second_drafts = start[other] + costs.draft_step[other] * np.maximum(shorter, 1).mean()
    together = replace(
        costs,
        draft_step=np.append(costs.draft_step, costs.draft_step[one]),
        catch_up=np.append(costs.catch_up, costs.catch_up[one] + costs.catch_up[other]),
        draft_start=np.append(start, start[one] + second_drafts),
        overrun=np.append(goes_on, goes_on[one]),
        width=np.append(width, union[2].sum() / max(union[1].sum(), 1)),
    )
    scores = replace(
        text.run.scores,
        acceptance=Acceptances(*(np.vstack([rows, row]) for rows, row in zip(table, union, strict=True))),
        suitability=None,
    )
    generation = replace(text.run.generation, drafters=(*names, f"{first}+{second}:{most}"))
    return Recorded(replace(text.run, generation=generation, scores=scores), together)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("history", type=Path)
    parser.add_argument("unions", nargs="+", help="A+B:n; those joined by commas are tried together")
    options = parser.parse_args(arguments)
    texts = texts_with_costs(recorded_texts(options.history), options.history)[::-1]
    texts = [text for text in texts if text.run.conditions == texts[-1].run.conditions]
    tokens, drafters = sum(text.tokens for text in texts), len(texts[0].drafters)
    usual, rows = result_of(as_traffic(texts, SPECS)), list[Sequence[str]]()
    for together in options.unions:
        wide = texts
        for union in together.split(","):
            (pair, most) = union.split(":")
            wide = [with_union(text, *pair.split("+"), int(most)) for text in wide]
        found = result_of(as_traffic(wide, SPECS))
        for spec in SPECS:
            ratio = ratio_of_totals([p.seconds or 0.0 for p in usual[spec]], [p.seconds or 0.0 for p in found[spec]])
            assert ratio
            played = [arm for p in found[spec] for arm in p.arms]
            share = sum(arm >= drafters for arm in played) / len(played)
            rounds = [tokens / sum(p.rounds for p in of[spec]) for of in (usual, found)]
            cells = (f"{share:.0%}", f"{rounds[0]:.2f}", f"{rounds[1]:.2f}")
            rows.append((together, spec, f"{ratio.value:.3f} ({ratio.low or 0:.3f}–{ratio.high or 0:.3f})", *cells))
    print(f"{len(texts)} texts of {texts[0].run.conditions.pool}\n")
    print(markdown(["with", "policy", "times as fast", "of the rounds", "tokens per round without", "with"], rows))


if __name__ == "__main__":
    main()
