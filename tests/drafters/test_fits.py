"""Prompts that no task of a pool fits are told from those that do."""

from __future__ import annotations

import random

import pytest

from drafters.card import find_card, load_card
from drafters.pool import Pool
from drafters.router import Router
from multidraft.bench.suites import load_suite
from multidraft.training.pocket.corpus.base import FAMILIES

GENERAL = (
    "What is the capital of France?",
    "Write a poem about the sea.",
    "Hello! Who are you?",
    "Explain quantum computing in simple terms.",
    "How do I cook rice?",
    "Tell me a joke about cats.",
    "Give me three tips for better sleep.",
    "What were the causes of the First World War?",
    "Which is larger, an elephant or a whale?",
    "Write an e-mail to my landlord about the broken heating.",
    "Who wrote Hamlet, and what is it about?",
    "What should I see in Rome in two days?",
    "Is it safe to eat raw mushrooms?",
    "Compose a slogan for a bicycle shop.",
    "Translate into French: Good morning, how are you?",
    "Describe the taste of a mango.",
    "What does photosynthesis do?",
    "Help me plan a birthday party for a child of six.",
)
"""Questions of no task of the pocket pool."""


@pytest.fixture(scope="module")
def pocket() -> Pool:
    """The pool as far as :meth:`Pool.fits` needs it: its card and its router."""
    pool = object.__new__(Pool)
    path = find_card("pocket")
    pool.card, _ = load_card(path)
    pool.router = Router.of_card(pool.card.router, path)
    return pool


def test_held_out_prompts_of_its_tasks_fit(pocket: Pool) -> None:
    rng = random.Random(7)
    prompts = [family.example(rng, "heldout").prompt for family in FAMILIES.values() for _ in range(40)]
    prompts += [item.prompt for item in load_suite("pocket").items]
    refused = [prompt for prompt in prompts if not pocket.fits(prompt)]
    assert len(refused) <= 0.02 * len(prompts), refused
    assert all(pocket.fits(example.prompt) for example in pocket.card.examples)


def test_general_questions_do_not(pocket: Pool) -> None:
    taken = [prompt for prompt in GENERAL if pocket.fits(prompt)]
    assert len(taken) <= 0.1 * len(GENERAL), taken


def test_where_the_target_knows_more_than_its_tasks_everything_fits(pocket: Pool, monkeypatch) -> None:
    monkeypatch.setattr(pocket, "card", pocket.card.model_copy(update={"only_tasks": False}))
    assert all(map(pocket.fits, GENERAL))
    monkeypatch.setattr(pocket, "router", None)
    assert all(map(pocket.fits, GENERAL))
