"""Drafters of some tokens of their vocabulary: what they compute, what they are read from, and that outputs are the
target's."""

import json
import math
from dataclasses import replace

import pytest
import torch
import yaml

from drafters.checkpoints.model_sizes import weight_bytes
from drafters.memory import estimate
from drafters.models.decoder import DraftOptions
from drafters.models.decoder_graph import unsupported
from drafters.models.runtimes import groups_with
from drafters.models.token_map import ConfinedHead, confine
from drafters.models.torch_decoder import TorchGroup, alike
from drafters.pool import load_pool
from drafters.sampling import SamplingParams
from multidraft import PoolError, generate, generate_batch
from tests import tiny
from tests.plain import IDS

TOKENS = [9, 2, 5, 11, 4, 3]
OPTIONS = DraftOptions(2, SamplingParams(), torch.Generator(), tiny.VOCAB)


def confined(tokens=TOKENS, **settings):
    model = tiny.llama(1, **settings)
    model.lm_head = ConfinedHead(model.lm_head, tokens)
    return model


@pytest.mark.parametrize("settings", [{}, {"tie_word_embeddings": True}], ids=str)
@pytest.mark.parametrize("runtime", tiny.RUNTIMES)
def test_logits_are_those_of_the_whole_layer_at_its_tokens_and_of_others_none(runtime, settings):
    expected = tiny.logits_of(tiny.llama(1, **settings), IDS)
    found = tiny.RUNTIMES[runtime](confined(**settings)).forward(IDS, 0)
    assert found.shape == expected.shape
    torch.testing.assert_close(found[:, TOKENS], expected[:, TOKENS], rtol=1e-4, atol=5e-5)
    others = [token for token in range(tiny.VOCAB) if token not in TOKENS]
    assert (found[:, others] == -math.inf).all()


@pytest.mark.parametrize("runtime", tiny.RUNTIMES)
def test_a_draft_after_a_text_that_is_read_in_pieces(runtime, monkeypatch):
    drafts = []
    for pieces in (False, True):
        decoder = tiny.RUNTIMES[runtime](confined())
        if pieces:
            monkeypatch.setattr(decoder, "most", lambda end: 3, raising=False)
        drafts.append(decoder.draft(IDS, 0, replace(OPTIONS, with_q=True)))
        assert set(drafts[-1].tokens) <= set(TOKENS) and len(drafts[-1]) == 2
    assert drafts[0].tokens == drafts[1].tokens
    torch.testing.assert_close(drafts[0].q, drafts[1].q, rtol=1e-4, atol=5e-5)


@pytest.mark.parametrize("static", [False, True])
def test_models_with_maps_of_any_length_share_a_forward(static):
    models = [confined(), confined([7, 1, 8]), confined([5])]
    expected = torch.stack([tiny.logits_of(model, IDS)[-3:] for model in models])
    assert all(alike(models[0], model) for model in models)
    group = TorchGroup(models, static=static)
    torch.testing.assert_close(group.forward(IDS, [0, 0, 0], last=3), expected, rtol=1e-4, atol=5e-5)
    for decoder, logits in zip(group.decoders, expected, strict=True):
        torch.testing.assert_close(decoder.forward(IDS, 0, last=3), logits, rtol=1e-4, atol=5e-5)


def test_one_with_a_map_and_one_without_share_none():
    assert not alike(confined(), tiny.llama(1))
    assert groups_with(confined(), tiny.llama(1))  # on ONNX Runtime, in turn


@pytest.mark.parametrize("runtime", tiny.RUNTIMES)
def test_padding_of_its_vocabulary_is_never_drafted(runtime):
    """The target has fewer tokens than the drafter, whose map names some of the others."""
    decoder = tiny.RUNTIMES[runtime](confined([3, 2, 5, 11, 10]))
    draft = decoder.draft(IDS, 0, DraftOptions(8, SamplingParams(), torch.Generator(), 10, with_q=True))
    assert len(draft.tokens) == 8 and set(draft.tokens) <= {2, 3, 5} and draft.q.shape == (8, 10)


def test_of_equal_logits_the_lowest_id_is_drafted(tmp_path):
    (file := tmp_path / "map.json").write_text("[9, 4, 6]")
    model = tiny.llama(1)
    confine(model, file)
    torch.nn.init.zeros_(model.lm_head.rows.weight)
    drafts = [tiny.RUNTIMES[name](model).draft(IDS, 0, OPTIONS).tokens for name in tiny.RUNTIMES]
    assert drafts == [(4, 4)] * len(drafts)


def test_tokens_listed_twice_count_once(tmp_path):
    """FR-Spec's script appends an encoded end token, to which tokenizers such as Llama 3's add the first of a text."""
    torch.save([5, 9, 4, 5, 2], file := tmp_path / "freq_4.pt")
    model = tiny.llama(1)
    confine(model, file)
    assert model.lm_head.tokens.tolist() == [2, 4, 5, 9]


def test_a_map_beside_a_tied_embedding_does_not_make_a_model_too_large(monkeypatch):
    model = tiny.llama(1, tie_word_embeddings=True)
    monkeypatch.setattr("drafters.models.decoder_graph.MAX_PARAMETERS", model.num_parameters())
    assert unsupported(confined(tie_word_embeddings=True)) is None


def test_output_layers_are_estimated_unquantised():
    """What bitsandbytes leaves as it is."""
    whole, part = (weight_bytes(model, 2, "nf4") for model in (tiny.llama(1), confined()))
    hidden = tiny.llama(1).config.hidden_size
    assert whole - part == 2 * hidden * (tiny.VOCAB - len(TOKENS))


@pytest.mark.parametrize("name", ["map.json", "map.pt"])
def test_files_of_token_ids(tmp_path, name):
    file, model = tmp_path / name, tiny.llama(1)
    if name == "map.json":
        file.write_text(json.dumps(TOKENS))
    else:
        torch.save(torch.tensor(TOKENS), file)
    confine(model, file)
    assert model.lm_head.tokens.tolist() == sorted(TOKENS) and model.lm_head.rows.weight.shape[0] == len(TOKENS)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "cannot be read"),
        ("{", "cannot be read"),
        ("{}", "is a list of token ids"),
        ("[]", "is a list of token ids"),
        ("[1, 2.5]", "is a list of token ids"),
        ("[1, true]", "is a list of token ids"),
        ("[1, -2]", f"token -2 is not among the drafter's {tiny.VOCAB} tokens"),
        (f"[1, {tiny.VOCAB}]", f"token {tiny.VOCAB} is not among the drafter's {tiny.VOCAB} tokens"),
    ],
)
def test_what_is_no_token_map(tmp_path, content, why):
    (file := tmp_path / "map.json").write_text(content)
    with pytest.raises(PoolError, match=why) as raised:
        confine(tiny.llama(1), file)
    assert str(file) in str(raised.value)


def test_damaged_files_of_pytorch_and_other_output_layers(tmp_path):
    for content in (b"words", b"\x80\x02.", b"\x80\x02h\x01."):  # of the latter unpickling finds no object to return
        (file := tmp_path / "map.pt").write_bytes(content)
        with pytest.raises(PoolError, match="the token map cannot be read"):
            confine(tiny.llama(1), file)
    with pytest.raises(PoolError, match="needs a drafter with a plain output layer"):
        confine(confined(), file)


NAMES = "near", "far", "bridged"


@pytest.fixture(scope="module")
def card(kinds_card):
    """All language models of the pool with every second token, ``far`` in 8 bits."""
    (kinds_card.parent / "half.json").write_text(json.dumps(list(range(0, tiny.VOCAB, 2))))
    entries = [each for each in yaml.safe_load(kinds_card.read_text())["drafters"] if each["name"] in NAMES]
    path = kinds_card.with_name("half.yaml")
    path.write_text(kinds_card.read_text())
    changed = [{**each, "token_map": "half.json"} for each in entries]
    changed[1]["quantization"] = "int8"
    return tiny.change_card(path, drafters=changed)


@pytest.fixture(scope="module")
def pool(card):
    return tiny.load(card, device="cpu")


@pytest.mark.parametrize("policy", [*(f"fixed:{name}" for name in NAMES), "normal-hedge", "rate-hedge"])
def test_outputs_are_the_target_s(pool, policy):
    prompts, params = tiny.texts(3), SamplingParams(24, draft_length=5)
    expected = [tiny.greedy(pool.target.model, pool.encode(prompt), 24) for prompt in prompts]
    found = [generate(pool, prompt, policy, params) for prompt in prompts]
    assert [one.token_ids for one in found] == expected
    assert [one.token_ids for one in generate_batch(pool, prompts, policy, params)] == expected


def test_it_drafts_its_tokens_alone(pool):
    near, ids = pool.drafters[0], pool.encode(tiny.texts(1)[0])
    for temperature in (0.0, 1.0):
        params = SamplingParams(24, temperature=temperature)
        draft = near.propose(ids, 12, params, torch.Generator().manual_seed(0), with_q=True)
        assert len(draft.tokens) == 12 and not any(token % 2 for token in draft.tokens)
        assert draft.q.shape == (12, tiny.VOCAB) and not draft.q[:, 1::2].any()
        torch.testing.assert_close(draft.q.sum(-1), torch.ones(12))


def test_the_estimate_counts_the_rows_that_are_kept(card, pool):
    parts = estimate(pool.card, card, "cpu").parts[1:]
    assert [part.parameters for part in parts] == [drafter.parameter_count for drafter in pool.drafters]


def test_a_missing_map_is_named(card):
    with pytest.raises(PoolError, match=r"gone\.json"):
        load_pool(
            tiny.change_card(card, drafters=[{"name": "a", "kind": "lm", "path": "near", "token_map": "gone.json"}])
        )
