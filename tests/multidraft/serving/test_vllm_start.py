import sys
from types import SimpleNamespace

import pytest
import torch

from drafters.pool import load_pool
from multidraft.bench.measure import conditions_of
from multidraft.serving.vllm import MultiDraft
from multidraft.serving.vllm_start import conditions, mend_sampling, repeated
from tests import tiny
from tests.multidraft.serving.stub import Engine, config


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_conditions_are_those_of_our_engine_where_card_and_weights_are_the_same(pool_folder, dtype):
    drafters = [{"name": "near", "kind": "lm", "path": "near", "quantization": "int8"}]
    card = tiny.change_card(pool_folder / "card.yaml", dtype=dtype, drafters=drafters)
    ours, theirs = conditions_of(load_pool(card)), load_pool(card, remote_window=tiny.WINDOW)
    tiny.llama(9).save_pretrained(pool_folder / "other")
    found = {
        folder: conditions(theirs, card, config(model=pool_folder / folder).model_config)
        for folder in ("target", "other", "none")
    }
    assert found["target"].card_hash == ours.card_hash and found["target"].hardware == ours.hardware
    assert len({one.card_hash for one in found.values()}) == 3
    assert found["target"].dtype == "float32, int8 drafters", "the target's type is vLLM's own"
    assert ours.dtype == f"{dtype}, int8 drafters"


def test_a_card_without_all_drafters_is_another(kinds_card):
    pool = load_pool(kinds_card, remote_window=tiny.WINDOW)
    model = config(model=kinds_card.parent / "target").model_config
    assert conditions(pool, kinds_card, model).card_hash == pool.card_hash


PROMPT = [3, 1, 4, 1, 5]


def test_a_student_drafts_as_it_is(pool_folder, monkeypatch):
    entries = [{"name": "student", "kind": "student", "path": "near"}]
    card = tiny.change_card(pool_folder / "card.yaml", drafters=entries)
    monkeypatch.setenv("MULTIDRAFT_POOL", str(card))
    monkeypatch.setenv("MULTIDRAFT_POLICY", "fixed:student")
    monkeypatch.delenv("MULTIDRAFT_DB", raising=False)
    proposer = MultiDraft(config())
    engine = Engine(proposer, [(PROMPT, tiny.greedy(load_pool(card).target.model, PROMPT, 20))])
    engine.run()
    assert len(engine.rounds[0]) < 20
    proposer._look_after(float("inf"))
    assert proposer.pool.study() == 0.0


@pytest.mark.parametrize("wrong", [True, False])
def test_what_vllm_makes_of_temperatures_on_a_cpu_is_put_right_where_it_is_wrong(monkeypatch, wrong):
    nothing = lambda values, ends, tokens, *_: torch.full((tokens,), 0.25)  # noqa: E731
    constrain = lambda logits, ends, metadata: logits / logits.max()  # noqa: E731
    expand = nothing if wrong else repeated
    sampler = SimpleNamespace(expand_batch_to_tokens=expand, apply_sampling_constraints=constrain)
    monkeypatch.setitem(sys.modules, "vllm.v1.sample.rejection_sampler", sampler)
    assert mend_sampling() == wrong and sampler.expand_batch_to_tokens is repeated
    assert not mend_sampling()
    assert sampler.apply_sampling_constraints(torch.tensor([[2.0, 4.0]]), None, None).tolist() == [[0.5, 1.0]]
    if wrong:
        assert sampler.apply_sampling_constraints(torch.empty(0, 2), None, None).shape == (0, 2)


def test_values_of_requests_are_repeated_for_their_drafted_tokens():
    found = repeated(torch.tensor([7, 4, 1], dtype=torch.int32), torch.tensor([2, 2, 5]), 5)
    assert found.tolist() == [7, 7, 1, 1, 1] and found.dtype == torch.int32
    assert repeated(torch.tensor([0.0, 0.7]), torch.tensor([1, 2]), 2, 0, 1).tolist() == pytest.approx([1.0, 0.7])
