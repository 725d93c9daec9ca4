"""A pool's card: which target and drafters, from where, in which precision; read from YAML, validated."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from drafters.draft import OWN
from drafters.errors import PoolError, meant, quoted, unreadable
from drafters.kinds import KINDS
from drafters.kinds.base import AnyEntry, DrafterEntry
from drafters.sampling import MAX_DRAFT_LENGTH
from drafters.source import Source, Strict

POOLS = Path(__file__).parent / "pools"
SCHEMA = POOLS / "schema.json"
"""The cards' JSON schema, for editors; ``python -m drafters.card`` writes it."""

MAX_CARD_BYTES = 1_000_000


class Example(Strict):
    """A prompt to offer in the app."""

    task: str
    prompt: str


_OUR_ARGUMENTS = {
    "conversation", "messages", "add_generation_prompt", "continue_final_message", "tokenize", "return_dict",
    "return_tensors", "chat_template", "padding", "truncation", "max_length", "tokenizer_kwargs",
}  # fmt: skip
"""Of a template's arguments those that are not a card's to choose."""


WITHOUT = ":without="
"""In the name of a pool, before the drafters that are left out."""


class Card(Strict):
    """A whole pool."""

    name: str = Field(min_length=1)
    title: str
    description: str = Field("", description="about the pool, for those who use the page")
    target: Source
    drafters: list[AnyEntry] = Field(min_length=1)
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="of all models")
    device: str = Field("auto", description="of all models: auto (the GPU if there is one), cpu, cuda, cuda:1")
    context_window: int | None = Field(
        None,
        ge=2,
        description="most tokens of prompt and answer together; by default, and at most, the target's context window",
    )
    draft_length: int = Field(6, ge=1, le=MAX_DRAFT_LENGTH, description="most tokens drafted per round")
    router: Path | None = Field(None, description="folder of a router, relative to the card")
    stop: list[str] = Field(default_factory=list, description="further stop tokens, each the text of a single token")
    chat_template: str | None = Field(None, description="Jinja text, instead of the template of the target's tokenizer")
    chat_template_kwargs: dict[str, Any] = Field(
        default_factory=dict, description="what the template is given besides the messages, e.g. enable_thinking: false"
    )
    conversation: bool | None = Field(
        None, description="whether a prompt may follow up on earlier answers; by default if there is a chat template"
    )
    only_tasks: bool = Field(
        False, description="whether the target knows nothing but the tasks that the router was trained on"
    )
    examples: list[Example] = Field(default_factory=list)

    @model_validator(mode="after")
    def _unique_names(self) -> Card:
        names = [drafter.name for drafter in self.drafters]
        if doubled := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"drafter names must be unique; twice: {', '.join(sorted(doubled))}")
        if OWN in names:
            raise ValueError(f"no drafter may be called {OWN!r}: that name stands for the target's own tokens")
        if taken := sorted(_OUR_ARGUMENTS & set(self.chat_template_kwargs)):
            raise ValueError(f"chat_template_kwargs cannot set {taken[0]}: the engine does")
        return self

    def routed_names(self) -> dict[str, str]:
        """What the router calls each drafter, by its name."""
        return {entry.name: entry.routed_as or entry.name for entry in self.drafters}

    def without(self, names: Collection[str]) -> Card:
        """The same pool without these drafters, under a name that :func:`load_card` knows.

        Raises:
            PoolError: it has no such drafter, or no other.
        """
        known = [entry.name for entry in self.drafters]
        if unknown := sorted(set(names) - set(known)):
            raise PoolError(
                f"pool {self.name!r} has no drafter {unknown[0]!r:.60} to leave out; it has {', '.join(known)}"
            )
        left = [entry for entry in self.drafters if entry.name not in names]
        if not left:
            raise PoolError(f"pool {self.name!r} cannot be loaded without all of its drafters; keep at least one")
        gone = [name for name in known if name in names]
        name, title = f"{self.name}{WITHOUT}{','.join(gone)}", f"{self.title} without {', '.join(gone)}"
        return self.model_copy(update={"drafters": left, "name": name, "title": title})

    def precision(self, target: str | None = None) -> str:
        """The types of its weights, as the history names them: the target's, then those of quantised drafters.

        Args:
            target: the target's, where another engine has loaded it; by default as the card says.
        """
        if target is None:
            target = f"{self.dtype}, {quantised} weights" if (quantised := self.target.quantization) else self.dtype
        kinds = {entry.stored_as for entry in self.drafters}
        return ", ".join([target, *(f"{kind} drafters" for kind in sorted(filter(None, kinds)))])

    @property
    def sources(self) -> list[Source]:
        """The models it names, the target first."""
        return [self.target, *(source for entry in self.drafters if (source := entry.source))]

    @property
    def local_paths(self) -> dict[str, str]:
        """Files and folders that it names, relative to its own, by the field that does."""
        named = {"target.path": self.target.path, "router": self.router}
        for number, entry in enumerate(self.drafters):
            named |= {f"drafters.{number}.{field}": path for field, path in entry.local_paths.items()}
        return {field: str(path) for field, path in named.items() if path}

    def shares_with(self, entry: DrafterEntry) -> str | None:
        """The earlier drafter whose weights and cache ``entry`` uses too; ``None`` if there is none."""
        for earlier in self.drafters[: self.drafters.index(entry)]:
            if entry.shared_weights and (earlier.kind, earlier.shared_weights) == (entry.kind, entry.shared_weights):
                return earlier.name
        return None


_PARTS: dict[str, tuple[str, type[BaseModel]]] = {
    "": ("the card itself", Card),
    "target": ("the target", Source),
    "examples": ("an example", Example),
}


def pool_names() -> list[str]:
    """Names of the bundled cards."""
    return sorted(path.stem for path in POOLS.glob("*.yaml"))


def is_bundled(pool: str) -> bool:
    """Whether a pool of this name comes with the project; drafters may be left out of it."""
    return pool.partition(WITHOUT)[0] in pool_names()


def find_card(name_or_path: str | Path) -> Path:
    """The card's file, by a bundled name or a path; a :class:`PoolError` for neither lists the bundled cards."""
    if str(name_or_path) in pool_names():
        return POOLS / f"{name_or_path}.yaml"
    path = Path(name_or_path)
    for file in (path / "card.yaml", path):
        if os.path.isfile(file):  # unlike Path.is_file, False for names that no file can have
            return file
    bundled = f"bundled pools: {', '.join(pool_names())}"
    if str(name_or_path) and os.path.isdir(path):
        raise PoolError(f"the folder {path} holds no card.yaml; {bundled}")
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        raise PoolError(f"there is no pool card {path}; {bundled}")
    hint = meant(str(name_or_path), pool_names())
    raise PoolError(f"unknown pool {str(name_or_path)!r}; {hint}{bundled}; or give the path of a card (a .yaml file)")


def card_file(source: str | Path) -> Path:
    """The card's file of a pool, of which drafters may be left out: ``pocket:without=lookup`` (:func:`find_card`)."""
    return find_card(str(source).partition(WITHOUT)[0])


def load_card(source: str | Path, within: Path | None = None) -> tuple[Card, str]:
    """Read and validate a card; with its text, and which drafters are left out.

    Args:
        source: a bundled name or a path; with ``:without=`` and names of drafters, comma-separated, without these.
        within: folder in which all has to lie that the card names, followed through links; by default that is anywhere.

    Raises:
        PoolError: not YAML, or not a valid card; the message names file, field and what is expected.
    """
    path, without = card_file(source), str(source).partition(WITHOUT)[2]
    _check_within(within, path, path.name)
    text, content = _read(path)
    if isinstance(other := content.get("examples"), str):
        beside = path.parent / other
        if not os.path.isfile(beside):
            beside = POOLS / (f"{other}.yaml" if other in pool_names() else other)
        if not os.path.isfile(beside):
            raise PoolError(
                f"the pool card {path} takes its examples from {other!r}, which is neither a card in its folder nor a "
                f"bundled one; bundled pools: {', '.join(pool_names())}"
            )
        if POOLS not in beside.resolve().parents:
            _check_within(within, path, other, "examples")
        content["examples"] = _read(beside)[1].get("examples")
        if not isinstance(content["examples"], list):
            raise PoolError(f"the pool card {path} takes its examples from {other}, which has none of its own")
    try:
        card = Card.model_validate(content)
    except ValidationError as error:
        problems = "; ".join(_problem(each, content) for each in error.errors())
        raise PoolError(f"the pool card {path} is not valid: {problems}") from None
    for field, name in card.local_paths.items():
        _check_within(within, path, name, field)
    if without:
        card = card.without([name.strip() for name in without.split(",")])
        text += f"\n{card.name}"
    return card, text


def _check_within(folder: Path | None, card: Path, name: str, field: str = "") -> None:
    """Refuse a file or folder that a field of a card names, or the card's own file, if it, or a link in it, leads out
    of ``folder``; of where it leads nothing is told."""
    if folder is None:
        return
    inside, named = folder.resolve(), card.parent / name

    def check(place: Path) -> None:
        try:
            if place.resolve(strict=place.is_symlink()).is_relative_to(inside):
                return
        except (OSError, RuntimeError, ValueError):  # links to nothing or in a circle, or a name that no file can have
            pass
        where = f"outside the folder {folder}"
        if not field:
            wrong = f"the pool card {card} is a link to a file {where}"
        elif place == named:
            wrong = f"the pool card {card} names {name!r} in its field {field}, which lies {where}"
        else:
            wrong = f"the pool card {card} names {name!r} in its field {field}; {place.name} in it is a link to {where}"
        raise PoolError(
            f"{wrong}. A card that visitors can choose may only use what lies in that folder: copy the file or folder "
            "into it and name it there, or have the server begin with this card (MULTIDRAFT_POOL, or demo --pool), "
            "which may name files anywhere"
        )

    check(named)
    for place, folders, files in os.walk(named):
        for link in filter(os.path.islink, (os.path.join(place, name) for name in (*folders, *files))):
            check(Path(link))


_OWN_WORDS = ("value_error", "kind", "drafter")
"""Types of the faults that this project words itself."""

_WORDS = {**dict.fromkeys(("model_type", "dict_type"), "must be a mapping"), "path_type": "must be a path"}
"""Other words than pydantic's, which are Python's."""


def _problem(error: ErrorDetails, content: dict[str, Any]) -> str:
    """One problem of a card in words: where, what, and what may have been meant."""
    place, message = list(error["loc"]), error["msg"].removeprefix("Value error, ")
    where = ".".join(map(str, place)) or "card"
    if error["type"] in ("too_short", "list_type") and error["input"] in (None, []):
        return f"{where} is empty; list at least one"
    part = str(place[0]) if len(place) > 1 else ""
    entry = content["drafters"][int(place[1])] if part == "drafters" else None
    if error["type"] == "extra_forbidden":
        message = _misplaced(str(place[-1]), part, entry["kind"] if entry else None)
    elif error["type"] == "missing" and entry:
        needed = KINDS[entry["kind"]].model_fields[str(place[-1])].description
        message = f"a drafter of kind {entry['kind']} needs {place[-1]}: {needed}"
    elif error["type"] == "missing":
        message = "must be given"
    elif place[-1:] == ["revision"] and error["type"] == "string_type":
        message = f"{error['input']!r} is no commit; put it in quotes if YAML took it for a number"
    elif error["type"] not in _OWN_WORDS:
        found = error["input"]
        given = "a mapping" if isinstance(found, dict) else "a list" if isinstance(found, list) else quoted(found)
        message = f"{_WORDS.get(error['type'], message[0].lower() + message[1:])}, got {given}"
    if isinstance(entry, dict) and isinstance(entry.get("name"), str):
        message += f" (drafter {entry['name']!r})"
    return f"{where}: {message}"


def _misplaced(field: str, part: str, kind: str | None) -> str:
    """What an unknown field of a card's part, or of a drafter of ``kind``, may have been meant to be."""
    home, model = ("a drafter", KINDS[kind]) if kind else _PARTS[part]
    takers = [name for name, other in sorted(KINDS.items()) if field in other.model_fields]
    if kind and field in Source.model_fields and field != "quantization":
        source = "is read from a local file (path)" if "path" in model.model_fields else "has no weights of its own"
        return f"a drafter of kind {kind} {source}; it takes no {field}"
    if kind and takers:
        *others, last = takers
        return f"{field} is for drafters of kind {', '.join(others) + ' or ' if others else ''}{last}, not {kind}"
    if hint := meant(field, model.model_fields):
        return f"no such setting; {hint.strip()}"
    homes = [name for name, other in _PARTS.values() if name != home and field in other.model_fields]
    if homes := homes + ["a drafter"] * bool(takers):
        return f"no such setting; it belongs to {' or '.join(homes)}"
    return f"no such setting; there are {', '.join(model.model_fields)}"


def card_schema() -> dict[str, Any]:
    """The JSON schema of cards, as :data:`SCHEMA` holds it: of each kind of drafter its fields, types and bounds."""
    schema = Card.model_json_schema()
    examples = schema["properties"]["examples"]
    examples["anyOf"] = [
        {"type": "array", "items": examples.pop("items")},
        {"type": "string", "description": "another card to take them from"},
    ]
    del examples["type"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


class _UniqueKeys(yaml.SafeLoader):
    """YAML in which no key stands twice: of two lists of drafters the first would be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set[str]()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"{quoted(key.value)} stands there twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    """A card's text and what it says."""
    try:
        if (size := path.stat().st_size) > MAX_CARD_BYTES:
            raise ValueError(f"it has {size:,} bytes; a card may have {MAX_CARD_BYTES:,}")
        text = path.read_text(encoding="utf-8")
        content: Any = yaml.load(text, _UniqueKeys)
    except yaml.MarkedYAMLError as error:
        at = f" at line {mark.line + 1}, column {mark.column + 1}" if (mark := error.problem_mark) else ""
        raise PoolError(f"the pool card {path} is not valid YAML{at}: {error.problem}") from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:  # no text, a number of thousands of digits
        raise PoolError(f"cannot read the pool card {path}: {unreadable(error)}") from None
    if not isinstance(content, dict):
        raise PoolError(f"the pool card {path} must be a mapping with name, title, target and drafters")
    return text, content


if __name__ == "__main__":
    SCHEMA.write_text(json.dumps(card_schema(), indent=2) + "\n", encoding="utf-8")
    print(f"wrote {SCHEMA}", file=sys.stderr)
