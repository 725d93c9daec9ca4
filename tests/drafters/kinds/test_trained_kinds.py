"""Every kind of drafter on the bundled, trained models: the output is the target's, and the heads are worth loading."""

from collections import Counter

import pytest
import torch

from drafters.pool import load_pool
from drafters.sampling import SamplingParams
from multidraft import acceptance_table, generate
from multidraft.bench.suites import load_suite
from multidraft.replay.regret import fixed_rounds
from tests.distributions import ALPHA, exact_outputs, p_value

LENGTH = 8
ARMS = [
    "general", "math", "json", "code", "eagle", "eagle-math", "eagle-json", "eagle-tree", "medusa", "lookup", "suffix",
    "rest", "lookahead",
]  # fmt: skip


@pytest.fixture(scope="module")
def pool():
    return load_pool("pocket-mixed")


@pytest.fixture(scope="module")
def prompts():
    """A held-out prompt of each task."""
    return {item.task: item.prompt for item in load_suite("pocket").items}


@pytest.fixture(scope="module")
def answers(pool, prompts):
    """What ``transformers`` writes, greedily, 60 tokens at most."""
    written = {}
    for task in ("math", "json", "summary"):
        ids = torch.tensor([pool.encode(prompts[task])])
        output = pool.target.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=60, do_sample=False, pad_token_id=0
        )
        written[task] = output[0, ids.shape[1] :].tolist()
    return written


def test_the_card_holds_them(pool):
    assert [drafter.name for drafter in pool.drafters] == ARMS


@pytest.mark.parametrize("policy", [*(f"fixed:{arm}" for arm in ARMS), "draft-all", "normal-hedge", "rate-hedge"])
def test_greedy_output_is_that_of_transformers(pool, prompts, answers, policy):
    for task in ("json", "summary") if policy.startswith("fixed:") else ("math", "json", "summary"):
        out = generate(pool, prompts[task], policy, SamplingParams(40, draft_length=LENGTH))
        assert out.token_ids == answers[task][:40]


def test_the_heads_of_the_white_box_pool_too(prompts, answers):
    white_box = load_pool("pocket-heads")
    assert {drafter.kind for drafter in white_box.drafters} == {"eagle", "medusa"}
    out = generate(white_box, prompts["math"], "ucb", SamplingParams(60, draft_length=LENGTH))
    assert out.token_ids == answers["math"]


QUESTION = "A bus drives 2 hours at 40 kilometres per hour. How far is that?"


@pytest.fixture(scope="module")
def exact(pool):
    """Probability of each output of three tokens to a prompt, out of the two likeliest tokens at each place."""
    params = SamplingParams(3, temperature=8.0, top_k=2, draft_length=3)  # a trained model is that sure
    return params, exact_outputs(pool.target.model, pool.encode(QUESTION), params)


@pytest.mark.long
@pytest.mark.parametrize("arm", ["math", "eagle", "eagle-tree", "medusa", "suffix", "rest"])
def test_sampled_output_is_distributed_as_the_targets(pool, exact, arm):
    params, expected = exact
    counts = Counter(tuple(generate(pool, QUESTION, f"fixed:{arm}", params, seed).token_ids) for seed in range(150))
    assert p_value(counts, expected) > ALPHA


def tokens_a_round(pool, prompts, answers, task):
    """By drafter, over the beginning of the task's answer."""
    table = acceptance_table(pool, pool.encode(prompts[task]), answers[task], LENGTH)
    return {name: len(answers[task]) / fixed_rounds(row) for name, row in zip(ARMS, table, strict=True)}


@pytest.mark.parametrize("task", ["math", "json"])
def test_heads_are_best_on_their_own_task(pool, prompts, answers, task):
    found = tokens_a_round(pool, prompts, answers, task)
    other = {"math": "eagle-json", "json": "eagle-math"}[task]
    assert found[f"eagle-{task}"] > 2.0 and found[f"eagle-{task}"] > 1.3 * found[other]
    assert found["eagle"] > 1.8 and found["medusa"] > 1.2


@pytest.mark.long
def test_copying_leads_where_there_is_nothing_but_to_copy(pool):
    """The tasks of the suite ``copying``: over all prompts tried, no model or head comes near lookup and suffix."""
    tokens, rounds = 0, Counter()
    for item in load_suite("copying").items[:4]:
        out = generate(pool, item.prompt, "fixed:lookup", SamplingParams(60, draft_length=LENGTH))
        table = acceptance_table(pool, pool.encode(item.prompt), out.token_ids, LENGTH)
        tokens += len(out.token_ids)
        rounds.update({name: fixed_rounds(row) for name, row in zip(ARMS, table, strict=True)})
    ranked = [name for name, _ in rounds.most_common()[::-1]]
    assert set(ranked[:2]) == {"lookup", "suffix"}
