"""Other engines decode the same prompts to the same tokens, beside our runs."""

import importlib.util
import logging
import sys
from statistics import mean
from types import SimpleNamespace

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM

from drafters.errors import UserError
from drafters.sampling import SamplingParams
from multidraft.bench import engines, vllm_peer
from multidraft.bench.engines import LlamaCpp, peers_for, write_gguf
from multidraft.bench.peers import PeerRun, beside_peers, render_peers, summary_of_peers
from multidraft.bench.runner import SuiteRun
from multidraft.bench.suites import SuiteItem
from tests import tiny

PARAMS = SamplingParams(24, draft_length=4)
POLICIES = ["autoregressive", "fixed:near"]


@pytest.fixture(scope="module")
def beside(loaded_pool):
    """The runs of all peers on three prompts, in the order in which they were made; no token stops them."""
    items = [SuiteItem(str(i), text, "") for i, text in enumerate(tiny.texts(3, 5, 3))]
    runs: list[PeerRun] = []
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(loaded_pool, "stop_ids", frozenset())
        ours = SuiteRun(loaded_pool, items, POLICIES, PARAMS).all()
        peers = peers_for(loaded_pool, PARAMS.draft_length)
        entries = list(beside_peers(ours, loaded_pool, peers, PARAMS, runs))
    assert [(e.item.id, e.policy) for e in entries] == [(item.id, policy) for item in items for policy in POLICIES]
    return runs


def test_every_peer_decodes_every_prompt_as_we_do(pool, beside):
    names = [peer.name for peer in peers_for(pool, 4)]
    assert names[:4] == [
        "transformers",
        "transformers, prompt lookup",
        "transformers, assisted by near, constant",
        "transformers, assisted by near, confidence",
    ]
    for run in beside:
        assert len(run.output.token_ids) == 24
        assert run.equal or run.peer == "llama.cpp, float16"  # the weights of this target are random: all is near a tie
        assert 0 < run.output.prefill_seconds < run.output.seconds
    order = [run.peer for run in beside]
    assert sorted(order) == sorted(3 * names)
    assert order[: len(names)] == names and order[len(names)] == names[1]  # it rotates


def test_the_summary(beside):
    summary = summary_of_peers(beside)
    for name, figures in summary.items():
        own = [run for run in beside if run.peer == name]
        assert (figures["runs"], figures["tokens"]) == (3, 72)
        assert figures["equal"] == 3 or name == "llama.cpp, float16"
        seconds = sum(run.output.seconds for run in own)
        assert figures["request_tokens_per_second"] == pytest.approx(72 / seconds)
        for policy, of in figures["policies"].items():
            ours = [run.ours[policy].run.generation for run in own]
            whole = sum(g.prefill_seconds + g.seconds for g in ours)
            assert of["request"]["value"] == pytest.approx(seconds / whole)
    table = render_peers(summary)
    assert "| transformers |" in table and "3/3" in table and "fixed:near against it" in table


def test_each_distinct_prompt_counts_once_whatever_its_id(pool):
    """Two files number their lines alike, and one has the other's prompt twice more."""
    first, second = tiny.texts(2, 5, 3)
    items = [SuiteItem("1", first, ""), SuiteItem("1", second, ""), *(SuiteItem(i, second, "") for i in ("2", "3"))]
    runs: list[PeerRun] = []
    peers = peers_for(pool, PARAMS.draft_length)[:1]
    list(beside_peers(SuiteRun(pool, items, POLICIES, PARAMS).all(), pool, peers, PARAMS, runs))
    (figures,) = summary_of_peers(runs).values()
    tokens, seconds = (
        [mean(of(run.output) for run in runs if run.prompt == prompt) for prompt in (first, second)]
        for of in (lambda output: len(output.token_ids), lambda output: output.seconds)
    )
    assert (figures["prompts"], figures["runs"]) == (2, 4)
    assert figures["request_tokens_per_second"] == pytest.approx(sum(tokens) / sum(seconds))


def test_the_drafter_that_assists_can_be_chosen(pool):
    assert "transformers, assisted by far, constant" in [peer.name for peer in peers_for(pool, 4, "far")]
    assert "transformers, assisted by near, constant" in [peer.name for peer in peers_for(pool, 4, "lookup")]


def test_the_drafter_that_is_best_over_all_examples_assists(pool, monkeypatch):
    matrix = {"a": {"near": 4.0, "far": 1.0}, "b": {"near": 1.0, "far": 6.0}}
    monkeypatch.setattr(engines, "accepted_by_task", lambda *asked: matrix)
    assert "transformers, assisted by far, constant" in [peer.name for peer in peers_for(pool, 4)]


def test_the_library_s_warning_of_its_own_call_is_kept_out_of_the_log(pool, caplog, monkeypatch):
    logger = logging.getLogger("transformers.generation.utils")
    transformers.utils.logging.warning_once.cache_clear()  # it is given once in a process
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    for peer in peers_for(pool, 4):
        peer.generate(pool.encode("abc"), 12)
    logger.warning("another")
    assert {record.getMessage() for record in caplog.records} == {"another"}


def test_the_settings_of_a_model_s_own_do_not_change_what_peers_write(pool, monkeypatch):
    prompt = pool.encode("abc")
    expected = tiny.greedy(pool.target.model, prompt, 24)
    monkeypatch.setattr(pool.target.model.generation_config, "repetition_penalty", 1.8)
    for peer in peers_for(pool, 4):
        assert peer.generate(prompt, 24).token_ids == expected or peer.name == "llama.cpp, float16"


def test_a_drafter_that_does_not_fit_assists_nobody(pool):
    names = [peer.name for peer in peers_for(pool, 4, "alone")]  # its window is shorter than the target's
    assert "transformers, assisted by near, constant" in names and not any("alone" in name for name in names)


def test_stop_tokens_end_an_output(loaded_pool):
    prompt = loaded_pool.encode("abc")
    for peer in peers_for(loaded_pool, 4):
        tokens = peer.generate(prompt, 60).token_ids
        assert len(tokens) == 60 or tokens[-1] in loaded_pool.stop_ids


def test_other_devices_and_types_are_refused(pool, monkeypatch):
    monkeypatch.setattr(pool.target, "model", tiny.llama(1).bfloat16())
    with pytest.raises(UserError, match="--peers compares on the CPU in float32"):
        peers_for(pool, 4)


@pytest.mark.skipif(not importlib.util.find_spec("llama_cpp"), reason="llama_cpp is not installed")
def test_llama_cpp_is_among_them(pool):
    peers = [peer for peer in peers_for(pool, 4) if isinstance(peer, LlamaCpp)]
    assert [peer.name for peer in peers] == ["llama.cpp", "llama.cpp, float16", "llama.cpp, assisted by near"]


def test_the_drafter_of_llama_cpp_reads_the_prompt_during_prefill(monkeypatch):
    clock = [0.0]

    class Model(engines._LlamaCppModel):
        def __init__(self):
            self.cached = []

        def feed(self, ids, start):
            clock[0] += len(ids)
            return [7] * len(ids)

    monkeypatch.setattr(engines.time, "perf_counter", lambda: clock[0])
    peer = LlamaCpp.__new__(LlamaCpp)
    peer.stop, peer.draft_length, peer.target, peer.drafter = frozenset(), 3, Model(), Model()
    found = peer.generate(range(10), 5)
    assert found.token_ids == [7] * 5
    assert (found.prefill_seconds, found.seconds) == (10 + 10, 20 + 3 + 4)


@pytest.mark.skipif(not importlib.util.find_spec("gguf"), reason="gguf is not installed")
def test_a_file_of_half_precision_holds_matrices_in_float16(pool, tmp_path):
    import gguf

    for half, kind in ((False, "F32"), (True, "F16")):
        write_gguf(pool.target.model, tmp_path / "model.gguf", half=half)
        tensors = gguf.GGUFReader(tmp_path / "model.gguf").tensors
        assert {tensor.tensor_type.name for tensor in tensors if len(tensor.shape) > 1} == {kind}
        assert {tensor.tensor_type.name for tensor in tensors if len(tensor.shape) == 1} == {"F32"}


def test_what_llama_cpp_lacks_is_named(pool, monkeypatch):
    monkeypatch.setattr(engines, "LLAMA_CPP", ("torch", "not_installed_here"))
    assert engines.missing_packages() == ["not_installed_here"]
    assert not any(isinstance(peer, LlamaCpp) for peer in peers_for(pool, 4))


class StandIn:
    """vLLM's class as far as it is used, with transformers inside."""

    def __init__(self, folder, **settings):
        self.model, self.settings = AutoModelForCausalLM.from_pretrained(folder), settings

    def generate(self, prompts, params, use_tqdm):
        (ids,) = (prompt["prompt_token_ids"] for prompt in prompts)
        output = tiny.greedy(self.model, ids, params.max_tokens)
        ends = [at + 1 for at, token in enumerate(output) if token in params.stop_token_ids]
        made = SimpleNamespace(token_ids=tuple(output[: min(ends, default=None)]))
        return [SimpleNamespace(outputs=[made], metrics=SimpleNamespace(first_token_latency=1e-6))]


@pytest.mark.skipif(vllm_peer.installed(), reason="tests.vllm_engine runs the real one")
def test_vllm_is_a_peer_where_it_is_installed(loaded_pool, monkeypatch):
    assert vllm_peer.vllm_peers(loaded_pool, 4) == []
    monkeypatch.setattr(vllm_peer, "installed", lambda: True)
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=StandIn, SamplingParams=SimpleNamespace))
    plain, ngram = vllm_peer.vllm_peers(loaded_pool, 4)
    assert (plain.name, ngram.name) == ("vLLM", "vLLM, n-gram")
    assert ngram.engine.settings["speculative_config"]["num_speculative_tokens"] == 4
    prompt = loaded_pool.encode("abc")
    peer = peers_for(loaded_pool, 4)[0]
    assert plain.generate(prompt, 30).token_ids == peer.generate(prompt, 30).token_ids
    assert plain.engine.model.dtype == torch.float32
