"""The bundled cards of real models: valid, the sizes that are published, and twins of them load and decode exactly."""

import json

import jsonschema
import pytest
import torch
import yaml

import multidraft as md
from drafters.card import POOLS, SCHEMA, card_schema, find_card, load_card, pool_names
from drafters.checkpoints.model_sizes import RECORDED, config_of, skeleton, weight_bytes
from drafters.hardware import GIB
from drafters.kinds.base import SizeContext
from drafters.memory import estimate
from drafters.pool import load_pool
from drafters.sampling import SamplingParams
from tests import tiny, twins
from tests.engine_cases import check_greedy

REAL = [name for name in pool_names() if not name.startswith("pocket")]
OTHER_POCKETS = [name for name in pool_names() if name.startswith("pocket") and name != "pocket"]

PUBLISHED = {
    "Qwen/Qwen2.5-0.5B-Instruct": 494_032_768,
    "Qwen/Qwen2.5-Coder-0.5B-Instruct": 494_032_768,
    "Qwen/Qwen2.5-Math-1.5B-Instruct": 1_543_714_304,
    "Qwen/Qwen2.5-3B-Instruct": 3_085_938_688,
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "Qwen/Qwen3-0.6B": 596_049_920,  # the output layer is the embedding
    "Qwen/Qwen3-8B": 8_190_735_360,
    "meta-llama/Llama-3.1-8B-Instruct": 8_030_261_248,
    "meta-llama/Llama-3.2-1B-Instruct": 1_235_814_400,
    "lmsys/vicuna-7b-v1.3": 6_738_415_616,
    "double7/vicuna-68m": 68_030_208,
}
"""Parameters, as the Hub counts them."""

FILES = {
    "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B": (850e6, 2),
    "yuhuili/EAGLE-Vicuna-7B-v1.3": (1.47e9, 4),
    "FasterDecoding/medusa-vicuna-7b-v1.3": (1_478_493_144, 2),
    "z-lab/Qwen3-8B-DFlash-b16": (1.95 * GIB, 2),
}
"""Bytes of the weight files that the Hub lists for heads, and of a number in them."""


ROOM = 64
"""Tokens of an answer that fills a context."""


@pytest.fixture(scope="module", params=REAL)
def twin(request, tmp_path_factory):
    """A pool of twins: name, card, path, pool."""
    path = twins.write_pool(tmp_path_factory.mktemp(request.param), request.param)
    return request.param, load_card(path)[0], path, tiny.load(path)


def test_the_schema_is_that_of_the_model():
    assert json.loads(SCHEMA.read_text()) == card_schema(), "run: python -m drafters.card"


@pytest.mark.parametrize("name", pool_names())
def test_editors_find_the_schema_and_accept_the_card(name):
    text = find_card(name).read_text()
    assert text.startswith(f"# yaml-language-server: $schema={SCHEMA.name}\n")
    jsonschema.validate(yaml.safe_load(text), json.loads(SCHEMA.read_text()))


@pytest.mark.parametrize("wrong", [{"dtype": "int3"}, {"drafer": []}, {"target": {"id": 7}}, {"context_window": 0}])
def test_the_schema_refuses_what_the_model_refuses(wrong):
    content = yaml.safe_load(find_card("qwen2.5-7b").read_text())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**content, **wrong}, json.loads(SCHEMA.read_text()))


@pytest.mark.parametrize("name", REAL)
def test_real_cards_pin_all_their_models(name):
    card, _ = load_card(find_card(name))
    sources = card.sources
    assert all(len(source.revision or "") == 40 for source in sources)
    assert card.examples and card.context_window != 0
    assert {"pld", "suffix"} <= {entry.kind for entry in card.drafters}
    assert all(str(source.id) in twins.CONFIGS for source in sources)


def test_recorded_configurations_have_the_published_sizes():
    named = {str(source.id) for name in REAL for card in [load_card(find_card(name))[0]] for source in card.sources}
    assert named == set(twins.CONFIGS)
    for repository, parameters in PUBLISHED.items():
        assert skeleton(twins.CONFIGS[repository], RECORDED).num_parameters() == parameters, repository


def test_recorded_heads_have_the_sizes_of_the_published_files():
    checked = set()
    for name in REAL:
        card, _ = load_card(find_card(name))
        target = skeleton(*config_of(card.target, POOLS / "x.yaml"))
        for entry in card.drafters:
            if entry.source and entry.source.id in FILES:
                size, itemsize = FILES[entry.id]
                context = SizeContext(POOLS / "x.yaml", target, 2048, 6, torch.bfloat16, "cpu")
                numbers = entry.footprint(context).parameters
                assert numbers * itemsize == pytest.approx(size, rel=0.005), entry.id
                checked.add(entry.id)
    assert checked == set(FILES)


@pytest.mark.parametrize("name", REAL)
def test_a_twin_decodes_as_its_target_alone(name, tmp_path):
    pool = tiny.load(twins.write_pool(tmp_path, name, dtype="float32"))
    for policy in [*(f"fixed:{drafter.name}" for drafter in pool.drafters), "round-robin"]:
        check_greedy(pool, ["abc"], policy, 16)
    assert all(bool(drafter.outputs) == bool(drafter.parameter_count) for drafter in pool.drafters)


def check_held(pool, prompt, card, path):
    """With its context filled, after a prompt of most of it, a pool holds the bytes that the estimate says."""
    ids = (pool.encode(prompt) * pool.target.window)[: pool.target.window - ROOM]
    out = md.generate(pool, ids, "round-robin", SamplingParams(ROOM))
    assert len(out.token_ids) == ROOM
    said = sum(part.weights + part.cache for part in estimate(card, path, "cpu").parts)
    assert twins.held_bytes(pool.target, pool.drafters) == pytest.approx(said, rel=0.1)


def test_a_twin_is_as_large_as_the_estimate_says_once_its_context_is_full(twin):
    _, card, path, pool = twin
    check_held(pool, "abc", card, path)


@pytest.mark.parametrize("name", ["pocket", *(pytest.param(n, marks=pytest.mark.long) for n in OTHER_POCKETS)])
def test_a_pocket_pool_is_as_large_as_the_estimate_says(name):
    pool = tiny.load(name)
    check_held(pool, pool.examples[0][1], pool.card, find_card(name))


@pytest.mark.parametrize("quantization", [None, "nf4", "int8"])
@pytest.mark.parametrize("name", REAL)
def test_a_target_twin_scaled_up_has_the_estimated_weights(name, quantization, tmp_path):
    """Bytes of a number are measured on the loaded twin, in linear layers and elsewhere; the real one has as many."""
    target = {"path": "target", "quantization": quantization}
    pool = load_pool(twins.write_pool(tmp_path, name, target=target, drafters=[{"name": "lookup", "kind": "pld"}]))
    model = pool.target.model
    linear = [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m is not model.get_output_embeddings()]
    numbers = sum(layer.in_features * layer.out_features for layer in linear)
    held = twins.held_bytes(*(layer.weight for layer in linear))
    rest = model.num_parameters() - numbers
    rest_bytes = twins.held_bytes(model) - held

    card, _ = load_card(find_card(name))
    real = skeleton(*config_of(card.target, POOLS / "x.yaml"))
    own = [m for m in real.modules() if isinstance(m, torch.nn.Linear) and m is not real.get_output_embeddings()]
    real_linear = sum(layer.in_features * layer.out_features for layer in own)
    scaled = real_linear * held / numbers + (real.num_parameters() - real_linear) * rest_bytes / rest
    itemsize = getattr(torch, card.dtype).itemsize
    assert weight_bytes(real, itemsize, quantization) == pytest.approx(scaled, rel=0.1)
    if quantization is None:
        assert scaled == pytest.approx(itemsize * real.num_parameters(), rel=0.01)
