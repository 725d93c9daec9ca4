"""The model card of a trained pool: what its drafters can do, what they learnt from, and under which licence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import huggingface_hub
import yaml

from multidraft.bench.inspect import render_matrix
from multidraft.training.answers import Answer
from multidraft.training.plan import Plan, Shape, place

PAGE = """---
{head}
---

# Drafters for {target}

{description} Made by `python -m multidraft train` for multi-drafter speculative decoding: the
target's output stays exactly what it is, it only comes faster.

```python
import multidraft as md

pool = md.load_pool("FOLDER")  # where card.yaml lies
print(md.generate(pool, "…", policy="normal-hedge").text)
```

## Accepted tokens

Tokens per round (the target's own token counted) of each drafter on held-out prompts, {plan.evaluate} of each task at
most, greedy, drafts of {plan.draft_length}; `*` marks the best of a task.

{matrix}
{routing}
## Training

Self-distillation (MetaSD, arXiv 2604.05417, App. F.1): the target answered each training prompt at the temperatures
{plan.asking.listed}, with {plan.asking.max_new_tokens} tokens at most; {tokens:,} tokens in all. At each of them the
drafters learn its distribution. {start}

| task | training prompts | held-out prompts | answers |
|---|---|---|---|
{sizes}

| setting | value |
|---|---|
| budget of a drafter | {plan.minutes:g} minutes, {plan.epochs:g} epochs, whichever was over first |
| peak learning rate | {plan.lr:g}; of specialists that start from the generalist half |
| tokens of a step | {plan.batch_tokens:,} |
| seed | {plan.asking.seed} |
| dtype of the target | {plan.dtype} |

Licence of the target: {licence}. It may bind what is made from its answers, too.
"""


def model_card(
    plan: Plan,
    description: str,
    answers: Sequence[Answer],
    matrix: Mapping[str, dict[str, float]],
    routed: float | None,
    licence: str | None,
) -> str:
    """The README of a pool, in the form of the Hub.

    Args:
        matrix: mean accepted tokens by task and drafter.
        routed: share of held-out prompts that the router sends to their own task, where there is one.
        licence: of the target.
    """
    head: dict[str, Any] = {"library_name": "multidraft", "tags": ["speculative-decoding", plan.kind]}
    head |= {"base_model": plan.target.id} if plan.target.id else {}
    head |= {"license": licence} if licence else {}
    sizes = [
        f"| {name} | {len(task.train):,} | {len(task.heldout):,} | {sum(a.family == name for a in answers):,} |"
        for name, task in plan.tasks.items()
    ]
    routing = "" if routed is None else f"\nThe router sends {routed:.0%} of the held-out prompts to their own task.\n"
    return PAGE.format(
        plan=plan,
        head=yaml.safe_dump(head, sort_keys=False, allow_unicode=True).strip(),
        target=plan.target.id or Path(place(plan.target)).name,
        description=description,
        matrix=render_matrix(dict(matrix)),
        routing=routing,
        tokens=sum(len(answer.top_ids) for answer in answers),
        start=_start(plan),
        sizes="\n".join(sizes),
        licence=licence or "not known here; see its own page",
    )


def _start(plan: Plan) -> str:
    who = "The generalist starts" if len(plan.tasks) > 1 else "The drafter starts"
    rest = ", the specialists start from it" if len(plan.tasks) > 1 else ""
    if isinstance(plan.start, Shape):
        return f"{who} from new weights ({plan.start.layers} layers, width {plan.start.width}){rest}."
    if plan.start is None:
        return f"{who} as a new EAGLE-3 head{rest}."
    return f"{who} from `{plan.start.id or Path(place(plan.start)).name}`{rest}."


def licence_of(target: str) -> str | None:
    """The licence that the target's own model card names, where there is one to be read.

    Args:
        target: folder or Hub repository.
    """
    page = Path(target) / "README.md"
    try:
        card = huggingface_hub.ModelCard.load(page if Path(target).is_dir() else target)
    except Exception:  # none there, no network, or not in the form of a model card
        return None
    return str(card.data.license) if card.data.license else None
