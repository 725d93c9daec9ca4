"""What a kind of drafter is: the model of its entry in a card, which also builds it and estimates its memory."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar, get_args

import torch
from pydantic import BeforeValidator, Field, GetJsonSchemaHandler, SerializeAsAny, ValidationError
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from drafters.base import Drafter
from drafters.checkpoints.hub import HEAD_FILES, folder_of
from drafters.errors import PoolError, meant, quoted
from drafters.models.target import Target
from drafters.progress import Steps
from drafters.source import Place, Quantization, Source, Strict

Confidence = Annotated[
    float,
    Field(ge=0, lt=1, description="a draft ends once the product of its tokens' probabilities falls below this"),
]


@dataclass(frozen=True)
class BuildContext:
    """What drafters are built from, apart from their entries.

    Attributes:
        card: file of the pool's card; paths in it are relative to its folder.
        model, tokenizer: the target's; ``target`` drives the model.
        steps: reports each drafter that is loaded.
        learnt: the pool's folder of what drafters have learnt, if it is kept.
        learns: whether drafters go on learning.
        shared: what drafters with the same :attr:`DrafterEntry.shared_weights` share, by those.
    """

    card: Path
    draft_length: int
    model: PreTrainedModel
    target: Target
    tokenizer: PreTrainedTokenizerBase
    steps: Steps
    learnt: Path | None = None
    learns: bool = True
    shared: dict[Hashable, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SizeContext:
    """What the memory of a drafter depends on, apart from its entry.

    Attributes:
        target: the target's model without its weights (on the ``meta`` device).
        tokens: the longest context.
        dtype: of all models that are not quantised.
        device: where the pool is to be loaded.
        quantization: of the target.
    """

    card: Path
    target: PreTrainedModel
    tokens: int
    draft_length: int
    dtype: torch.dtype
    device: str
    quantization: Quantization | None = None

    def head(self, parameters: int, layers: Sequence[int], cached_numbers: int = 0, copies: int = 1) -> Footprint:
        """Memory of a head on the target's hidden states ``layers`` that caches so many numbers per token, of whose
        weights there are so many copies."""
        size, states = self.dtype.itemsize, frozenset(layers)
        cache = size * cached_numbers * self.tokens
        return Footprint(parameters, copies * size * parameters, cache, hidden_states=states)


@dataclass(frozen=True)
class Footprint:
    """Memory of a drafter in bytes, estimated from shapes.

    Attributes:
        parameters: numbers of its weights.
        cache: in a full context, keys and values mostly.
        working: what its largest forward needs besides.
        hidden_states: which hidden states of the target it reads, as ``transformers`` counts them.
    """

    parameters: int
    weights: int
    cache: int = 0
    working: int = 0
    hidden_states: frozenset[int] = frozenset()


class DrafterEntry(Strict):
    """A drafter's entry in a card. A kind of drafters is a subclass with :func:`register`, in a file of this folder.

    Attributes:
        title: the kind in two or three words.
        description: how it drafts, in a line.
        needs_target: whether it reads the target's weights, hidden states or logits: then the target has to run here.
        source_files: patterns of the files needed of :attr:`source`.
        path_fields: the fields that name files or folders beside the card.
    """

    title: ClassVar[str]
    description: ClassVar[str]
    needs_target: ClassVar[bool] = False
    source_files: ClassVar[Sequence[str]] = HEAD_FILES
    path_fields: ClassVar[Sequence[str]] = ()

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", description="the arm's name, unique in the pool")
    kind: str
    routed_as: str | None = Field(None, description="its name in the pool's router; by default the arm's name")

    @property
    def source(self) -> Source | None:
        """The model that it is loaded from, if any."""
        return None

    @property
    def stored_as(self) -> Quantization | None:
        """How its weights are quantised, if they are."""
        return self.source.quantization if self.source else None

    @property
    def local_paths(self) -> dict[str, str]:
        """Files and folders beside the card that it names, by the field that does."""
        return {field: path for field in self.path_fields if (path := getattr(self, field))}

    @property
    def shared_weights(self) -> Hashable | None:
        """What it shares weights and cache by with drafters of its kind for which this is equal; by default nothing."""
        return None

    def most_nodes(self, draft_length: int) -> int:
        """Most tokens that the target has to verify of one draft."""
        return draft_length

    def footprint(self, context: SizeContext) -> Footprint | None:
        """Its memory, from configurations and shapes alone; ``None`` for a drafter without weights."""
        return None

    @abstractmethod
    def build(self, context: BuildContext) -> Drafter:
        """The drafter, with its :attr:`~drafters.base.Drafter.digest`.

        Raises:
            PoolError: it cannot be loaded or does not fit the target.
        """

    @classmethod
    def build_all(cls, entries: Sequence[Self], context: BuildContext) -> list[Drafter]:
        """All drafters of the kind in a pool, as :meth:`build`; for kinds that build some of them together."""
        drafters = []
        for entry in entries:
            context.steps.begin("loading", f"drafter {entry.name!r}")
            try:
                drafters.append(entry.build(context))
            except FileNotFoundError as error:
                raise PoolError(f"drafter {entry.name!r}: there is no file {error.filename}") from error
        return drafters


class TreeEntry(DrafterEntry):
    """Entry of a drafter that can draft trees."""

    nodes: int | None = Field(None, ge=1, le=256, description="draft a tree of at most so many nodes, not a chain")

    def most_nodes(self, draft_length: int) -> int:
        return max(draft_length, self.nodes or 0)


class ModelEntry(Place, DrafterEntry):
    """Entry of a drafter that is loaded from a model's folder or Hub repository."""

    path_fields: ClassVar[Sequence[str]] = ("path",)

    @property
    def source(self) -> Source:
        quantization = getattr(self, "quantization", None)  # a field of some kinds
        return Source(path=self.path, id=self.id, revision=self.revision, quantization=quantization)

    def folder(self, context: BuildContext) -> Path:
        """The model's local folder."""
        return folder_of(self.source, context.card, self.source_files)


class FileEntry(DrafterEntry):
    """Entry of a drafter that is made from one local file."""

    path_fields: ClassVar[Sequence[str]] = ("path",)

    path: str = Field(description="the path of a file, relative to the card")

    def file(self, context: BuildContext) -> Path:
        """The file."""
        return (context.card.parent / self.path).resolve()


KINDS: dict[str, type[DrafterEntry]] = {}
"""All kinds of drafters by name."""

Kind = TypeVar("Kind", bound=type[DrafterEntry])


def register(kind: Kind) -> Kind:
    """Class decorator: make a kind known, under the only value that its field ``kind`` can have.

    Raises:
        PoolError: it says no kind, title or description, or another class has the kind; the same one may be registered
            again.
    """
    entry: type[DrafterEntry] = kind
    who, names = entry.__qualname__, get_args(entry.model_fields["kind"].annotation)
    if len(names) != 1 or not (hasattr(entry, "title") and hasattr(entry, "description")):
        raise PoolError(f"{who} needs a kind of one name, such as Literal['bigram'], a title and a description")
    known = KINDS.get(names[0]) or entry
    if (known.__module__, known.__qualname__) != (entry.__module__, who):
        raise PoolError(f"{who}: {known.__qualname__} is of the kind {names[0]!r} already; give this one another name")
    KINDS[names[0]] = entry
    return kind


def build_drafters(entries: Sequence[DrafterEntry], context: BuildContext) -> list[Drafter]:
    """The drafters of ``entries``, in their order; those of one kind by :meth:`DrafterEntry.build_all`."""
    built: dict[str, Drafter] = {}
    for kind in dict.fromkeys(type(entry) for entry in entries):
        alike = [entry for entry in entries if type(entry) is kind]
        for entry, drafter in zip(alike, kind.build_all(alike, context), strict=True):
            drafter.kind = drafter.kind or entry.kind
            built[entry.name] = drafter
    return [built[entry.name] for entry in entries]


def _validated(value: Any) -> DrafterEntry:
    """An entry as the model of its kind reads it."""
    if isinstance(value, DrafterEntry):
        return value
    if not isinstance(value, Mapping):
        raise PydanticCustomError("drafter", "a drafter is a mapping with at least name and kind")
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        known = f"{meant(str(kind), KINDS)}there are {', '.join(sorted(KINDS))}"
        problem = PydanticCustomError(
            "kind", "no such kind of drafter as {kind}; {known}", {"kind": quoted(kind), "known": known}
        )
        details = InitErrorDetails(type=problem, loc=("kind",), input=kind)
        raise ValidationError.from_exception_data("drafter", [details])
    return KINDS[kind].model_validate(value)


class _UnionOfKinds:
    """In JSON schemas an entry is the union of all kinds registered by then."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        kinds = {name: kind.__pydantic_core_schema__ for name, kind in sorted(KINDS.items())}
        return handler(core_schema.tagged_union_schema(kinds, discriminator="kind"))


AnyEntry = Annotated[SerializeAsAny[DrafterEntry], BeforeValidator(_validated), _UnionOfKinds()]
"""An entry of any registered kind."""
