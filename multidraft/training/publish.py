"""A finished training as a pool: its card, its router, what it can do; and all of it on the Hub."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import huggingface_hub
import yaml
from transformers import PreTrainedTokenizerBase

from drafters.card import Card
from drafters.errors import TrainingError, first_line
from drafters.pool import load_pool
from drafters.router import Router
from drafters.sampling import SamplingParams
from drafters.source import Source
from multidraft.bench.inspect import accepted_by_task
from multidraft.bench.suites import SuiteItem
from multidraft.training.answers import Answer
from multidraft.training.model_card import licence_of, model_card
from multidraft.training.plan import Plan, context_window, place
from multidraft.training.prompts import UNTRAINED
from multidraft.training.work import write_text, writing

Matrix = dict[str, dict[str, float]]


def finish(plan: Plan, tokenizer: PreTrainedTokenizerBase, answers: list[Answer], log: Callable[[str], None]) -> Matrix:
    """Write card, router and model card into ``plan.out``, and measure the pool on held-out prompts.

    Returns:
        Mean accepted tokens by task and drafter.
    """
    hit = train_router(plan) if len(plan.tasks) > 1 else None
    content = card_of(plan, context_window(plan))
    Card.model_validate(content)
    write_text(plan.card, as_yaml(content))
    log("measuring the drafters on held-out prompts")
    matrix = measure(plan)
    licence = licence_of(place(plan.target))
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
    """Whether no drafter accepts more tokens than before its training, as far as two decimals tell.

    New weights accept none; with the target's own that is 1 a round.
    """
    return all(round(mat, 2) <= round(row.get(UNTRAINED, 1.0), 2) for row in matrix.values() for mat in row.values())


def check_login(target: str | None) -> None:
    """Raise :class:`TrainingError` where nothing could be pushed: better now than after hours of training."""
    if target is None:
        raise TrainingError("--push needs a target given by its name on the Hub: the card has to say where it is")
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
