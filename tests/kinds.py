"""A pool of a few kilobytes with every kind of drafter, as chains and as trees."""

from pathlib import Path
from typing import Any

import numpy as np
import yaml

from drafters.kinds.mtp import MTPDrafter
from drafters.models.ngram import count_ngrams
from drafters.pool import Pool, load_pool
from drafters.retrieval.datastore import END, write_datastore
from tests import heads, medusa, tiny
from tests.drafters.kinds.test_block import flash_model, mtp_model

TREE = {"nodes": 12, "branches": 4}
DRAFTERS: list[dict[str, Any]] = [
    {"name": "near", "kind": "lm", "path": "near"},
    {"name": "far", "kind": "lm", "path": "far"},
    {"name": "hub", "kind": "lm", "path": "alone"},
    {"name": "bridged", "kind": "lm", "path": "bridged"},
    {"name": "student", "kind": "student", "path": "far"},
    {"name": "lookup", "kind": "pld"},
    {"name": "suffix", "kind": "suffix", "past": 0},
    {"name": "suffix-tree", "kind": "suffix", "nodes": 8, "confidence": 0, "past": 0},
    {"name": "rest", "kind": "rest", "path": "past.store"},
    {"name": "rest-tree", "kind": "rest", "path": "past.store", "nodes": 8},
    {"name": "lookahead", "kind": "lookahead"},
    {"name": "eagle-1", "kind": "eagle", "path": "eagle1"},
    {"name": "eagle-1-tree", "kind": "eagle", "path": "eagle1", **TREE},
    {"name": "eagle-3", "kind": "eagle", "path": "eagle3"},
    {"name": "eagle-student", "kind": "eagle-student", "path": "eagle3"},
    {"name": "eagle-3-tree", "kind": "eagle", "path": "eagle3", **TREE},
    {"name": "medusa", "kind": "medusa", "path": "medusa"},
    {"name": "medusa-tree", "kind": "medusa", "path": "medusa", **TREE},
    {"name": "r-medusa", "kind": "medusa", "path": "medusa", "rescorer": "trigrams.safetensors"},
    {"name": "bpd", "kind": "bpd", "path": "bpd"},
    {"name": "bpd-tree", "kind": "bpd", "path": "bpd", **TREE},
    {"name": "r-bpd-tree", "kind": "bpd", "path": "bpd", "rescorer": "trigrams.safetensors", **TREE},
    {"name": "dflash", "kind": "dflash", "path": "dflash"},
]
NAMES = [*(entry["name"] for entry in DRAFTERS), "mtp"]
"""Layers for multi-token prediction belong to a target's checkpoint, and none of a Llama is known: made by hand."""


def write_pool(folder: Path, seed: int = 1) -> Path:
    """Write models, heads, datastore and card of the pool to ``folder``.

    Args:
        seed: of the target's weights, and those of the models that resemble it.

    Returns:
        The card's path; load it by :func:`load`.
    """
    card = tiny.write_pool(folder, drafters=DRAFTERS, draft_length=4)
    target = tiny.llama(seed, layers=3, num_mtp_layers=2)
    target.save_pretrained(folder / "target")
    for other, name in enumerate(("near", "far", "bridged"), start=seed + 1):
        tiny.blend(tiny.llama(other, layers=3), target, 0.1 if name == "near" else 0.3).save_pretrained(folder / name)
    tiny.tokenizer().save_pretrained(folder / "bridged")
    vocabulary = folder / "bridged" / "tokenizer.json"
    vocabulary.write_text(vocabulary.read_text().replace('"j":', '"J":', 1).replace('"i":', '"I":', 1))
    for layout in ("eagle1", "eagle3"):
        heads.write_head(folder / layout, layout, target)
    heads.teach(folder / "eagle3", target)
    medusa.write_medusa(folder / "medusa", medusa.medusa_tensors())
    medusa.write_bpd(folder / "bpd", medusa.bpd_tensors())
    answers = heads.answers(target)
    count_ngrams(answers, tiny.VOCAB).save(folder / "trigrams.safetensors")
    past = [token for answer in answers[:10] for token in [*answer, END]]
    write_datastore(folder / "past.store", np.array(past, dtype=np.uint32), tiny.tokenizer())
    flash_model().save_pretrained(folder / "dflash")
    return card


def load(card: Path, *, dtype: str = "float32", device: str = "cpu") -> Pool:
    """The pool in some precision on some device, without stop tokens, so that outputs have their full length."""
    path = card.with_name(f"{dtype}.yaml")
    path.write_text(yaml.safe_dump({**yaml.safe_load(card.read_text()), "dtype": dtype}))
    pool = load_pool(path, device=device)
    model = pool.target.model
    layers = mtp_model(model).to(model.device, model.dtype)
    drafters = [*pool.drafters, MTPDrafter("mtp", layers, model, pool.target)]
    return Pool(pool.target, drafters, pool.tokenizer, pool.card)


def part_of(pool: Pool, *names: str) -> Pool:
    """The pool with some of its drafters only."""
    drafters = [drafter for drafter in pool.drafters if drafter.name in names]
    return Pool(pool.target, drafters, pool.tokenizer, pool.card)
