"""Makes the drafters that a card asks for, each kind in its own way."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.modeling_layers import MtpModel

from drafters.base import Drafter
from drafters.block import DFlashDrafter, MTPDrafter
from drafters.bridge import BridgedDrafter
from drafters.card import Card, DrafterCard, Source
from drafters.custom import make_custom
from drafters.datastore import Datastore, tokenizer_fingerprint
from drafters.dflash_checkpoint import is_published_dflash, read_dflash
from drafters.eagle import EagleDrafter
from drafters.eagle_checkpoint import read_head
from drafters.eagle_head import EagleHead
from drafters.hub import MODEL_FILES
from drafters.lm import LMDrafter, make_lm_drafters
from drafters.loading import drafter_tokenizer, first_line, folder_of, load_model, load_network, same_tokens
from drafters.lookahead import LookaheadDrafter
from drafters.medusa import MedusaDrafter
from drafters.medusa_heads import KINDS as HEADS
from drafters.ngram import NGram
from drafters.pld import PromptLookup
from drafters.progress import Steps
from drafters.rest import DatastoreDrafter
from drafters.shapes import window_of
from drafters.suffix import SuffixDrafter
from drafters.tensor_files import read_config
from drafters.window import Window
from multidraft.errors import PoolError
from multidraft.target import Target

Identity = str | Mapping[str, torch.Tensor]
"""By what the history tells one drafter from another: a checksum or its weights."""


PADDING = 1024
"""By how many tokens the vocabularies of models with one tokenizer differ at most: rows that no token uses."""


class Made(NamedTuple):
    """A drafter and what identifies it, where its entry in the card does not say all."""

    drafter: Drafter
    weights: Identity = ""
    file: str = ""


@dataclass(frozen=True)
class Workshop:
    """What drafters are made for, and from.

    Attributes:
        card: the pool's, read from the file ``path``.
        model: the target's, which ``target`` drives.
        steps: told of each drafter.
        eagles: the EAGLE heads so far, with what identifies them, by where they are from: each is loaded once, however
            many drafters use it.
    """

    card: Card
    path: Path
    model: PreTrainedModel
    target: Target
    tokenizer: PreTrainedTokenizerBase
    steps: Steps
    eagles: dict[Source, tuple[EagleHead, Identity]] = field(default_factory=dict)

    def make(self) -> tuple[list[Drafter], list[Identity]]:
        """All drafters of the card in its order, and what identifies them.

        Raises:
            PoolError: one cannot be loaded or does not fit the target.
        """
        made = self._language_models()
        for entry in self.card.drafters:
            if entry.kind != "lm":
                self.steps.loading(f"drafter {entry.name!r}")
                made[entry.name] = MAKERS[entry.kind](self, entry)
        ordered = [made[entry.name] for entry in self.card.drafters]
        return [one.drafter for one in ordered], [part for one in ordered for part in (one.weights, one.file) if part]

    def _language_models(self) -> dict[str, Made]:
        """The drafters of kind ``lm``, together: those of one shape share a forward. Those with another tokenizer than
        the target's go through text."""
        entries = {entry.name: entry for entry in self.card.drafters if entry.kind == "lm"}
        models: dict[str, PreTrainedModel] = {}
        bridged: dict[str, Made] = {}
        for name, entry in entries.items():
            self.steps.loading(f"drafter {name!r}")
            model = load_model(entry.source, self.path, self.model.dtype, str(self.model.device), f"drafter {name!r}")
            self._check_window(entry, model)
            own = drafter_tokenizer(entry.source, self.path)
            if own is None:
                self._check_vocabulary(entry, model)
            if own is None or same_tokens(own, self.tokenizer):
                models[name] = model
                continue
            window = Window(entry.window, entry.sinks) if entry.window else None
            size = int(model.config.get_text_config().vocab_size)
            inner = LMDrafter.from_model(name, model, size, window, entry.confidence)
            bridge = BridgedDrafter(name, inner, own, self.tokenizer, self.target.vocab_size)
            bridged[name] = Made(bridge, model.state_dict(), tokenizer_fingerprint(own))
        windows = {name: Window(e.window, e.sinks) for name, e in entries.items() if e.window}
        confidences = {name: entry.confidence for name, entry in entries.items()}
        drafters = make_lm_drafters(models, self.target.vocab_size, windows, confidences)
        return bridged | {drafter.name: Made(drafter, models[drafter.name].state_dict()) for drafter in drafters}

    def _check_vocabulary(self, entry: DrafterCard, model: PreTrainedModel) -> None:
        """Without a tokenizer of its own a drafter's tokens are taken for the target's; padding apart, they cannot be
        if there are fewer or more."""
        size, theirs = int(model.config.get_text_config().vocab_size), self.target.vocab_size
        if abs(size - theirs) > PADDING:
            raise PoolError(
                f"drafter {entry.name!r} has a vocabulary of {size:,} tokens, the target one of {theirs:,}, and no "
                "tokenizer tells what they stand for; put the drafter's tokenizer into its folder"
            )

    def _check_window(self, entry: DrafterCard, model: PreTrainedModel) -> None:
        own = window_of(model)
        if entry.window and own and entry.window + self.card.draft_length - 1 > own:
            raise PoolError(
                f"drafter {entry.name!r} is to read {entry.window} tokens and to draft {self.card.draft_length} more, "
                f"but its model knows {own} positions"
            )

    def prompt_lookup(self, entry: DrafterCard) -> Made:
        """``pld``."""
        return Made(PromptLookup(entry.name))

    def suffix(self, entry: DrafterCard) -> Made:
        """``suffix``."""
        return Made(SuffixDrafter(entry.name, entry.nodes, entry.past))

    def datastore(self, entry: DrafterCard) -> Made:
        """``rest``."""
        file = (self.path.parent / str(entry.path)).resolve()
        store = Datastore.open(file, tokenizer_fingerprint(self.tokenizer), self.target.vocab_size)
        return Made(DatastoreDrafter(entry.name, store, entry.nodes), store.fingerprint)

    def eagle(self, entry: DrafterCard) -> Made:
        """``eagle``."""
        if entry.source not in self.eagles:
            shape, tensors = read_head(folder_of(entry.source, self.path), self.model)
            self.eagles[entry.source] = EagleHead(shape, tensors, self.model), tensors
        head, identity = self.eagles[entry.source]
        drafter = EagleDrafter(
            entry.name, head, self.target, self.target.vocab_size, entry.nodes, entry.branches, entry.confidence
        )
        return Made(drafter, identity)

    def lookahead(self, entry: DrafterCard) -> Made:
        """``lookahead``."""
        if entry.ngram > self.card.draft_length + 1:
            raise PoolError(
                f"drafter {entry.name!r} looks for {entry.ngram}-grams, but drafts of {self.card.draft_length} tokens "
                f"have room for {self.card.draft_length + 1}-grams at most; lower ngram or raise draft_length"
            )
        return Made(LookaheadDrafter(entry.name, entry.columns, entry.ngram, entry.guesses))

    def heads(self, entry: DrafterCard) -> Made:
        """``medusa`` and ``bpd``."""
        read, network = HEADS[entry.kind]
        tensors = read(folder_of(entry.source, self.path), self.model)
        heads, rescorer, digest = network(tensors, self.model), None, ""
        if entry.rescorer:
            file = (self.path.parent / entry.rescorer).resolve()
            rescorer = NGram.open(file, self.target.vocab_size)
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
        drafter = MedusaDrafter(
            entry.name,
            heads,
            self.target,
            self.target.vocab_size,
            entry.nodes,
            entry.branches,
            entry.confidence,
            rescorer,
        )
        return Made(drafter, tensors, digest)

    def dflash(self, entry: DrafterCard) -> Made:
        """``dflash``."""
        folder = folder_of(entry.source, self.path, MODEL_FILES)
        if is_published_dflash(read_config(folder / "config.json")):
            model: PreTrainedModel = read_dflash(folder, self.model.dtype).to(self.model.device)
        else:
            model = load_network(entry.source, self.path, self.model.dtype, str(self.model.device), entry.name)
        try:
            return Made(DFlashDrafter(entry.name, model, self.model, self.target), model.state_dict())
        except ValueError as error:
            raise PoolError(f"drafter {entry.name!r} does not fit the target: {error}") from error

    def mtp(self, entry: DrafterCard) -> Made:
        """``mtp``: layers of the target's own checkpoint."""
        try:
            model = MtpModel.from_pretrained(self.model, device_map={"": self.model.device})
        except Exception as error:
            raise PoolError(
                f"drafter {entry.name!r}: the target brings no multi-token-prediction layers that can be loaded: "
                f"{first_line(error)}"
            ) from error
        return Made(MTPDrafter(entry.name, model, self.model, self.target), model.layers.state_dict())

    def custom(self, entry: DrafterCard) -> Made:
        """``custom``."""
        file = (self.path.parent / str(entry.path)).resolve()
        made = make_custom(entry.name, file, str(entry.factory), entry.options, self.target, self.tokenizer)
        return Made(made, hashlib.sha256(file.read_bytes()).hexdigest())


MAKERS: dict[str, Callable[[Workshop, DrafterCard], Made]] = {
    "pld": Workshop.prompt_lookup,
    "suffix": Workshop.suffix,
    "rest": Workshop.datastore,
    "lookahead": Workshop.lookahead,
    "eagle": Workshop.eagle,
    "medusa": Workshop.heads,
    "bpd": Workshop.heads,
    "dflash": Workshop.dflash,
    "mtp": Workshop.mtp,
    "custom": Workshop.custom,
}
