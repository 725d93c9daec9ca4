"""The core loop: the target's own output whoever drafts, and honest records of how it came about."""

import gc
import math
import threading

import pytest
import torch

from drafters.base import Drafter
from drafters.card import Card
from drafters.lm import make_lm_drafters
from drafters.pld import PromptLookup
from drafters.pool import Pool
from multidraft.draft import Draft
from multidraft.engine import Decoding, generate, stream
from multidraft.errors import ContextWindowError, PolicyError, PromptError, UserError
from multidraft.policies import NO_DRAFTER, Policy
from multidraft.sampling import SamplingParams
from multidraft.target import Target
from tests import tiny

POLICIES = [
    "autoregressive",
    "fixed:near",
    "fixed:alone",
    "fixed:lookup",
    "random",
    "round-robin",
    "ucb",
    "ucb:reward=be",
    "ucbspec",
    "exp3",
    "exp3spec",
    "sh",
    "petc",
    "d-ucb",
    "sw-ucb",
    "thompson",
    "kl-ucb",
    "hedge",
    "ada-normal-hedge",
    "draft-all",
    "ucb-length",
    "rate-hedge",
    "normal-hedge",
    "normal-hedge:game=chunk",
    "normal-hedge:loss=hybrid,warmup=2,every=3",
]
SAMPLED = SamplingParams(40, temperature=1.0, top_k=8, draft_length=4)
GREEDY = SamplingParams(40, draft_length=4)


def pool_of(model, *, lean=None):
    """A pool around ``model`` with two noisy copies of itself and prompt lookup."""
    near, far = (tiny.blend(type(model)(model.config), model, 0.0) for _ in range(2))
    for copy, noise, seed in ((near, 0.05, 5), (far, 0.3, 6)):
        tiny.blend(tiny.spread(copy, seed), model, noise)
    target = Target(model, lean=lean)
    drafters = [*make_lm_drafters({"near": near, "alone": far}, target.vocab_size), PromptLookup("lookup")]
    card = Card.model_validate(
        {"name": "tiny", "title": "", "target": {"path": "."}, "drafters": [{"name": "lookup", "kind": "pld"}]}
    )
    return Pool(target, drafters, tiny.tokenizer(), card)


class Scripted(Drafter):
    """Proposes what it is told to."""

    kind = "scripted"

    def __init__(self, name, draft_of):
        self.name, self.draft_of = name, draft_of

    def prepare(self, context):
        pass

    def propose(self, context, length, params, generator, *, with_q=False):
        return self.draft_of(list(context), length)

    def gamma(self, evidence):
        raise NotImplementedError

    def acceptances(self, context, start, length):
        raise NotImplementedError


def with_drafter(pool, draft_of):
    """The pool's target with one scripted drafter."""
    return Pool(pool.target, [Scripted("scripted", draft_of)], pool.tokenizer, pool.card)


# The output is the target's.


@pytest.mark.parametrize("policy", POLICIES)
def test_greedy_output_is_that_of_transformers(pool, policy):
    model = pool.target.model
    for prompt in tiny.prompts(6, seed=1):
        expected = tiny.greedy(model, prompt, 30)
        for length in (1, 3, 6):
            out = generate(pool, prompt, policy, SamplingParams(30, draft_length=length))
            assert out.token_ids == expected
            assert out.status == "completed"


@pytest.mark.parametrize("kind", ["llama", *tiny.HUB_KINDS])
@pytest.mark.parametrize("policy", ["autoregressive", "round-robin", "exp3", "normal-hedge"])
def test_greedy_output_over_other_architectures(kind, policy):
    model = tiny.llama(8) if kind == "llama" else tiny.causal_lm(kind, 8)
    pool = pool_of(model, lean=False)
    for prompt in tiny.prompts(3, seed=2):
        out = generate(pool, prompt, policy, SamplingParams(24, draft_length=4))
        assert out.token_ids == tiny.greedy(model, prompt, 24)


def test_drafts_are_accepted_and_refused(pool):
    """Otherwise the tests above would prove little."""
    for policy in ("fixed:near", "fixed:lookup", "normal-hedge"):
        rounds = [r for prompt in tiny.prompts(6, seed=1) for r in generate(pool, prompt, policy, GREEDY).rounds]
        assert any(r.accepted == len(r.drafted) > 0 for r in rounds)
        assert any(0 < r.accepted < len(r.drafted) for r in rounds) or policy == "fixed:lookup"
        assert any(r.accepted == 0 < len(r.drafted) for r in rounds)


GARBAGE = {
    "nothing": lambda context, length: Draft.empty(),
    "one token over and over": lambda context, length: Draft.chain([3] * length),
    "the context backwards": lambda context, length: Draft.chain(context[::-1][:length]),
    "a bush": lambda context, length: Draft(tuple(range(12)), (-1,) * 12),
    "a tree": lambda context, length: Draft((2, 9, 5, 7, 1), (-1, -1, 0, 1, 1)) if length > 1 else Draft.empty(),
    "equal siblings": lambda context, length: Draft((8, 8, 8), (-1, -1, -1)),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_a_drafter_that_proposes_garbage_costs_speed_only(pool, name):
    odd = with_drafter(pool, GARBAGE[name])
    for prompt in tiny.prompts(3, seed=4, longest=12):
        out = generate(odd, prompt, "fixed:scripted", SamplingParams(30, draft_length=4))
        assert out.token_ids == tiny.greedy(pool.target.model, prompt, 30)
        again = generate(odd, prompt, "ucb", SAMPLED, seed=1)
        assert len(again.token_ids) == 40 and again.status == "completed"


def test_a_tree_is_walked_to_its_matching_branch(pool):
    """The right branch is never the first child, so each round moves cached nodes."""
    prompt = tiny.prompts(1, seed=5)[0]
    expected = tiny.greedy(pool.target.model, prompt, 30)

    def bushy(context, length):
        done = len(context) - len(prompt)
        tokens, parents, parent = [], [], -1
        for token in expected[done : done + length]:
            tokens += [(token + 1) % tiny.VOCAB, token]
            parents += [parent, parent]
            parent = len(tokens) - 1
        return Draft(tuple(tokens), tuple(parents))

    out = generate(with_drafter(pool, bushy), prompt, "fixed:scripted", SamplingParams(30, draft_length=4))
    assert out.token_ids == expected
    assert out.mean_accepted_tokens == 5.0
    assert out.acceptance_rate == 1.0


def test_a_drafter_that_proposes_more_than_asked_is_named(pool):
    greedy_one = with_drafter(pool, lambda context, length: Draft.chain([3] * (length + 1)))
    with pytest.raises(ValueError, match=r"scripted.*5.*4"):
        generate(greedy_one, [2, 3], "fixed:scripted", GREEDY)


# Where an output ends.


def test_max_new_tokens_is_met_exactly(pool):
    prompt = tiny.prompts(1, seed=6)[0]
    for tokens in range(1, 12):
        for params in (SamplingParams(tokens, draft_length=6), SamplingParams(tokens, temperature=1.0, draft_length=6)):
            out = generate(pool, prompt, "fixed:near", params)
            assert len(out.token_ids) == tokens
            assert out.status == "completed"


@pytest.mark.parametrize("policy", POLICIES)
def test_stop_tokens_end_the_output_wherever_they_come(pool, policy):
    """Every token of the vocabulary in turn: some come as own tokens, some inside an accepted path."""
    prompt = tiny.prompts(1, seed=7)[0]
    whole = tiny.greedy(pool.target.model, prompt, 40)
    for stop in range(tiny.VOCAB):
        pool.stop_ids = frozenset({stop})
        out = generate(pool, prompt, policy, GREEDY)
        expected = whole[: whole.index(stop) + 1] if stop in whole else whole
        assert out.token_ids == expected
        assert out.status == ("stopped" if stop in whole else "completed")


def test_a_stop_token_inside_an_accepted_path_leaves_no_own_token(pool):
    prompt = tiny.prompts(1, seed=7)[0]
    whole = tiny.greedy(pool.target.model, prompt, 40)
    stop = whole[2]
    pool.stop_ids = frozenset({stop})
    exact = with_drafter(pool, lambda context, length: Draft.chain(whole[len(context) - len(prompt) :][:length]))
    exact.stop_ids = pool.stop_ids
    out = generate(exact, prompt, "fixed:scripted", SamplingParams(40, draft_length=6))
    assert out.token_ids == whole[: whole.index(stop) + 1]
    assert out.status == "stopped"
    (last,) = out.rounds
    assert last.own is None
    assert last.tokens == last.drafted[: last.accepted]
    assert sum(out.drafter_shares.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("policy", ["autoregressive", "fixed:near", "fixed:alone", "normal-hedge", "fixed:lookup"])
def test_the_context_window_ends_the_output(pool, policy):
    for params in (SamplingParams(500, draft_length=5), SamplingParams(500, temperature=1.0, draft_length=5)):
        out = generate(pool, [2] * 40, policy, params)
        assert out.status == "context_limit"
        assert len(out.token_ids) == tiny.WINDOW - 40


def test_a_prompt_one_short_of_the_window_yields_one_token(pool):
    out = generate(pool, [2] * (tiny.WINDOW - 1), "normal-hedge", GREEDY)
    assert (len(out.token_ids), out.status) == (1, "context_limit")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_prompt_longer_than_a_drafter_s_window(pool, policy):
    """``alone`` sees 32 tokens, the prompt has 45: that drafter has nothing to say, the output is the target's."""
    prompt = tiny.prompts(1, seed=8, shortest=45, longest=45)[0]
    out = generate(pool, prompt, policy, SamplingParams(15, draft_length=4))
    assert out.token_ids == tiny.greedy(pool.target.model, prompt, 15)


def test_a_short_windowed_drafter_that_shares_a_stack():
    model = tiny.llama(8)
    small = {name: tiny.blend(tiny.llama(i, window=24), model, 0.1) for i, name in enumerate(("one", "two"))}
    target = Target(model)
    pool = pool_of(model)
    pool.drafters = make_lm_drafters(small, target.vocab_size)
    for policy in ("fixed:one", "round-robin", "normal-hedge", "exp3"):
        for length in (5, 20, 23, 24, 25, 40):
            prompt = tiny.prompts(1, seed=9, shortest=length, longest=length)[0]
            out = generate(pool, prompt, policy, SamplingParams(20, draft_length=4))
            assert out.token_ids == tiny.greedy(model, prompt, 20)


# Refused prompts.


@pytest.mark.parametrize("prompt", ["", "   ", "\n\t", []])
def test_an_empty_prompt_is_refused(pool, prompt):
    with pytest.raises(PromptError, match="empty"):
        stream(pool, prompt, "ucb")


@pytest.mark.parametrize("length", [tiny.WINDOW, tiny.WINDOW + 1, 5000])
def test_a_prompt_that_fills_the_window_is_refused(pool, length):
    with pytest.raises(ContextWindowError, match=rf"{length:,} tokens.*'tiny' holds 64.*shorten"):
        stream(pool, "a" * length, "ucb")


def test_an_unknown_policy_is_refused(pool):
    with pytest.raises(PolicyError, match="unknown policy"):
        stream(pool, "abc", "no-such")
    with pytest.raises(PolicyError, match="no drafter 'nobody'"):
        stream(pool, "abc", "fixed:nobody")


@pytest.mark.parametrize("prompt", ["<|end|>", "abc<|end|>abc", "<b>&amp;", "\x00", "日本🎉", "a\r\nb"])
def test_strange_prompts_run(pool, prompt):
    out = generate(pool, prompt, "normal-hedge", SamplingParams(8))
    assert out.status == "completed"
    assert out.prompt == prompt
    assert out.token_ids == tiny.greedy(pool.target.model, pool.encode(prompt), 8)


# How it runs.


def test_nothing_is_computed_before_the_first_round_is_asked_for(pool, monkeypatch):
    calls = []
    prefill = pool.target.prefill
    monkeypatch.setattr(pool.target, "prefill", lambda ids: (calls.append(len(ids)), prefill(ids)))
    decoding = stream(pool, "abcd", "ucb", GREEDY)
    assert calls == [] and decoding.generation.rounds == [] and decoding.generation.status == "running"
    first = next(decoding)
    assert calls == [4]
    assert decoding.generation.rounds == [first]
    assert decoding.generation.token_ids == list(first.tokens)


def test_cancel_before_the_first_round(pool):
    decoding = stream(pool, "abcd", "ucb", GREEDY)
    decoding.cancel()
    assert decoding.run().status == "cancelled"
    assert decoding.generation.token_ids == []


def test_cancel_from_another_thread(pool):
    decoding = stream(pool, "abcd", "round-robin", SamplingParams(50, draft_length=1))
    reached, cancelled = threading.Event(), threading.Event()

    def canceller():
        reached.wait(10)
        decoding.cancel()
        cancelled.set()

    thread = threading.Thread(target=canceller)
    thread.start()
    for round_ in decoding:
        if round_.index == 2:
            reached.set()
            cancelled.wait(10)
    thread.join()
    out = decoding.generation
    assert out.status == "cancelled"
    assert len(out.rounds) == 3
    assert out.token_ids == tiny.greedy(pool.target.model, pool.encode("abcd"), 50)[: len(out.token_ids)]


def test_a_dropped_stream_counts_as_cancelled_and_a_finished_one_stays_finished(pool):
    for tokens, status in ((50, "cancelled"), (1, "completed")):
        decoding = stream(pool, "abcd", "ucb", SamplingParams(tokens))
        generation = decoding.generation
        next(decoding)
        del decoding
        gc.collect()
        assert (generation.status, generation.error) == (status, None)


def test_an_error_inside_a_drafter_is_kept_and_raised(pool):
    def break_down(context, length):
        if len(context) > 6:
            raise RuntimeError("out of ideas")
        return Draft.empty()

    decoding = stream(with_drafter(pool, break_down), [2, 3, 4, 5], "fixed:scripted", GREEDY)
    with pytest.raises(RuntimeError, match="out of ideas"):
        decoding.run()
    out = decoding.generation
    assert out.status == "error"
    assert out.error == "RuntimeError: out of ideas"
    assert len(out.rounds) == 3 and len(out.token_ids) == 3
    assert list(decoding) == []  # it has ended


def test_the_pool_is_usable_after_a_broken_or_unfinished_generation(pool):
    prompt = tiny.prompts(1, seed=10)[0]
    expected = generate(pool, prompt, "round-robin", GREEDY).token_ids
    unfinished = stream(pool, [5, 6, 7], "normal-hedge", SAMPLED)
    next(unfinished)
    assert generate(pool, prompt, "round-robin", GREEDY).token_ids == expected


def test_two_generations_on_one_pool_are_not_mixed_up(pool):
    """They share one cache: the first must not go on with what the second left in it."""
    first, second = stream(pool, "abcd", "ucb", GREEDY), stream(pool, "fgh", "ucb", GREEDY)
    next(first)
    next(second)
    with pytest.raises(RuntimeError, match="another generation has begun on pool 'tiny'"):
        next(first)
    assert first.generation.status == "error"
    assert second.run().token_ids == tiny.greedy(pool.target.model, pool.encode("fgh"), 40)


@pytest.mark.parametrize("policy", [p for p in POLICIES if p not in ("ucb-length", "rate-hedge")])  # ruled by the clock
@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_the_same_seed_gives_the_same_tokens_and_arms(pool, policy, params):
    def run(seed):
        out = generate(pool, "abcabdab", policy, params, seed)
        return out.token_ids, [(r.arm, r.drafted, r.accepted, r.probabilities) for r in out.rounds]

    assert run(3) == run(3)
    assert run(3)[0] == run(4)[0] if params.greedy else run(3)[0] != run(4)[0]


def test_a_policy_object_is_reset_for_each_query(pool):
    class Counting(Policy):
        name = "counting"

        def reset(self, prompt=""):
            super().reset(prompt)
            self.prompt, self.seen = prompt, []

        def select(self):
            return 0

        def update(self, feedback):
            self.seen.append(feedback)

    policy = Counting([d.name for d in pool.drafters])
    for prompt in ("abc", "defg"):
        out = generate(pool, prompt, policy, GREEDY)
        assert policy.prompt == prompt
        assert out.policy == "counting"
        assert len(policy.seen) == sum(r.arm is not None for r in out.rounds)


def test_a_policy_may_ask_for_short_drafts_or_none(pool):
    class Varying(Policy):
        name = "varying"

        def select(self):
            return NO_DRAFTER if self.t % 4 == 3 else 0

        def draft_length(self, limit):
            return (0, 2, limit + 5)[self.t % 4]

        def update(self, feedback):
            self.t += 1

    out = generate(pool, "abcd", Varying([d.name for d in pool.drafters]), GREEDY)
    assert out.token_ids == tiny.greedy(pool.target.model, pool.encode("abcd"), 40)
    assert [r.draft_length for r in out.rounds[:4]] == [0, 2, 4, 0]
    assert [r.arm for r in out.rounds[:4]] == [None, 0, 0, None]
    assert [len(r.drafted) for r in out.rounds[:4]] == [0, 2, 4, 0]


def test_only_candidates_read_the_prompt(pool, monkeypatch):
    asked = []
    monkeypatch.setattr(type(pool), "prepare", lambda self, context, arms: asked.append(list(arms)))
    for policy in ("autoregressive", "fixed:far", "ucb"):
        next(stream(pool, "abcd", policy, GREEDY))
    assert asked == [[], [2], [0, 1, 2, 3]]


# The records.


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_rounds_add_up(pool, policy, params):
    pool.stop_ids = frozenset({7})
    for seed, prompt in enumerate(tiny.texts(4, seed=11)):
        decoding = Decoding(pool, prompt, policy, params, seed)
        rounds = list(decoding)
        out = decoding.generation
        assert out.rounds == rounds
        assert [token for r in rounds for token in r.tokens] == out.token_ids
        assert "".join(r.text for r in rounds) == out.text == pool.decode(out.token_ids)
        assert out.prompt_tokens == len(pool.encode(prompt))
        assert out.drafters == ("near", "lookup", "far", "alone")
        assert [r.index for r in rounds] == list(range(len(rounds)))
        for r in rounds:
            check_round(out, r, params, last=r is rounds[-1])
        assert out.seconds == pytest.approx(sum(r.seconds for r in rounds))
        assert out.tokens_per_second == pytest.approx(len(out.token_ids) / out.seconds)
        assert out.mean_accepted_tokens == pytest.approx(sum(r.emitted for r in rounds) / len(rounds))
        assert 0.0 <= out.acceptance_rate <= 1.0
        assert sum(out.drafter_shares.values()) == pytest.approx(1.0)


def check_round(out, r, params, *, last):
    assert 0 <= r.accepted <= len(r.drafted) <= r.draft_length <= params.draft_length
    assert r.tokens[: r.accepted] == r.drafted[: r.accepted]
    if r.own is None:
        assert last and len(r.tokens) == r.accepted
        assert out.status in ("stopped", "completed")
    else:
        assert r.tokens == (*r.drafted[: r.accepted], r.own)
    if r.accepted < len(r.drafted) and r.own is not None and params.greedy:
        assert r.own != r.drafted[r.accepted]
    assert len(r.pieces) == len(r.tokens)
    assert "".join(r.pieces) == r.text
    assert (r.arm is None) == (r.drafter is None)
    assert r.arm is not None or r.drafted == ()
    if r.arm is not None:
        assert out.drafters[r.arm] == r.drafter
    assert r.emitted == len(r.tokens)
    for value in (r.reward, r.block_divergence, r.block_efficiency):
        assert value is None or 0.0 <= value <= 1.0
    if r.probabilities is not None:
        assert len(r.probabilities) == 4
        assert math.isclose(sum(r.probabilities), 1.0, abs_tol=1e-9)
        assert r.arm is None or r.probabilities[r.arm] > 0.0
    assert min(r.draft_seconds, r.verify_seconds, r.policy_seconds, r.evaluate_seconds) >= 0.0
    assert r.verify_seconds > 0.0


def test_probabilities_are_those_before_the_round(pool):
    rounds = generate(pool, "abcd", "exp3", GREEDY).rounds
    assert rounds[0].probabilities == (0.25,) * 4
    assert rounds[1].probabilities != rounds[0].probabilities


def test_block_divergence_is_measured_for_those_who_use_it(pool):
    def of(policy, params):
        return [r.block_divergence for r in generate(pool, "abcd", policy, params).rounds[:-1]]

    for params in (GREEDY, SAMPLED):
        assert None not in of("ucb", params)
        assert set(of("ucb:reward=be", params)) == {None}
        assert set(of("normal-hedge", params)) == {None}


def test_autoregressive_decoding_drafts_nothing(pool):
    out = generate(pool, "abcd", "autoregressive", GREEDY)
    assert out.mean_accepted_tokens == 1.0
    assert out.acceptance_rate == 0.0
    assert out.drafter_shares == {"target": 1.0}
    assert all((r.arm, r.drafted, r.draft_length, r.reward) == (None, (), 0, None) for r in out.rounds)


def test_autoregressive_sampling_equals_drafting_that_never_proposes(pool):
    """With no draft there is nothing but one draw from the target per token, by the same generator."""
    silent = with_drafter(pool, lambda context, length: Draft.empty())
    plain = generate(pool, "abcd", "autoregressive", SAMPLED, seed=5).token_ids
    assert generate(silent, "abcd", "fixed:scripted", SAMPLED, seed=5).token_ids == plain


def test_text_and_token_prompts_are_the_same_prompt(pool):
    ids = pool.encode("abcd")
    assert generate(pool, "abcd", "ucb", SAMPLED, 1).token_ids == generate(pool, ids, "ucb", SAMPLED, 1).token_ids
    assert generate(pool, ids, "ucb", SAMPLED).prompt == "abcd"


def test_gradients_are_never_recorded(pool):
    pool.target.prefill([1, 2])
    assert not pool.target.score(Draft.empty()).requires_grad
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("half \ud83d", "character 6 of the prompt is half of one"),
        ([], "at least one token id"),
        ([2, tiny.VOCAB], f"token id {tiny.VOCAB} is not one of the target's: 0 to {tiny.VOCAB - 1}"),
        ([2, -1], "token id -1"),
        ([1.5], "a text or a list of token ids, got list"),
        (None, "a text or a list of token ids, got NoneType"),
    ],
)
def test_prompts_that_are_none(pool, prompt, said):
    with pytest.raises(PromptError, match=said):
        generate(pool, prompt)


def test_any_token_ids_are_a_prompt(pool):
    assert len(generate(pool, [tiny.END], "ucb", SamplingParams(4)).token_ids) == 4


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, "7", True])
def test_seeds_that_are_none(pool, seed):
    with pytest.raises(UserError, match="the seed must be a whole number from 0"):
        generate(pool, "abc", seed=seed)


def test_threads_on_one_pool_never_mix(pool):
    """Whoever is overtaken is told so; whoever ends has the text it would have alone."""
    params = SamplingParams(30, draft_length=4)
    prompts = tiny.texts(6, 9, 5)
    alone = {text: generate(pool, text, "ucb", params).token_ids for text in prompts}
    ended, refused = [], []

    def work(text):
        try:
            ended.append((text, generate(pool, text, "ucb", params).token_ids))
        except RuntimeError as error:
            refused.append(str(error))

    for _ in range(5):
        threads = [threading.Thread(target=work, args=(text,)) for text in prompts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(ended) + len(refused) == 30 and ended
    assert all(tokens == alone[text] for text, tokens in ended)
    assert all("another generation has begun" in message for message in refused)
