"""The memory estimate: exact, with advice where it is too much, clear where it cannot be made."""

import json
import re

import pytest
import torch
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError
from transformers import AutoModelForCausalLM

from drafters import memory
from drafters.card import POOLS, Card, find_card, load_card
from drafters.checkpoints import model_sizes
from drafters.checkpoints.eagle import UNUSED, head_shapes, read_head
from drafters.checkpoints.model_sizes import RECORDED, config_of, skeleton, weight_bytes
from drafters.checkpoints.tensor_files import stored_numbers
from drafters.errors import PoolError
from drafters.hardware import GIB, _container_limit, _left_to_container, _meminfo, free_memory, total_memory
from drafters.memory import check_memory, describe_estimate, estimate, remedies, render_estimate
from drafters.models.onnx_decoder import OnnxDecoder
from drafters.pool import load_pool
from drafters.source import Source
from multidraft.__main__ import main
from tests import heads, tiny, twins


def bundled(name):
    return load_card(find_card(name))[0], find_card(name)


@pytest.fixture
def little(monkeypatch):
    """Pretend that so many GiB are free on every device."""
    return lambda gib: monkeypatch.setattr(memory, "free_memory", lambda device: int(gib * GIB))


# What is counted.


@pytest.mark.parametrize("kind", tiny.HUB_KINDS)
@pytest.mark.parametrize("quantization", [None, "nf4", "int8"])
def test_weights_are_counted_as_they_are_held(kind, quantization, tmp_path):
    if kind == "gpt2" and quantization:
        pytest.skip("its layers are of a class of their own")
    target = {"path": "target", "quantization": quantization}
    path = tiny.write_pool(tmp_path, target=target, drafters=[{"name": "lookup", "kind": "pld"}])
    tiny.causal_lm(kind).save_pretrained(tmp_path / "target")
    loaded = load_pool(path).target
    model, copies = loaded.model, 2 if isinstance(loaded.decoder, OnnxDecoder) else 1
    (target,) = estimate(load_card(path)[0], path, "cpu").parts
    buffers = sum(buffer.nbytes for buffer in model.buffers())
    assert target.weights == pytest.approx(copies * (twins.held_bytes(model) - buffers), rel=0.02)


def test_tied_weights_are_counted_once():
    config = twins.shrunk(twins.CONFIGS["Qwen/Qwen3-0.6B"])
    tied, untied = (skeleton({**config, "tie_word_embeddings": tie}, RECORDED) for tie in (True, False))
    assert weight_bytes(untied, 2) - weight_bytes(tied, 2) == 2 * config["vocab_size"] * config["hidden_size"]


@pytest.mark.parametrize("layout", heads.LAYOUTS)
def test_a_heads_configuration_says_as_much_as_its_file(layout, tmp_path):
    target = tiny.llama(1, layers=3)
    folder = heads.write_head(tmp_path / "head", layout, target)
    config, file = json.loads((folder / "config.json").read_text()), folder / "config.json"
    shape, expected = head_shapes(config, target, file)
    read, tensors = read_head(folder, target)
    assert (shape.generation, shape.layers, shape.vocab_size) == (read.generation, read.layers, read.vocab_size)
    if "embed_tokens.weight" not in tensors:
        assert "embed_tokens.weight" not in head_shapes({**config, "own_embedding": False}, target, file)[1]
        del expected["embed_tokens.weight"]
    known = {name for name in expected if not name.endswith(("q_norm.weight", "k_norm.weight"))}
    assert known <= set(tensors)
    assert {name: tuple(tensors[name].shape) for name in known} == {name: expected[name] for name in known}
    stored = next(f for f in (folder / "model.safetensors", folder / "pytorch_model.bin") if f.exists())
    assert stored_numbers(folder, [stored.name], UNUSED) == sum(tensor.numel() for tensor in tensors.values())


def test_context_dtype_and_draft_length_count():
    card, path = bundled("qwen2.5-7b")
    whole = estimate(card, path, "cpu")

    def changed(**changes):
        return estimate(card.model_copy(update=changes), path, "cpu")

    assert changed(context_window=4096).parts[0].cache * 2 == pytest.approx(whole.parts[0].cache, rel=0.01)
    assert changed(context_window=None).context == 32768
    assert changed(context_window=1 << 20).context == 32768
    assert changed(dtype="float32").parts[0].weights == 2 * whole.parts[0].weights
    assert changed(draft_length=60).drafts > whole.drafts
    assert whole.parts[3].name == "math" and whole.parts[3].cache < whole.parts[1].cache * 3
    assert estimate(card, path, "cuda").total == whole.total + GIB // 2


def test_heads_make_the_target_keep_its_states(monkeypatch):
    card, path = bundled("llama-3.1-8b")
    without = card.model_copy(update={"drafters": card.drafters[2:]})
    with_heads, alone = (estimate(c, path, "cpu") for c in (card, without))
    # Three layers of 4,096 numbers of two bytes, in a buffer of twice the context.
    assert with_heads.parts[0].cache - alone.parts[0].cache == 2 * 8192 * 3 * 4096 * 2
    assert with_heads.working == alone.working, "our forward returns the hidden states of those layers only"
    monkeypatch.setattr(memory, "runtime_of", lambda *_: "hub")
    assert estimate(card, path, "cpu").working - estimate(without, path, "cpu").working >= 8192 * 33 * 4096 * 2


def test_a_head_that_two_drafters_use_is_held_once():
    card, path = bundled("llama-3.1-8b")
    without = card.model_copy(update={"drafters": [entry for entry in card.drafters if entry.name != "eagle"]})
    chain, tree = (part for part in estimate(card, path, "cpu").parts if part.kind == "eagle")
    assert (tree.weights, tree.cache) == (0, 0) and tree.parameters == chain.parameters
    alone = next(part for part in estimate(without, path, "cpu").parts if part.kind == "eagle")
    assert (alone.weights, alone.cache) == (chain.weights, chain.cache)
    assert chain.weights > 0 < chain.cache


def test_no_weights_are_touched(monkeypatch):
    def loaded(*args, **kwargs):
        raise AssertionError("weights are loaded")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", loaded)
    card, path = bundled("vicuna-7b")
    assert 16 * GIB < estimate(card, path, "cuda").total < 18 * GIB


# What is said when it is too much.


def test_a_pool_that_does_not_fit_is_refused_before_loading_with_advice(little, monkeypatch):
    monkeypatch.setattr("drafters.pool.usable_device", lambda device, pool: "cuda")
    monkeypatch.setattr("drafters.pool.tokenizer_of", lambda *args: pytest.fail("loading has begun"))
    little(15.6)
    with pytest.raises(PoolError) as caught:
        load_pool("qwen2.5-7b")
    message = str(caught.value)
    assert re.match(r"pool 'qwen2\.5-7b' needs about 21\.\d GiB of memory on cuda, where 15\.6 GiB are free\.", message)
    assert re.search(r"What would fit, in a copy of the card .*qwen2\.5-7b\.yaml: quantization: int8", message)
    assert "MULTIDRAFT_SKIP_MEMORY_CHECK=1" in message and "\n" not in message


@pytest.mark.parametrize("name", ["qwen2.5-7b", "qwen2.5-3b", "qwen3-8b", "llama-3.1-8b", "vicuna-7b"])
@pytest.mark.parametrize("gib", [4, 8, 11, 15, 22])
def test_what_is_advised_fits_and_nothing_milder_would(name, gib):
    card, path = bundled(name)
    free = gib * GIB
    if estimate(card, path, "cuda").total <= free:
        return
    for how, size in remedies(card, path, "cuda", free):
        assert size <= free
        changed = follow(card, how)
        assert estimate(changed, path, "cuda").total == size, how
        if "context_window" in how:
            milder = changed.model_copy(update={"context_window": 2 * changed.context_window})
            assert estimate(milder, path, "cuda").total > free


def follow(card: Card, advice: str) -> Card:
    """The card changed as advice in words says, by its text alone."""
    content = card.model_dump(exclude_unset=True)
    if found := re.search(r"quantization: (\w+) for the target", advice):
        content["target"]["quantization"] = found[1]
    if found := re.search(r"context_window: (\d+)", advice):
        content["context_window"] = int(found[1])
    if found := re.search(r"without (.+)", advice):
        out = found[1].split(" and ")
        content["drafters"] = [drafter for drafter in content["drafters"] if drafter["name"] not in out]
    return Card.model_validate(content)


def test_where_nothing_fits_it_says_so(little):
    little(0.5)
    with pytest.raises(PoolError, match="No quantisation, choice of drafters or shorter context of it would fit"):
        check_memory(*bundled("qwen3-8b"), "cuda")


def test_two_changes_together_where_one_is_not_enough(little):
    card, path = bundled("qwen2.5-7b")
    found = remedies(card, path, "cuda", int(9.0 * GIB))
    assert found and all(how.startswith("quantization: nf4 for the target and without math") for how, _ in found)


def test_the_check_can_be_switched_off(little, monkeypatch):
    little(0.1)
    monkeypatch.setenv("MULTIDRAFT_SKIP_MEMORY_CHECK", "1")
    check_memory(*bundled("qwen3-8b"), "cuda")
    monkeypatch.setenv("MULTIDRAFT_SKIP_MEMORY_CHECK", "0")
    with pytest.raises(PoolError, match="needs about"):
        check_memory(*bundled("qwen3-8b"), "cuda")


def test_where_memory_or_size_are_unknown_loading_goes_on(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "free_memory", lambda device: None)
    check_memory(*bundled("qwen3-8b"), "cuda")
    monkeypatch.setattr(memory, "free_memory", lambda device: 0)
    path = tiny.write_pool(tmp_path)
    (tmp_path / "target" / "config.json").write_text("{}")
    check_memory(load_card(path)[0], path, "cpu")


# What is left for texts.


def test_what_weights_leave_is_for_texts(little):
    card, path = bundled("pocket")
    found = estimate(card, path, "cpu")
    little(8)
    caches = check_memory(card, path, "cpu")
    assert caches.budget == int(0.9 * (8 * GIB - found.alone))
    assert caches.size(1024) == found.text > 2 * (caches.size(448) - found.drafts)
    assert found.texts(8 * GIB) == (8 * GIB - found.alone) // found.text and found.texts(0) == 0
    little((found.total + 1) / GIB)
    assert check_memory(card, path, "cpu").budget == found.text, "at least for one"


def test_a_budget_that_is_set_counts(little):
    card, path = bundled("qwen2.5-7b")
    total = estimate(card, path, "cuda").total / GIB
    little(total + 1)
    assert check_memory(card, path, "cuda", GIB).budget == GIB
    with pytest.raises(PoolError, match=r"4\.0 GiB of it for keys and values, .* Lower MULTIDRAFT_CACHE_MEMORY\."):
        check_memory(card, path, "cuda", 4 * GIB)
    little(10)
    with pytest.raises(PoolError, match=r"What would fit.*, and a lower MULTIDRAFT_CACHE_MEMORY\. Set "):
        check_memory(card, path, "cuda", 4 * GIB)


# What is said when it cannot be told.


class Response:
    headers: dict = {}  # noqa: RUF012
    request = None


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (GatedRepoError, "is gated: ask for access on https://huggingface.co/some/model, then log in"),
        (RepositoryNotFoundError, "does not exist or is private: check the name"),
        (LocalEntryNotFoundError, "cannot be reached: check the network"),
    ],
)
def test_a_configuration_that_cannot_be_fetched(error, message, monkeypatch):
    def fail(*args, **kwargs):
        raise error("no") if error is LocalEntryNotFoundError else error("no", response=Response())

    monkeypatch.setattr(model_sizes, "hf_hub_download", fail)
    with pytest.raises(PoolError, match=f"the Hub repository some/model .*{message}"):
        config_of(Source(id="some/model"), POOLS / "x.yaml")


def test_only_the_configuration_is_fetched(monkeypatch, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(twins.CONFIGS["Qwen/Qwen3-0.6B"]))
    asked = []

    def fetch(repository, file, revision):
        asked.append((repository, file, revision))
        return str(tmp_path / file)

    monkeypatch.setattr(model_sizes, "hf_hub_download", fetch)
    content = {"name": "x", "title": "x", "target": {"id": "some/model", "revision": "abc"}}
    card = Card.model_validate({**content, "drafters": [{"name": "lookup", "kind": "pld"}]})
    assert estimate(card, POOLS / "x.yaml", "cpu").parts[0].parameters == 596_049_920
    assert asked == [("some/model", "config.json", "abc")]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "cannot determine the size of the model in .*config.json"),
        ({"model_type": "zzz"}, "cannot determine the size of the model in .*zzz"),
        ({"model_type": "mamba", "hidden_size": 8, "num_hidden_layers": 1}, "mamba keeps no keys and values"),
    ],
)
def test_a_configuration_of_nothing_known(config, message, tmp_path):
    path = tiny.write_pool(tmp_path)
    (tmp_path / "target" / "config.json").write_text(json.dumps(config))
    with pytest.raises(PoolError, match=message):
        estimate(load_card(path)[0], path, "cpu")


# The command, and what is free.


def test_the_command_prints_the_table(capsys):
    assert main(["pool", "qwen3-8b", "--estimate", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert "| target | Qwen3ForCausalLM | 8,190.7M | bfloat16 | 15.26 |" in out
    assert "| dflash | dflash | 1,048.6M | bfloat16 | 1.95 |" in out and "free: " in out
    assert main(["pool", "qwen3-8b", "--estimate", "--device", "cpu", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    sizes = sum(part["weights"] + part["cache"] for part in content["parts"])
    assert content["total"] == sizes + content["drafts"] + content["working"] + content["reserve"]
    assert content["free"] > 0 and content["texts"] >= 0


def test_the_command_says_what_would_fit(capsys, monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda device: 16 * GIB)
    assert main(["pool", "qwen2.5-7b", "--estimate", "--device", "cuda"]) == 0
    assert "That does not fit. What would fit, in a copy of the card" in capsys.readouterr().out
    monkeypatch.setattr(memory, "free_memory", lambda device: 160 * GIB)
    assert main(["pool", "qwen2.5-7b", "--estimate", "--device", "cuda"]) == 0
    assert "fit" not in capsys.readouterr().out


def test_one_may_ask_of_a_gpu_without_having_it(capsys):
    assert main(["pool", "qwen3-8b", "--estimate", "--device", "cuda:99"]) == 0
    needed = r"needs (\S+) GiB for weights, (\S+) GiB to work in, 0.50 GiB for CUDA's libraries and (\S+) GiB for each"
    found = re.search(needed + r" text under way: (\S+) GiB with one text; free: ", out := capsys.readouterr().out)
    *parts, total = map(float, found.groups())
    assert sum(parts) + 0.5 == pytest.approx(total, abs=0.03) and "MiB" not in out
    assert "free: unknown" in out
    assert main(["pool", "qwen3-8b", "--estimate", "--device", "banana"]) == 2
    assert "device 'banana' of pool 'qwen3-8b' cannot be used" in capsys.readouterr().err


def test_small_pools_are_told_in_mebibytes():
    text = render_estimate(describe_estimate(*bundled("pocket"), "cpu"))
    assert " in MiB, " in text and "| target | LlamaForCausalLM | 8.4M | float32 | " in text


def test_the_command_lists_the_bundled_pools(capsys):
    assert main(["pool", "--list"]) == 0
    assert re.search(r"^vicuna-7b +Vicuna 7B v1\.3", capsys.readouterr().out, re.MULTILINE)
    assert main(["pool", "--list", "--json"]) == 0
    assert "pocket" in [card["name"] for card in json.loads(capsys.readouterr().out)]


def test_free_memory(tmp_path):
    assert (free_memory("cpu") or 0) > 0
    assert free_memory(torch.device("meta")) is free_memory("cuda:99") is free_memory("cudabanana") is None
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    7 kB\n")
    assert _meminfo("MemAvailable", tmp_path / "meminfo") == 7168 and _meminfo("MemTotal", tmp_path / "none") is None
    assert _left_to_container(tmp_path) is _container_limit(tmp_path) is None
    (tmp_path / "memory.max").write_text("max\n")
    assert _left_to_container(tmp_path) is None
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 100\n")
    assert (_left_to_container(tmp_path), _container_limit(tmp_path)) == (400, 1000)
    assert 0 < free_memory("cpu") < total_memory("cpu")
