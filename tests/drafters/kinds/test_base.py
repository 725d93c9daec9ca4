"""Entries of cards: read by the model of their kind, written back whole, in the schema with their own fields."""

from types import SimpleNamespace
from typing import Literal

import pytest
from jsonschema import Draft202012Validator

from drafters.card import Card, card_schema
from drafters.errors import PoolError
from drafters.kinds import KINDS
from drafters.kinds.base import DrafterEntry, FileEntry, register

POOL = {"name": "p", "title": "P", "target": {"path": "target"}}
ENTRIES = [
    {"name": "a", "kind": "eagle", "path": "head", "confidence": 0.5},
    {"name": "b", "kind": "eagle", "path": "head", "nodes": 16, "branches": 4},
    {"name": "c", "kind": "eagle", "id": "some/head"},
    {"name": "d", "kind": "suffix", "nodes": 30, "past": 10},
    {"name": "e", "kind": "lookahead", "columns": 4, "ngram": 3, "guesses": 2},
    {"name": "f", "kind": "medusa", "path": "heads", "rescorer": "trigrams"},
    {"name": "g", "kind": "lm", "id": "some/lm", "quantization": "nf4"},
    {"name": "h", "kind": "mtp"},
]


@pytest.fixture
def card():
    return Card.model_validate({**POOL, "drafters": ENTRIES})


def test_every_kind_says_what_it_is():
    assert len(KINDS) >= 11
    for name, kind in KINDS.items():
        assert kind.title and kind.description
        assert kind.__module__ == "drafters.kinds." + name.replace("-", "_")


def test_entries_are_read_by_their_kind_and_written_back_whole(card):
    assert [type(entry) for entry in card.drafters] == [KINDS[entry["kind"]] for entry in ENTRIES]
    assert card.model_dump(exclude_unset=True)["drafters"] == ENTRIES
    assert Card.model_validate(card.model_dump(exclude_unset=True)) == card


def test_heads_from_one_source_are_shared(card):
    assert [card.shares_with(entry) for entry in card.drafters] == [None, "a", *[None] * 6]


def test_sources_and_local_paths(card):
    assert [source.path or source.id for source in card.sources] == [
        "target", "head", "head", "some/head", "heads", "some/lm",
    ]  # fmt: skip
    assert card.sources[-1].quantization == "nf4"
    assert [path for entry in card.drafters for path in entry.local_paths.values()] == [
        "head",
        "head",
        "heads",
        "trigrams",
    ]


def test_nodes_to_verify(card):
    assert [entry.most_nodes(6) for entry in card.drafters] == [6, 16, 6, 30, (2 + 4) * 2, 6, 6, 6]


@pytest.mark.parametrize(
    ("entry", "valid"),
    [
        *((entry, True) for entry in ENTRIES),
        ({"name": "x", "kind": "pld", "nodes": 3}, False),
        ({"name": "x", "kind": "suffix", "nodes": 0}, False),
        ({"name": "x", "kind": "rest"}, False),
        ({"name": "x", "kind": "magic"}, False),
        ({"name": "x"}, False),
    ],
)
def test_the_schema_knows_the_fields_of_each_kind(entry, valid):
    assert Draft202012Validator(card_schema()).is_valid({**POOL, "drafters": [entry]}) == valid


def test_a_file_that_is_missing_is_told_with_the_drafter(tmp_path):
    class Read(FileEntry):
        def build(self, context):
            return self.file(context).read_text()

    context = SimpleNamespace(card=tmp_path / "card.yaml", steps=SimpleNamespace(begin=lambda *_: None))
    with pytest.raises(PoolError, match=rf"drafter 'a': there is no file {tmp_path}/nope\.npy"):
        Read.build_all([Read(name="a", kind="read", path="nope.npy")], context)


@pytest.mark.parametrize(
    ("kind", "said", "why"),
    [
        (Literal["pld"], {"title": "T", "description": "D"}, "Mine: PromptLookupEntry is of the kind 'pld' already"),
        (Literal["mine"], {"title": "T"}, "Mine needs a kind of one name, .* a title and a description"),
        (Literal["mine", "ours"], {"title": "T", "description": "D"}, "Mine needs a kind of one name"),
        (str, {"title": "T", "description": "D"}, "Mine needs a kind of one name"),
    ],
)
def test_kinds_that_cannot_be_registered(kind, said, why):
    known = dict(KINDS)
    with pytest.raises(PoolError, match=f"^{why}"):
        register(type("Mine", (DrafterEntry,), {"__annotations__": {"kind": kind}, **said}))
    assert known == KINDS and register(KINDS["pld"]) is known["pld"]
