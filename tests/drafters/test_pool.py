"""Pools from disk: the real path, and what is said when something is missing or broken."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import MambaConfig, MambaForCausalLM

import multidraft as md
from drafters.base import Evidence
from drafters.errors import PoolError, PromptError
from drafters.pool import Pool, load_pool
from drafters.sampling import SamplingParams
from tests import tiny


def test_a_pool_is_loaded_as_its_card_says(pool_card):
    pool = md.load_pool(pool_card)
    assert (pool.name, pool.dtype, pool.draft_length) == ("tiny", "float32", 4)
    assert [d.name for d in pool.drafters] == ["near", "lookup", "far", "alone"]
    assert [d.kind for d in pool.drafters] == ["lm", "pld", "lm", "lm"]
    assert pool.drafters[0].group is pool.drafters[2].group is not None
    assert pool.drafters[1].group is None and pool.drafters[3].group is None
    assert pool.stop_ids == {tiny.END}
    assert len(pool.card_hash) == 16
    assert pool.device == torch.device("cpu")
    assert pool.target.window == tiny.WINDOW
    assert pool.target.model.dtype == torch.float32 and not pool.target.model.training
    assert md.generate(pool, "abc", "ucb", SamplingParams(5)).status in ("completed", "stopped")


def test_the_hash_tells_pools_apart_by_card_and_by_weights(pool_folder):
    first = load_pool(pool_folder).card_hash
    assert load_pool(pool_folder).card_hash == first
    rewrite(pool_folder / "far", lambda w: w["model.norm.weight"].mul_(1.001))
    retrained = load_pool(pool_folder).card_hash
    assert retrained != first
    assert load_pool(tiny.change_card(pool_folder / "card.yaml", draft_length=3)).card_hash not in (first, retrained)


def test_drafters_that_are_left_out_are_not_loaded(pool_folder):
    whole, left = load_pool(pool_folder), load_pool(f"{pool_folder}:without=lookup")
    assert [drafter.name for drafter in left.drafters] == ["near", "far", "alone"]
    assert (left.name, left.title) == ("tiny:without=lookup", f"{whole.title} without lookup")
    assert left.card_hash != whole.card_hash
    assert [entry.name for entry in left.card.drafters] == ["near", "far", "alone"]  # which the page counts by
    shutil.rmtree(pool_folder / "far")
    assert load_pool(f"{pool_folder}:without=near, far").name == "tiny:without=near,far"
    with pytest.raises(PoolError, match="no drafter 'nobody' to leave out; it has near, lookup, far, alone"):
        load_pool(f"{pool_folder}:without=nobody")
    with pytest.raises(PoolError, match="keep at least one"):
        load_pool(f"{pool_folder}:without=near,lookup,far,alone")


def test_a_drafter_with_another_tokenizer_goes_through_text(pool_folder):
    tiny.tokenizer().save_pretrained(pool_folder / "near")
    assert load_pool(pool_folder).drafters[0].kind == "lm"
    path = pool_folder / "near" / "tokenizer.json"
    path.write_text(path.read_text().replace('"b":', '"B":', 1))
    pool = tiny.load(pool_folder)
    assert [drafter.kind for drafter in pool.drafters] == ["bridge", "pld", "lm", "lm"]
    expected = tiny.greedy(pool.target.model, pool.encode("acdcac"), 20)
    assert md.generate(pool, "acdcac", "fixed:near", SamplingParams(20)).token_ids == expected


def test_a_folder_with_a_card_will_do(pool_card):
    assert load_pool(pool_card.parent).name == "tiny"


def test_further_stop_tokens(pool_folder):
    pool = load_pool(tiny.change_card(pool_folder / "card.yaml", stop=["a", "c"]))
    assert pool.stop_ids == {tiny.END, *pool.encode("ac")}
    with pytest.raises(PoolError, match=r"stop token 'abc' of pool 'tiny' is not a single token"):
        load_pool(tiny.change_card(pool_folder / "card.yaml", stop=["abc"]))


def test_stop_tokens_of_the_generation_config(pool_folder):
    path = pool_folder / "target" / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "eos_token_id": [0, 5]}))
    assert load_pool(pool_folder).stop_ids == {0, 5}


def test_examples_are_offered(pool_folder):
    pool = load_pool(tiny.change_card(pool_folder / "card.yaml", examples=[{"task": "math", "prompt": "2+2"}]))
    assert pool.examples == [("math", "2+2")]


def test_prompts_take_the_chat_form_where_there_is_one(pool):
    assert pool.encode("abc") == [2, 3, 4]
    assert pool.decode([2, 3, tiny.END, 4]) == "abc"
    turn = "{% for m in messages %}g{{ m['content'] }}{% endfor %}"
    pool.tokenizer.chat_template = turn + "{% if add_generation_prompt %}h{% endif %}"
    try:
        assert pool.decode(pool.encode("abc")) == "gabch"
    finally:
        pool.tokenizer.chat_template = None


# What can be missing or broken.


CHAT = "{% for m in messages %}{{ 'a' if m['role'] == 'user' else 'b' }}{{ m['content'] }}{% endfor %}b"


def test_a_follow_up_is_encoded_with_the_earlier_turns(pool_folder):
    pool = load_pool(pool_folder)
    assert not pool.conversational
    with pytest.raises(PromptError, match="single prompts"):
        pool.encode("fg", [("cd", "e")])
    pool.tokenizer.chat_template = CHAT
    assert pool.conversational
    assert pool.decode(pool.encode("fg", [("cd", "e")])) == "acdbeafgb"
    out = md.generate(pool, "fg", "ucb", md.SamplingParams(max_new_tokens=9), turns=[("cd", "e")])
    alone = md.generate(pool, pool.encode("fg", [("cd", "e")]), "ucb", md.SamplingParams(max_new_tokens=9))
    assert (out.prompt, out.turns, out.token_ids) == ("fg", (("cd", "e"),), alone.token_ids)
    with pytest.raises(PromptError, match="a text, not token ids"):
        md.generate(pool, [3, 4], turns=[("cd", "e")])


def test_a_card_may_say_that_there_are_no_conversations(pool_folder):
    pool = load_pool(tiny.change_card(pool_folder / "card.yaml", conversation=False))
    pool.tokenizer.chat_template = CHAT
    assert not pool.conversational


def test_an_unknown_pool():
    with pytest.raises(PoolError, match=r"unknown pool 'pokcet'; did you mean pocket\? bundled pools: "):
        load_pool("pokcet")
    with pytest.raises(PoolError, match=r"unknown pool 'nowhere'; bundled pools: .*path of a card"):
        load_pool("nowhere")


@pytest.mark.parametrize("part", ["target", "near", "alone"])
def test_a_missing_folder_is_named(pool_folder, part):
    shutil.rmtree(pool_folder / part)
    with pytest.raises(PoolError, match=rf"card\.yaml names the folder .*/{part}, which does not exist"):
        load_pool(pool_folder)


BREAKAGES = {
    "no weights": lambda model: (model / "model.safetensors").unlink(),
    "truncated weights": lambda model: (model / "model.safetensors").write_bytes(
        (model / "model.safetensors").read_bytes()[:-500]
    ),
    "a truncated header": lambda model: (model / "model.safetensors").write_bytes(
        (model / "model.safetensors").read_bytes()[:20]
    ),
    "empty weights": lambda model: (model / "model.safetensors").write_bytes(b""),
    "weights of a Git LFS pointer": lambda model: (model / "model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    ),
    "no config": lambda model: (model / "config.json").unlink(),
    "a config that is no JSON": lambda model: (model / "config.json").write_text("{"),
    "a config of an unknown architecture": lambda model: (model / "config.json").write_text('{"model_type": "zzz"}'),
    "a config of endless layers": lambda model: (model / "config.json").write_text(
        (model / "config.json").read_text().replace('"num_hidden_layers": ', '"num_hidden_layers": 10000000')
    ),
    "a tensor missing": lambda model: rewrite(model, lambda w: w.pop("model.layers.0.mlp.up_proj.weight")),
    "a tensor of another shape": lambda model: rewrite(
        model, lambda w: w.update({"lm_head.weight": torch.zeros(tiny.VOCAB, 7)})
    ),
}


def test_a_recurrent_model_is_refused(pool_folder):
    shutil.rmtree(pool_folder / "near")
    config = MambaConfig(vocab_size=tiny.VOCAB, hidden_size=8, num_hidden_layers=1, state_size=4)
    MambaForCausalLM(config).save_pretrained(pool_folder / "near")
    with pytest.raises(PoolError, match=r"'near'.*MambaForCausalLM keeps a recurrent state"):
        load_pool(pool_folder)


def rewrite(model, change):
    weights = load_file(model / "model.safetensors")
    change(weights)
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("part", ["target", "near"])
@pytest.mark.parametrize("breakage", BREAKAGES)
def test_a_broken_model_is_refused_with_its_place(pool_folder, part, breakage):
    BREAKAGES[breakage](pool_folder / part)
    with pytest.raises(PoolError) as caught:
        load_pool(pool_folder)
    message = str(caught.value)
    assert str(pool_folder / part) in message
    assert "\n" not in message
    if "config" not in breakage or part == "near":
        assert ("the target" if part == "target" else "drafter 'near'") in message


def test_a_missing_tokenizer_is_refused_with_its_place(pool_folder):
    for file in (pool_folder / "target").glob("tokenizer*"):
        file.unlink()
    with pytest.raises(PoolError, match=r"cannot load the tokenizer from .*/target"):
        load_pool(pool_folder)


@pytest.mark.parametrize("device", ["cudda", "cuda:99", "warp"])
def test_a_device_that_is_not_there(pool_card, device):
    if device.startswith("cuda:") and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(PoolError, match=device):
        load_pool(pool_card, device=device)


# What a pool does with several drafters at once.


def test_gamma_has_a_column_for_each_drafter_in_the_card_s_order(pool):
    context = tiny.prompts(1, seed=40, shortest=18, longest=18)[0]
    p = torch.softmax(torch.randn(8, tiny.VOCAB, generator=torch.Generator().manual_seed(0)), dim=-1)
    for evidence_p, params in ((None, SamplingParams(draft_length=8)), (p, SamplingParams(1, 1.0, draft_length=8))):
        gamma = pool.gamma(Evidence(context, 10, evidence_p, params))
        assert gamma.shape == (8, params.draft_length, 4)
        for column, drafter in enumerate(pool.drafters):
            alone = drafter.gamma(Evidence(context, 10, evidence_p, params))
            np.testing.assert_allclose(
                gamma[..., column], np.broadcast_to(alone.reshape(8, -1), gamma.shape[:2]), atol=1e-5
            )


def test_prepare_reads_the_prompt_with_the_chosen_drafters_only(pool):
    near, _, far, alone = pool.drafters
    for drafter in (near, far, alone):
        drafter.prepare(())
    pool.prepare([2, 3, 4, 5], [2, 3])
    assert (near.cached, far.cached, alone.cached) == ([], [2, 3, 4], [2, 3, 4])
    pool.prepare([6, 7, 8], range(4))
    assert near.cached == far.cached == alone.cached == [6, 7]


def test_a_drafter_that_has_not_read_the_prompt_inherits_nothing_from_another_query(pool: Pool) -> None:
    """Of the same prompt under another policy its cache would hold all of it."""
    near, far = pool.drafters[0], pool.drafters[2]
    context = [1, 2, 3, 4, 5, 6]
    pool.prepare(context, range(len(pool.drafters)))
    assert near.cached == far.cached == context[:-1]
    pool.prepare(context, [0])
    assert near.cached == context[:-1] and far.cached == []
