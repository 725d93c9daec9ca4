"""A finished training as a pool: its card, its router, its model card; and all of it on the Hub."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import huggingface_hub
import yaml

from drafters.card import Card
from drafters.errors import TrainingError, first_line, quoted
from drafters.pool import load_pool
from drafters.router import Router
from drafters.sampling import SamplingParams
from drafters.source import Source
from multidraft.bench.inspect import accepted_by_task, render_matrix
from multidraft.bench.suites import SuiteItem
from multidraft.training.answers import Answer
from multidraft.training.plan import Plan, Shape, context_window, place
from multidraft.training.prompts import UNTRAINED
from multidraft.training.work import write_text, writing

Matrix = dict[str, dict[str, float]]


def finish(plan: Plan, answers: list[Answer]) -> Matrix:
    """Write card, router and model card into ``plan.out``, and measure the pool on held-out prompts.

    Returns:
        Mean accepted tokens by task and drafter.
    """
    hit = train_router(plan) if len(plan.tasks) > 1 else None
    content = card_of(plan, context_window(plan))
    Card.model_validate(content)
    write_text(plan.card, as_yaml(content))
    print("measuring the drafters on held-out prompts", flush=True)
    matrix, licence = measure(plan), licence_of(place(plan.target))
    write_text(plan.out / "README.md", model_card(plan, content["description"], answers, matrix, hit, licence))
    return matrix


def as_yaml(content: dict[str, Any]) -> str:
    """The text of a card."""
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120))


def card_of(plan: Plan, context: int) -> dict[str, Any]:
    """The pool's card, with drafters beside it, for contexts of so many tokens."""
    name = re.sub(r"[^a-z0-9_.-]+", "-", plan.out.resolve().name.lower()).strip("-") or "drafters"
    kind = "Small language models" if plan.kind == "lm" else "EAGLE-3 heads"
    return {
        "name": name,
        "title": f"{kind} for {Path(place(plan.target)).name}",
        "description": f"{kind}, distilled from the target's own answers: {', '.join(plan.drafters)}.",
        "target": plan.target.model_dump(exclude_none=True),
        "dtype": plan.dtype,
        "context_window": context,
        "draft_length": plan.draft_length,
        **plan.chat_form(),
        **({"router": "router"} if len(plan.tasks) > 1 else {}),
        "drafters": [{"name": name, "kind": plan.kind, "path": name} for name in plan.drafters],
        "examples": [{"task": name, "prompt": task.heldout[0]} for name, task in plan.tasks.items()],
    }


def train_router(plan: Plan) -> float:
    """Train the router on the training prompts; returns the share of held-out ones that it sends to their task."""
    asked = [(prompt, name) for name, task in plan.tasks.items() for prompt in task.train]
    router = Router.train([prompt for prompt, _ in asked], [{name} for _, name in asked])
    with writing(plan.out / "router"):
        router.save(plan.out / "router")
    heldout = [(name, router.probabilities(prompt)) for name, task in plan.tasks.items() for prompt in task.heldout]
    return mean(max(likely, key=likely.__getitem__) == name for name, likely in heldout)


def measure(plan: Plan) -> Matrix:
    """Mean accepted tokens of every drafter of the finished pool on held-out prompts: ``{task: {drafter: MAT}}``.

    The model that the drafters started from is measured with them, as :data:`~multidraft.training.prompts.UNTRAINED`.
    """
    card = plan.card
    if isinstance(plan.start, Source):
        content = card_of(plan, context_window(plan))
        content["router"] = None
        for entry in content["drafters"]:
            entry["path"] = str(plan.out.resolve() / entry["path"])
        content["drafters"].append({"name": UNTRAINED, "kind": "lm", **plan.start.model_dump(exclude_none=True)})
        card = plan.work / "measured.yaml"
        write_text(card, as_yaml(content))
    pool = load_pool(card, device=plan.device)
    room = pool.target.window - plan.asking.max_new_tokens
    items = [
        SuiteItem(f"{name}-{i}", prompt, name)
        for name, task in plan.tasks.items()
        for i, prompt in enumerate(task.heldout[: plan.evaluate])
        if len(pool.encode(prompt)) <= room
    ]
    params = SamplingParams(max_new_tokens=plan.asking.max_new_tokens, draft_length=plan.draft_length)
    return accepted_by_task(pool, items, params)


def learnt_nothing(matrix: Matrix) -> bool:
    """Whether no drafter accepts more tokens than before its training, as far as two decimals tell; not where no prompt
    could be measured on.

    New weights have none accepted: with the target's own token that is 1 per round.
    """
    found = [(mat, row.get(UNTRAINED, 1.0)) for row in matrix.values() for mat in row.values()]
    return bool(found) and all(round(mat, 2) <= round(before, 2) for mat, before in found)


def check_push(repository: str | None, private: bool, target: str | None) -> None:
    """Raise :class:`TrainingError` for options that nothing could be pushed with."""
    if repository is None:
        if private:
            raise TrainingError("--private makes the repositories of --push private; give --push too")
        return
    if target is None:
        raise TrainingError("--push needs a target given by its name on the Hub: the card has to say where it is")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository, re.ASCII):
        raise TrainingError(f"--push must be USER/NAME, the repository on the Hub, got {quoted(repository)}")


def check_login() -> None:
    """Raise :class:`TrainingError` where nobody is logged in: better now than after hours of training."""
    try:
        huggingface_hub.HfApi().whoami()
    except Exception as error:
        raise TrainingError(f"--push: not logged in to the Hub ({first_line(error)}); run: hf auth login") from None


def push(folder: Path, repository: str, private: bool = False) -> str:
    """Upload a finished pool: card, router and model card to ``repository``, each drafter to ``repository-NAME``.

    Returns:
        The repository's address.

    Raises:
        TrainingError: the Hub refuses.
    """
    api = huggingface_hub.HfApi()
    content = yaml.safe_load((folder / "card.yaml").read_text(encoding="utf-8"))
    try:
        for entry in content["drafters"]:
            there = f"{repository}-{entry['name']}"
            api.create_repo(there, private=private, exist_ok=True)
            commit = api.upload_folder(
                repo_id=there, folder_path=folder / entry.pop("path"), commit_message=f"Drafter of {repository}"
            )
            entry |= {"id": there, "revision": commit.oid}
        Card.model_validate(content)
        api.create_repo(repository, private=private, exist_ok=True)
        api.upload_file(path_or_fileobj=as_yaml(content).encode(), path_in_repo="card.yaml", repo_id=repository)
        for file in sorted([folder / "README.md", *folder.glob("router/*")]):
            api.upload_file(path_or_fileobj=file, path_in_repo=file.relative_to(folder).as_posix(), repo_id=repository)
    except Exception as error:
        raise TrainingError(
            f"cannot push to {repository}: {first_line(error)}. The pool is whole in {folder}: give the same command "
            "again"
        ) from error
    return f"https://huggingface.co/{repository}"


PAGE = """---
{head}
---

# Drafters for {target}

{description} Made by `python -m multidraft train` for multi-drafter speculative decoding: the
target's output stays exactly what it is, it only comes faster.

```python
import multidraft as md

pool = md.load_pool("FOLDER")  # where card.yaml lies
print(md.generate(pool, "…", policy="rate-hedge").text)
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
| budget of a drafter | --minutes {plan.minutes:g}, --epochs {plan.epochs:g}, whichever was over first |
| peak learning rate | {plan.lr:g}; of specialists that start from the generalist half |
| tokens of a step | {plan.batch_tokens:,} |
| seed | {plan.asking.seed} |
| dtype of the target | {plan.dtype} |

Licence of the target: {licence}. It may bind what is made from its answers, too.
"""


def model_card(
    plan: Plan, description: str, answers: Sequence[Answer], matrix: Matrix, routed: float | None, licence: str | None
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
        matrix=render_matrix(matrix),
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
        return f"{who} from new weights (layers: {plan.start.layers}, width {plan.start.width}){rest}."
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
