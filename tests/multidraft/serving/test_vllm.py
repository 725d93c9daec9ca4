"""The proposer for vLLM, driven as vLLM drives it: by what its real engine was recorded to do, and by a stand-in."""

import json
import logging
import os
import random
from pathlib import Path

import numpy as np
import pytest

from drafters.errors import PolicyError, PoolError, UserError
from drafters.hardware import GIB
from drafters.memory import text_bytes
from drafters.models import onnx_session
from drafters.sampling import SamplingParams
from multidraft.engine.decoding import generate
from multidraft.engine.following import UNSEEN
from multidraft.policies.static import RoundRobin
from multidraft.serving import vllm
from multidraft.serving.vllm import MultiDraft
from storage import queries
from tests import tiny
from tests.multidraft.serving.stub import LENGTH, Engine, config

DATA = Path(__file__).parent / "data"
TOKENS = 20
PROMPTS = tiny.prompts(5, seed=7, shortest=3, longest=12)


@pytest.fixture(scope="module")
def texts(loaded_pool):
    return [(prompt, tiny.greedy(loaded_pool.target.model, prompt, TOKENS)) for prompt in PROMPTS]


@pytest.fixture
def make(pool_card, monkeypatch):
    """Makes proposers."""

    def made(policy="fixed:near", pool=pool_card, **settings):
        monkeypatch.setenv("MULTIDRAFT_POOL", str(pool))
        monkeypatch.setenv("MULTIDRAFT_POLICY", policy)
        return MultiDraft(config(**settings))

    monkeypatch.delenv("MULTIDRAFT_DB", raising=False)
    monkeypatch.setattr(onnx_session, "threads", None)  # or later tests would find it changed
    return made


def decodings(proposer):
    """What the proposer knows of its requests, in the order in which they came."""
    known = [request.decoding for request in proposer._waiting() if request.decoding]
    return [decoding.generation for decoding in sorted(known, key=lambda decoding: decoding.seed)]


def played(rounds):
    return [(r.drafter, r.drafted, r.accepted, r.tokens, r.draft_length) for r in rounds]


POLICIES = [
    "fixed:near", "autoregressive", "round-robin", "ucb", "ucb:reward=be", "ucbspec", "exp3", "normal-hedge",
    "hedge", "draft-all",
]  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES)
def test_its_rounds_are_those_of_our_engine_after_the_first_token(make, pool, texts, policy):
    proposer = make(policy)
    Engine(proposer, texts[:1]).run()
    (found,) = decodings(proposer)
    prompt, output = texts[0]
    assert found.token_ids == output and found.rounds[0].tokens == (output[0],) and found.prompt_tokens == len(prompt)
    alike = {"ucb": "ucb:reward=be"}.get(policy, policy)  # without the target's probabilities
    pool.previous.clear()
    trees, pool.target.trees = pool.target.trees, False
    params = SamplingParams(max_new_tokens=tiny.WINDOW - len(prompt) - 1, draft_length=LENGTH)
    ours = generate(pool, [*prompt, output[0]], alike, params, seed=1)
    pool.target.trees = trees
    assert played(found.rounds[1:-1]) == played(ours.rounds[: len(found.rounds) - 2])
    assert len(found.rounds) > 3


@pytest.mark.parametrize("policy", ["fixed:near", "normal-hedge", "rate-hedge"])
def test_requests_that_share_steps_and_move_between_rows_are_told_apart(make, texts, policy):
    shuffle = random.Random(1)
    together = make(policy)
    engine = Engine(together, texts)
    engine.run(lambda live: shuffle.sample(live, len(live)))
    found = {tuple(g.token_ids): g for g in decodings(together)}
    assert found.keys() == {tuple(output) for _, output in texts}
    assert max(g.streams for g in found.values()) == len(texts)
    if policy == "rate-hedge":  # goes by the clock
        return
    for index, (_, output) in enumerate(texts):
        alone = make(policy)
        alone._count = found_seed(together, output) - 1
        Engine(alone, texts[index : index + 1]).run()
        assert played(decodings(alone)[0].rounds) == played(found[tuple(output)].rounds)


def found_seed(proposer, output):
    return next(r.decoding.seed for r in proposer._waiting() if r.decoding.generation.token_ids == output)


def test_a_preempted_request_goes_on_where_it_was_and_its_draft_counts_for_nothing(make, texts):
    proposer = make()
    engine = Engine(proposer, texts[:2])
    for _ in range(3):
        engine.step([0, 1])
    before = len(decodings(proposer)[0].rounds)
    engine.step([1])
    assert engine.drafts[0], "its draft was not scored"
    engine.drafts[0] = engine.drafts[0][:0]
    engine.run(lambda live: live[::-1])
    first, second = decodings(proposer)
    assert [first.token_ids, second.token_ids] == [output for _, output in texts[:2]]
    resumed = first.rounds[before]
    assert len(resumed.tokens) == 1 and (resumed.accepted, resumed.own) == (0, resumed.tokens[0])


def test_of_a_draft_that_was_shortened_only_what_was_scored_counts(make, texts):
    proposer = make()
    engine = Engine(proposer, texts[:1], cut={0: 1})
    engine.run()
    (found,) = decodings(proposer)
    assert found.token_ids == texts[0][1]
    assert all(r.accepted < 2 for r in found.rounds)
    assert all(r.drafted[r.accepted : r.accepted + 1] != (r.own,) for r in found.rounds)
    assert any(len(r.drafted) == r.draft_length == 1 for r in found.rounds)


def test_equal_requests_are_each_followed(make, texts):
    proposer = make("round-robin")
    engine = Engine(proposer, [texts[0]] * 3)
    engine.run(lambda live: live[::-1])
    assert [g.token_ids for g in decodings(proposer)] == [texts[0][1]] * 3


def test_of_equal_texts_the_one_that_is_still_written_goes_on(make, texts):
    proposer, (prompt, output) = make(), texts[0]
    for text in (output[:9], output):
        Engine(proposer, [(prompt, text)]).run()
    assert [found.token_ids for found in decodings(proposer)] == [output[:9], output]


def test_steps_near_the_end_of_the_window_in_which_no_drafts_are_asked_for_are_in_the_run(
    make, texts, tmp_path, monkeypatch
):
    monkeypatch.setenv("MULTIDRAFT_DB", str(tmp_path / "runs.db"))
    longest = sorted(texts[:2], key=lambda text: len(text[0]))
    proposer = make("round-robin", window=len(longest[1][0]) + TOKENS)
    engine = Engine(proposer, longest)
    while not proposer._unasked:
        engine.step([0, 1])
    before = engine.done[0]
    for _ in range(3):
        engine.unasked([0, 1])
    engine.done[1] = TOKENS
    engine.run()
    proposer.settle(float("inf"))
    runs = [run.generation for run in recorded(proposer)]
    proposer.store.close()
    (found,) = (run for run in runs if run.token_ids == longest[0][1])
    assert [token for r in found.rounds for token in r.tokens] == found.token_ids
    ends = np.cumsum([len(r.tokens) for r in found.rounds]).tolist()
    unseen = found.rounds[ends.index(before) + 1 :][:4]
    assert all(r.drafter is None and len(r.tokens) == 1 and r.verify_seconds > 0 for r in unseen)
    assert any(r.drafter for r in found.rounds[ends.index(before) + 5 :])


def test_a_prompt_that_is_still_being_read_gets_no_draft(make, texts):
    prompt, output = texts[0]
    ids = np.array([[*prompt, output[0]]], np.int32)
    proposer = make()
    assert proposer.propose([[]], np.array([len(prompt)]), ids) == [[]]
    assert proposer.propose([[output[0]]], np.array([len(prompt) + 1]), ids) != [[]]


def test_a_policy_that_fails_leaves_the_request_and_the_others_alive(make, texts, monkeypatch, caplog):
    proposer = make("round-robin")
    monkeypatch.setattr(RoundRobin, "select", _broken)
    with caplog.at_level(logging.ERROR, "vllm.multidraft"):
        engine = Engine(proposer, texts[:2])
        engine.run()
    assert engine.done == [TOKENS, TOKENS] and engine.drafts == [[], []]
    assert "goes on without drafts" in caplog.text and "no luck" in caplog.text
    assert {g.status for g in decodings(proposer)} == {"error"}


def _broken(self, *_, **__):
    raise OSError("no luck")


def test_beyond_so_many_requests_the_others_are_decoded_without_drafts(make, texts, monkeypatch):
    monkeypatch.setattr(vllm, "MOST", 2)
    proposer = make()
    engine = Engine(proposer, texts)
    engine.step(range(5))
    assert [bool(draft) for draft in engine.drafts] == [True, True, False, False, False]
    engine.run(lambda live: [one for one in live if one > 1] or live)
    assert len(proposer.batch) <= 2


def test_requests_that_left_are_dropped_and_their_places_used_again(make, texts, monkeypatch):
    monkeypatch.setattr(vllm, "MOST", 4)
    monkeypatch.setattr(vllm, "KNOWN", 6)
    proposer = make()
    for start in range(4):
        engine = Engine(proposer, [(prompt[start:], output) for prompt, output in texts[:4]])
        engine.step(range(4))
        assert all(engine.drafts), "those of earlier requests make room"
        engine.run()
    assert len(proposer.batch) <= 4 and len(proposer._waiting()) <= 6 + 4


@pytest.mark.parametrize("most", [64, 2])
def test_a_preempted_request_that_comes_back_is_one_run(make, texts, tmp_path, monkeypatch, most):
    """Also where it was taken for one that had ended, and where another has taken its place meanwhile."""
    monkeypatch.setenv("MULTIDRAFT_DB", str(tmp_path / "runs.db"))
    monkeypatch.setattr(vllm, "MOST", most)
    proposer = make("round-robin")
    engine = Engine(proposer, texts[:3])
    for _ in range(3):
        engine.step([0, 1])
    engine.step([1, 2])
    proposer.settle(float("inf"))
    assert recorded(proposer) and (not engine.drafts[0] or most == 64 or len(proposer.batch) == 2)
    while any(engine.done[one] < TOKENS for one in (1, 2)):
        engine.step([1, 2])
    engine.drafts[0] = []
    before = engine.done[0]
    engine.run()
    assert before < TOKENS and any(draft for draft, _ in engine.rounds[0][4:]), "it gets drafts again"
    proposer.settle(float("inf"))
    runs = recorded(proposer)
    proposer.store.close()
    assert sorted(run.generation.token_ids for run in runs) == sorted(output for _, output in texts[:3])
    for run in runs:
        assert [token for r in run.generation.rounds for token in r.tokens] == run.generation.token_ids
        assert [r.index for r in run.generation.rounds] == list(range(len(run.generation.rounds)))
        assert run.to_json()["output_tokens"] == TOKENS and run.generation.error == UNSEEN


def recorded(proposer):
    assert proposer.store.flush()
    return [run for id in range(1, 9) if (run := queries.run(proposer.store.path, id))]


def test_memory_of_long_texts_stays_within_what_it_may_take(make, loaded_pool, tmp_path, monkeypatch):
    prompts = tiny.prompts(6, seed=3, shortest=3, longest=5)
    texts = [(prompt, tiny.greedy(loaded_pool.target.model, prompt, 40)) for prompt in prompts]
    monkeypatch.setattr(vllm, "ROOM", 4)
    whole = make()
    need = text_bytes(whole.pool.card, Path(os.environ["MULTIDRAFT_POOL"]), "cpu", tiny.WINDOW, remote=True)
    monkeypatch.setenv("MULTIDRAFT_CACHE_MEMORY", str((2 * need + 1) / GIB))
    monkeypatch.setenv("MULTIDRAFT_DB", str(tmp_path / "runs.db"))
    proposer = make("round-robin")
    caches, engine, most = proposer.pool.caches, Engine(proposer, texts), 0
    while any(done < 40 for done in engine.done):
        engine.step(range(6))
        drafted = [request for request in proposer._waiting() if request.stream is not None]
        most = max(most, len(drafted))
        assert caches.held <= caches.budget
        assert sum(caches.size(len(one.decoding.context) + LENGTH) for one in drafted) <= caches.budget
    assert most > 2
    proposer.settle(float("inf"))
    runs = recorded(proposer)
    proposer.store.close()
    cut = [run for run in runs if run.generation.error == vllm.NO_ROOM]
    whole = [run for run in runs if len(run.generation.token_ids) == 40]
    assert cut and whole and len(cut) + len(whole) == len(runs)
    assert {run.generation.status for run in cut} == {"cancelled"}


def test_memory_that_does_not_hold_one_request_ends_the_start(make, monkeypatch):
    monkeypatch.setenv("MULTIDRAFT_CACHE_MEMORY", "0.0000001")
    with pytest.raises(UserError, match=r"of a request of 60 tokens \(--max-model-len\) take .* MULTIDRAFT_CACHE"):
        make(window=60)


def test_runs_go_to_the_history_up_to_the_stop_token(make, texts, tmp_path, monkeypatch):
    monkeypatch.setenv("MULTIDRAFT_DB", str(tmp_path / "runs.db"))
    prompt, output = texts[0]
    proposer = make("round-robin")
    proposer.ends = frozenset(output[10:11])
    end = output.index(output[10])
    Engine(proposer, [(prompt, output[: end + 1]), (prompt, output[:end])]).run()
    proposer.settle(0.0)
    assert proposer.store.flush() and not queries.count(proposer.store.path)
    proposer.settle(float("inf"))
    assert proposer.store.flush()
    proposer.store.close()
    runs = [queries.run(proposer.store.path, id) for id in (1, 2)]
    assert {(run.generation.status, run.generation.error) for run in runs} == {("stopped", None), ("completed", UNSEEN)}
    assert all(run.origin.source == "vllm" and run.generation.policy == "round-robin" for run in runs)
    assert any(r.drafter for run in runs for r in run.generation.rounds)


def test_it_says_what_it_serves(kinds_card, make, caplog):
    with caplog.at_level(logging.INFO, "vllm.multidraft"):
        proposer = make("ucb", kinds_card)
    names = [drafter.name for drafter in proposer.pool.drafters]
    assert {"lm", "pld", "suffix", "rest"} <= {drafter.kind for drafter in proposer.pool.drafters}
    assert all(name in caplog.text for name in names)
    assert "left out, since vLLM hands out no hidden states" in caplog.text and "eagle" in caplog.text
    assert "the reward is block efficiency" in caplog.text and "not recorded (MULTIDRAFT_DB)" in caplog.text


@pytest.mark.parametrize(
    ("settings", "policy", "error", "message"),
    [
        ({"vocab": 999}, "ucb", PoolError, "are for a target with a vocabulary of 12 tokens, but tiny has 999"),
        ({"length": 65}, "ucb", UserError, "num_speculative_tokens must be at most 64, got 65"),
        ({}, "fixed:nobody", PolicyError, "there is no drafter 'nobody'"),
        ({}, "oracle", PolicyError, "replays"),
    ],
)
def test_what_cannot_be_served_is_refused_at_the_start(make, settings, policy, error, message):
    with pytest.raises(error, match=message):
        make(policy, **settings)


def test_of_tensor_parallel_ranks_only_the_first_drafts(make, texts):
    proposer = make(rank=1, ranks=2)
    Engine(proposer, texts[:1]).run()
    assert not hasattr(proposer, "pool")


def test_a_recorded_engine_is_given_the_same_drafts_and_known_by_its_texts(make):
    """Recorded by ``tests.vllm_engine``: five requests, two or three at once, as the cache has room."""
    recorded = json.loads((DATA / "vllm-0.32.json").read_text())
    proposer = make("round-robin", DATA / "counting.yaml", vocab=recorded["vocabulary"], length=12, window=256)
    ids, counts = np.zeros((3, 256), np.int32), np.zeros(3, np.int32)
    for rows, drafts in recorded["calls"]:
        for row, (written, text) in enumerate(rows):
            text = [*ids[row, : counts[row]].tolist(), *written] if text is None else text
            ids[row, : len(text)], counts[row] = text, len(text)
        assert proposer.propose([written for written, _ in rows], counts, ids, slot_mappings=None) == drafts
    found = decodings(proposer)
    for output in recorded["outputs"]:
        assert sum(g.token_ids[: len(output)] == output for g in found) == 1
    assert len(found) == len(recorded["outputs"]) and max(g.streams for g in found) == 3
    assert {r.drafter for g in found for r in g.rounds} == {None, "one", "two", "three"}


def test_drafters_take_one_thread_beside_those_of_vllm(make, monkeypatch):
    given = []
    make()
    monkeypatch.setattr(onnx_session.onnxruntime, "set_global_thread_pool_sizes", lambda *sizes: given.append(sizes))
    assert onnx_session.shared_threads.__wrapped__() == 1 and given == [(1, 1)]
