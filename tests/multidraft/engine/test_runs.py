"""How a generation runs: cancelled, broken, overtaken, repeated."""

import gc
import threading

import pytest

from drafters.sampling import SamplingParams
from multidraft.engine.decoding import generate, stream
from multidraft.policies import ALL_DRAFTERS, NO_DRAFTER, Policy
from tests import tiny
from tests.engine_cases import GREEDY, POLICIES, SAMPLED


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


def test_an_error_of_the_target_is_kept_and_raised(pool, monkeypatch):
    def break_down(draft):
        if pool.target.context_length > 6:
            raise RuntimeError("out of ideas")
        return score(draft)

    score = pool.target.score
    monkeypatch.setattr(pool.target, "score", break_down)
    decoding = stream(pool, [2, 3, 4, 5], "autoregressive", GREEDY)
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

        def reset(self):
            super().reset()
            self.seen = []

        def select(self):
            return 0

        def update(self, feedback):
            self.seen.append(feedback)

    policy = Counting([d.name for d in pool.drafters])
    for prompt in ("abc", "defg"):
        out = generate(pool, prompt, policy, GREEDY)
        assert policy.context.prompt == prompt
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
    monkeypatch.setattr(type(pool), "prepare", lambda self, context, arms, benched: asked.append(list(arms)))
    runs = [generate(pool, "abcd", policy, GREEDY) for policy in ("autoregressive", "fixed:far", "ucb")]
    assert asked == [list(run.readers) for run in runs] == [[], [2], [0, 1, 2, 3]]


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


def test_all_drafters_asked_for_no_tokens_are_no_drafter(pool):
    class Wavering(Policy):
        name = "wavering"

        def select(self):
            return ALL_DRAFTERS

        def draft_length(self, limit):
            return limit if self.t % 2 else 0

        def update(self, feedback):
            self.t += 1
            assert feedback.arm != ALL_DRAFTERS and (feedback.arm == NO_DRAFTER) == (feedback.draft_length == 0)

    out = generate(pool, "abcd", Wavering([d.name for d in pool.drafters]), GREEDY)
    assert out.token_ids == generate(pool, "abcd", "autoregressive", GREEDY).token_ids
    assert {r.draft_length > 0 for r in out.rounds} == {True, False}
