"""A pool's card: which target and drafters, from where, in which precision; read from YAML, validated."""

from __future__ import annotations

import difflib
import json
import os
import sys
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from multidraft.errors import PoolError
from multidraft.records import OWN

POOLS = Path(__file__).parent / "pools"
SCHEMA = POOLS / "schema.json"
"""The cards' JSON schema, for editors; ``python -m drafters.card`` writes it."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


Quantization = Literal["nf4", "int8"]
"""Weights of 4 or 8 bits, by ``bitsandbytes`` (QLoRA, Dettmers et al. 2023; LLM.int8(), 2022)."""


class Source(_Strict):
    """Where a model comes from: a folder beside the card, or a repository on the Hugging Face Hub."""

    path: str | None = Field(None, description="folder, relative to the card's own")
    id: str | None = Field(None, description="Hub repository, e.g. Qwen/Qwen2.5-0.5B-Instruct")
    revision: str | None = Field(None, description="commit of the Hub repository, for reproducible runs")
    quantization: Quantization | None = Field(None, description="nf4 (4 bits a weight) or int8; by default none")
    model_config = ConfigDict(frozen=True)

    @model_validator(mode="after")
    def _one_source(self) -> Source:
        if (self.path is None) == (self.id is None):
            raise ValueError("give either path (a local folder) or id (a Hub repository)")
        _check_revision(self.revision, self.id)
        return self


def _check_revision(revision: str | None, repository: str | None) -> None:
    if revision is not None and repository is None:
        raise ValueError("revision is a commit of a Hub repository; without an id there is none")


Weights = Literal["none", "file", "model"]
"""What a kind of drafter is read from: nothing, a local file, or a model's folder or Hub repository."""

TREE = frozenset({"nodes", "branches", "confidence"})
KINDS: dict[str, tuple[Weights, frozenset[str]]] = {
    "lm": ("model", frozenset({"window", "sinks", "confidence", "quantization"})),
    "pld": ("none", frozenset()),
    "suffix": ("none", frozenset({"nodes", "past"})),
    "rest": ("file", frozenset({"nodes"})),
    "lookahead": ("none", frozenset({"columns", "ngram", "guesses"})),
    "eagle": ("model", TREE),
    "medusa": ("model", TREE | {"rescorer"}),
    "bpd": ("model", TREE | {"rescorer"}),
    "dflash": ("model", frozenset()),
    "mtp": ("none", frozenset()),
    "custom": ("file", frozenset({"factory", "options"})),
}
"""Of each kind of drafter what it is read from, and the settings it takes."""


class DrafterCard(_Strict):
    """One drafter of the pool."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", description="the arm's name, unique in the pool")
    kind: Literal["lm", "pld", "suffix", "rest", "lookahead", "eagle", "medusa", "bpd", "dflash", "mtp", "custom"]
    path: str | None = Field(
        None,
        description="a model's folder, a rest's datastore or a custom drafter's .py file, relative to the card's own",
    )
    id: str | None = Field(None, description="Hub repository of the model")
    revision: str | None = Field(None, description="commit of the Hub repository")
    quantization: Quantization | None = Field(None, description="of a model's weights: nf4 or int8")
    routed_as: str | None = Field(None, description="what the pool's router calls it; by default its name")
    window: int | None = Field(None, ge=2, description="most tokens of a context it reads; longer ones slide by")
    sinks: int = Field(4, ge=0, description="first tokens of the context that a sliding window keeps")
    confidence: float = Field(
        0.0, ge=0, lt=1, description="a greedy draft ends once its tokens have less probability than this, multiplied"
    )
    nodes: int | None = Field(None, ge=1, le=256, description="draft a tree of at most so many nodes, not a chain")
    branches: int = Field(8, ge=1, le=64, description="children of a node in a tree, and nodes that grow any per level")
    past: int = Field(0, ge=0, le=100_000, description="tokens of earlier outputs that a suffix drafter keeps")
    columns: int = Field(8, ge=0, le=64, description="width of the window in which lookahead looks for n-grams")
    ngram: int = Field(4, ge=2, le=16, description="length of the n-grams that lookahead finds")
    guesses: int = Field(4, ge=1, le=64, description="n-grams that lookahead keeps, and proposes, of one first token")
    rescorer: str | None = Field(None, description="n-gram model that reorders what heads propose, beside the card")
    factory: str | None = Field(None, description="class or function of a custom drafter's file that makes it")
    options: dict[str, Any] = Field(default_factory=dict, description="what a custom drafter's factory gets by name")

    @model_validator(mode="after")
    def _settings_of_its_kind(self) -> DrafterCard:
        weights, settings = KINDS[self.kind]
        everywhere = {"name", "kind", "path", "id", "revision", "routed_as"}
        for setting in sorted(self.model_fields_set - everywhere - settings):
            takers = [kind for kind, (_, taken) in KINDS.items() if setting in taken]
            raise ValueError(f"{setting} is for drafters of kind {' or '.join(takers)}, not {self.kind}")
        if weights == "model" and (self.path is None) == (self.id is None):
            raise ValueError(f"a drafter of kind {self.kind} needs path (a local folder) or id (a Hub repository)")
        if weights == "file" and (self.path is None or self.id is not None):
            raise ValueError(f"a drafter of kind {self.kind} needs the path of a file, and takes no id")
        if self.kind == "custom" and not (self.factory and str(self.path).endswith(".py")):
            raise ValueError("a drafter of kind custom needs the path of a .py file and a factory in it")
        if weights == "none" and (self.path or self.id):
            raise ValueError(f"a drafter of kind {self.kind} has no weights of its own; it takes no path and no id")
        _check_revision(self.revision, self.id)
        if self.window is not None and self.sinks >= self.window:
            raise ValueError("window must be larger than sinks")
        return self

    @property
    def source(self) -> Source:
        """Where its model comes from."""
        return Source(path=self.path, id=self.id, revision=self.revision, quantization=self.quantization)


class Example(_Strict):
    """A prompt to offer in the app."""

    task: str
    prompt: str


_OUR_ARGUMENTS = {
    "conversation", "messages", "add_generation_prompt", "continue_final_message", "tokenize", "return_dict",
    "return_tensors", "chat_template", "padding", "truncation", "max_length", "tokenizer_kwargs",
}  # fmt: skip
"""Of a template's arguments those that are not a card's to choose."""


class Card(_Strict):
    """A whole pool."""

    name: str
    title: str
    description: str = ""
    target: Source
    drafters: list[DrafterCard] = Field(min_length=1)
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="number type of all models")
    device: str = Field("auto", description="of all models: auto (the GPU if there is one), cpu, cuda, cuda:1")
    context_window: int | None = Field(
        None, ge=2, description="most tokens of prompt and answer together; by default all that the target knows"
    )
    draft_length: int = Field(6, ge=1, le=64, description="most tokens drafted in a round")
    router: Path | None = Field(None, description="folder of a router, relative to the card")
    stop: list[str] = Field(default_factory=list, description="texts of further single-token stop tokens")
    chat_template: str | None = Field(None, description="Jinja text, instead of the template of the target's tokenizer")
    chat_template_kwargs: dict[str, Any] = Field(
        default_factory=dict, description="what the template is given besides the messages, e.g. enable_thinking: false"
    )
    conversation: bool | None = Field(
        None, description="whether a prompt may follow up on earlier answers; by default if there is a chat template"
    )
    examples: list[Example] = Field(default_factory=list)

    @model_validator(mode="after")
    def _unique_names(self) -> Card:
        names = [drafter.name for drafter in self.drafters]
        if doubled := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"drafter names must be unique; twice: {', '.join(sorted(doubled))}")
        if OWN in names:
            raise ValueError(f"no drafter may be called {OWN!r}: by that name the target's own tokens are counted")
        if taken := sorted(_OUR_ARGUMENTS & set(self.chat_template_kwargs)):
            raise ValueError(f"chat_template_kwargs cannot set {taken[0]}: the engine does")
        return self

    def routed_names(self) -> dict[str, str]:
        """What the router calls each drafter, by its name."""
        return {entry.name: entry.routed_as or entry.name for entry in self.drafters}

    def shares_with(self, entry: DrafterCard) -> str | None:
        """The earlier drafter whose EAGLE head ``entry`` uses too, weights and cache; ``None`` if there is none."""
        for earlier in self.drafters[: self.drafters.index(entry)]:
            if earlier.kind == entry.kind == "eagle" and earlier.source == entry.source:
                return earlier.name
        return None


_PARTS: dict[str, type[BaseModel]] = {"": Card, "target": Source, "drafters": DrafterCard, "examples": Example}
_NAMES = {"": "the card itself", "target": "the target", "drafters": "a drafter", "examples": "an example"}


def pool_names() -> list[str]:
    """Names of the bundled cards."""
    return sorted(path.stem for path in POOLS.glob("*.yaml"))


def find_card(name_or_path: str | Path) -> Path:
    """The card's file, by a bundled name or a path.

    Raises:
        PoolError: neither; the message lists the bundled cards.
    """
    if str(name_or_path) in pool_names():
        return POOLS / f"{name_or_path}.yaml"
    path = Path(name_or_path)
    for file in (path / "card.yaml", path):
        if os.path.isfile(file):  # unlike Path.is_file, False for names that no file can have
            return file
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        raise PoolError(f"there is no pool card {path}; bundled pools: {', '.join(pool_names())}")
    raise PoolError(
        f"unknown pool {str(name_or_path)!r}; bundled pools: {', '.join(pool_names())}; "
        "or give the path of a card (a .yaml file)"
    )


def load_card(path: Path) -> tuple[Card, str]:
    """Read and validate a card.

    Returns:
        The card and its text.

    Raises:
        PoolError: not YAML, or not a valid card; the message names file, field and what is expected.
    """
    text, content = _read(path)
    if isinstance(other := content.get("examples"), str):
        beside = path.parent / other
        content["examples"] = _read(beside if beside.exists() else POOLS / other)[1].get("examples")
        if not isinstance(content["examples"], list):
            raise PoolError(f"the pool card {path} takes its examples from {other}, which has none of its own")
    try:
        card = Card.model_validate(content)
    except ValidationError as error:
        problems = "; ".join(_problem(each, content) for each in error.errors())
        raise PoolError(f"the pool card {path} is not valid: {problems}") from None
    return card, text


def _problem(error: ErrorDetails, content: dict[str, Any]) -> str:
    """One problem of a card in words: where, what, and what may have been meant."""
    place, message = list(error["loc"]), error["msg"].removeprefix("Value error, ")
    where = ".".join(map(str, place)) or "card"
    if error["type"] == "extra_forbidden":
        message = f"no such setting; {_hint(str(place[-1]), '' if len(place) == 1 else str(place[0]))}"
    elif place[-1:] == ["revision"] and error["type"] == "string_type":
        message = f"{error['input']!r} is no commit; put it in quotes if YAML took it for a number"
    if place[:1] == ["drafters"] and len(place) > 1:
        entry = content["drafters"][int(place[1])]
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            message += f" (drafter {entry['name']!r})"
    return f"{where}: {message}"


def _hint(setting: str, part: str) -> str:
    """What an unknown setting of a card's part, or of the card itself, may have been meant to be."""
    known = _PARTS[part].model_fields
    if near := difflib.get_close_matches(setting, known, 1):
        return f"did you mean {near[0]}?"
    if homes := [_NAMES[other] for other, model in _PARTS.items() if setting in model.model_fields]:
        return f"it belongs to {' or '.join(homes)}"
    return f"there are {', '.join(known)}"


def card_schema() -> dict[str, Any]:
    """The JSON schema of cards, as :data:`SCHEMA` holds it: fields, types and bounds, not which belong together."""
    schema = Card.model_json_schema()
    examples = schema["properties"]["examples"]
    examples["anyOf"] = [
        {"type": "array", "items": examples.pop("items")},
        {"type": "string", "description": "another card to take them from"},
    ]
    del examples["type"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    """A card's text and what it says."""
    try:
        text = path.read_text(encoding="utf-8")
        content: Any = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise PoolError(f"cannot read the pool card {path}: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise PoolError(f"the pool card {path} must be a mapping with name, title, target and drafters")
    return text, content


if __name__ == "__main__":
    SCHEMA.write_text(json.dumps(card_schema(), indent=2) + "\n", encoding="utf-8")
    print(f"wrote {SCHEMA}", file=sys.stderr)
