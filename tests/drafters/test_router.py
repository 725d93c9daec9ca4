"""The router: right on prompts like those it was trained on, the same after a trip to disk, refused when damaged."""

import random

import numpy as np
import pytest
import yaml
from sklearn.feature_extraction.text import HashingVectorizer

import multidraft as md
from drafters.errors import PolicyError, PoolError, TrainingError
from drafters.pool import load_pool
from drafters.router import FEATURES, Router, features
from multidraft.training.pocket.corpus import FAMILIES
from multidraft.training.pocket.corpus.two_tasks import tasks_of
from tests import tiny

NAMES = ["math", "sql", "translation"]


def prompts(split, count, seed=0):
    rng = random.Random(seed)
    names = [name for name in NAMES for _ in range(count)]
    return [FAMILIES[name].example(rng, split).prompt for name in names], names


@pytest.fixture(scope="module")
def router():
    asked, names = prompts("train", 60)
    two = [FAMILIES["mixed"].example(random.Random(i), "train") for i in range(200)]
    return Router.train(
        [*asked, *(e.prompt for e in two)], [*({n} for n in names), *(tasks_of(e) & {*NAMES} for e in two)]
    )


def test_it_recognises_heldout_prompts(router):
    asked, names = prompts("heldout", 20)
    found = [router.probabilities(prompt) for prompt in asked]
    assert all(set(p) == set(NAMES) and min(p.values()) >= 0 and max(p.values()) <= 1 for p in found)
    assert np.mean([max(p, key=p.get) == name for p, name in zip(found, names)]) > 0.95


def test_it_names_both_tasks_of_a_prompt_with_two(router):
    found = []
    for seed in range(60):
        example = FAMILIES["mixed"].example(random.Random(seed), "heldout")
        if (wanted := tasks_of(example)) <= set(NAMES):
            likely = router.probabilities(example.prompt)
            found.append({name for name, p in likely.items() if p > 0.5} == wanted)
    assert len(found) > 5 and np.mean(found) > 0.8


def test_it_is_the_same_from_disk(router, tmp_path):
    router.save(tmp_path / "router")
    again = Router.load(tmp_path / "router")
    for prompt in prompts("heldout", 3)[0]:
        assert again.probabilities(prompt) == pytest.approx(router.probabilities(prompt), abs=0.01)
    assert sum(f.stat().st_size for f in (tmp_path / "router").iterdir()) < 200_000


@pytest.mark.parametrize("prompt", ["", "!", "x", "sum SUM sum", "Größe 漢字 naïve\n\ttab", "word " * 500])
def test_its_features_are_those_of_scikit_learn(prompt):
    places, values = features(prompt)
    row = np.zeros(FEATURES)
    row[places] = values
    hashed = HashingVectorizer(n_features=FEATURES, ngram_range=(1, 2), alternate_sign=False)
    assert row == pytest.approx(hashed.transform([prompt]).toarray()[0], abs=1e-6)


@pytest.mark.parametrize(
    ("prompts", "suited"), [([], []), (["one", "two"], [{"near"}, {"near"}]), (["one", "two"], [(), ()])]
)
def test_prompts_that_teach_nothing_are_refused(prompts, suited):
    with pytest.raises(TrainingError, match="learns from prompts that suit a drafter and prompts that do not"):
        Router.train(prompts, suited)


@pytest.mark.parametrize("damage", ["missing", "truncated", "labels"])
def test_damage_is_told(router, tmp_path, damage):
    router.save(tmp_path)
    weights = tmp_path / "router.safetensors"
    if damage == "missing":
        weights.unlink()
    elif damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:100])
    else:
        (tmp_path / "router.json").write_text('{"drafters": ["one"]}')
    with pytest.raises(PoolError, match="cannot load the router from"):
        Router.load(tmp_path)


@pytest.fixture
def routed(tmp_path, pool_card):
    """A pool whose router sends every prompt to ``far``."""
    weights = np.zeros((2, FEATURES), np.float32)
    Router(["near", "far"], weights, np.array([-9.0, 9.0], np.float32)).save(tmp_path / "router")
    card = yaml.safe_load(pool_card.read_text())
    for source in [card["target"], *(d for d in card["drafters"] if "path" in d)]:
        source["path"] = str(pool_card.parent / source["path"])
    card["drafters"][-1]["routed_as"] = "near"
    (tmp_path / "card.yaml").write_text(yaml.safe_dump({**card, "router": "router"}))
    return load_pool(tmp_path / "card.yaml")


def test_the_policy_plays_what_the_router_says(routed):
    params = md.SamplingParams(12, draft_length=4)
    out = md.generate(routed, "abc", "router", params)
    assert {r.drafter for r in out.rounds} <= {"far", None} and out.rounds[0].drafter == "far"
    assert out.token_ids == md.generate(routed, "abc", "autoregressive", params).token_ids
    # In the pool's order; the router knows nothing about the second, and the last by another name.
    assert routed.route("abc") == pytest.approx([0.0, 0.5, 1.0, 0.0], abs=1e-3)


def test_a_pool_without_a_router_says_so(pool):
    with pytest.raises(PolicyError, match="'router' needs a router, and pool 'tiny' has none"):
        md.generate(pool, tiny.texts(1)[0], "router")
