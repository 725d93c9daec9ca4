"""Qwen2.5's vocabularies as they are: 151,665 tokens in 152,064 rows of the target and 151,936 of the drafters."""

import pytest
import torch
import yaml

import multidraft as md
from drafters.errors import PoolError
from drafters.pool import load_pool
from drafters.sampling import SamplingParams
from tests import tiny, twins

TARGET_ROWS, DRAFTER_ROWS, TOKENS = 152_064, 151_936, 151_665
ADDED = {"<|endoftext|>": 151_643, "<|im_start|>": 151_644, "<|im_end|>": 151_645, "</tool_call>": 151_658}
CODE_ONLY = {"<|fim_prefix|>": 151_659, "<|file_sep|>": 151_664}


def tokenizer(added):
    """Letters at the low ids, added tokens where Qwen2.5 has them."""
    letters = {letter: 32 + place for place, letter in enumerate("abcdefghij ")}
    special = [token for token in added if token != "<|im_end|>"]
    return tiny.characters({"?": 0, **letters, **added}, eos_token="<|im_end|>", additional_special_tokens=special)


def config(name, rows):
    settings = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "vocab_size": rows}
    return {**twins.shrunk(twins.CONFIGS[name]), **settings, "head_dim": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The card of qwen2.5-7b with models of one layer and whole vocabularies. The target often takes padded rows."""
    folder = tmp_path_factory.mktemp("padded")
    path = twins.write_pool(folder, "qwen2.5-7b", dtype="float32")
    target = twins.write_model(folder / "target", config("Qwen/Qwen2.5-7B-Instruct", TARGET_ROWS), 1)
    with torch.no_grad():
        target.lm_head.weight[DRAFTER_ROWS:] *= 1.5
    target.save_pretrained(folder / "target")
    tokenizer(ADDED).save_pretrained(folder / "target")
    for entry in yaml.safe_load(path.read_text())["drafters"]:
        if entry["kind"] == "lm":
            name = entry["path"].replace("--", "/")
            drafter = twins.write_model(folder / entry["path"], config(name, DRAFTER_ROWS), 3)
            with torch.no_grad():
                drafter.model.embed_tokens.weight.add_(target.model.embed_tokens.weight[:DRAFTER_ROWS])
            drafter.save_pretrained(folder / entry["path"])
            tokenizer(ADDED | CODE_ONLY if "Coder" in name else ADDED).save_pretrained(folder / entry["path"])
    return folder


@pytest.fixture(scope="module")
def pool(folder):
    return tiny.load(folder)


def test_unequal_rows_and_further_added_tokens_need_no_bridge(pool):
    assert [drafter.kind for drafter in pool.drafters] == ["lm", "lm", "lm", "pld", "suffix"]
    assert pool.target.vocab_size == TARGET_ROWS
    assert {drafter.model.vocab_size for drafter in pool.drafters[:3]} == {DRAFTER_ROWS}


@pytest.mark.parametrize("policy", ["fixed:general", "fixed:code", "fixed:math", "normal-hedge", "draft-all"])
def test_greedy_output_is_the_targets_own_with_padded_rows_in_it(pool, policy):
    ids = pool.encode("abcabc")
    expected = tiny.greedy(pool.target.model, ids, 24)
    assert any(token >= DRAFTER_ROWS for token in expected) and any(token < DRAFTER_ROWS for token in expected)
    assert md.generate(pool, "abcabc", policy, SamplingParams(24, draft_length=4)).token_ids == expected


def test_sampled_drafts_give_no_probability_to_rows_that_a_drafter_lacks(pool):
    generator = torch.Generator().manual_seed(1)
    params = SamplingParams(8, temperature=1.0, draft_length=4)
    for drafter in pool.drafters[:3]:
        draft = drafter.propose([40, 41, TARGET_ROWS - 1, 42], 4, params, generator)
        assert draft.q.shape == (len(draft), TARGET_ROWS)
        assert float(draft.q[:, DRAFTER_ROWS:].sum()) == 0.0
        assert draft.q.sum(dim=-1).tolist() == pytest.approx([1.0] * len(draft), abs=1e-3)
    out = md.generate(pool, "abc", "normal-hedge", SamplingParams(16, temperature=1.0, draft_length=4))
    assert len(out.token_ids) == 16


def test_the_text_of_padded_rows_is_empty(pool):
    assert pool.decode([32, TARGET_ROWS - 1, DRAFTER_ROWS, 33, TOKENS]) == "ab"


def test_a_vocabulary_that_no_padding_explains_needs_a_tokenizer(pool_folder):
    tiny.llama(9, vocab=tiny.VOCAB + 1100).save_pretrained(pool_folder / "near")
    with pytest.raises(PoolError, match=r"drafter 'near' has a vocabulary of 1,1.. tokens, .* no tokenizer says"):
        load_pool(pool_folder)
    tiny.tokenizer().save_pretrained(pool_folder / "near")
    assert load_pool(pool_folder).drafters[0].name == "near"
