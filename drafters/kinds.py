"""Makes the drafters that a card asks for, each kind in its own way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from drafters.base import Drafter
from drafters.card import Card, DrafterCard
from drafters.datastore import Datastore, tokenizer_fingerprint
from drafters.eagle import EagleDrafter
from drafters.eagle_checkpoint import read_head
from drafters.eagle_head import EagleHead
from drafters.lm import make_lm_drafters
from drafters.loading import check_same_tokens, drafter_tokenizer, folder_of, load_model
from drafters.pld import PromptLookup
from drafters.rest import DatastoreDrafter
from drafters.suffix import SuffixDrafter
from drafters.window import Window
from multidraft.errors import PoolError
from multidraft.target import Target

Identity = str | Mapping[str, torch.Tensor]
"""By what the history tells one drafter from another: a checksum or its weights."""


class Made(NamedTuple):
    """A drafter and what identifies it, if anything but its entry in the card does."""

    drafter: Drafter
    identity: Identity = ""


class Workshop(NamedTuple):
    """What drafters are made for, and from.

    Attributes:
        card: the pool's, read from the file ``path``.
        model: the target's, which ``target`` drives.
    """

    card: Card
    path: Path
    model: PreTrainedModel
    target: Target
    tokenizer: PreTrainedTokenizerBase

    def make(self) -> tuple[list[Drafter], list[Identity]]:
        """All drafters of the card in its order, and what identifies them.

        Raises:
            PoolError: one cannot be loaded or does not fit the target.
        """
        made = self._language_models()
        for entry in self.card.drafters:
            if entry.kind != "lm":
                made[entry.name] = MAKERS[entry.kind](self, entry)
        ordered = [made[entry.name] for entry in self.card.drafters]
        return [one.drafter for one in ordered], [one.identity for one in ordered if one.identity]

    def _language_models(self) -> dict[str, Made]:
        """The drafters of kind ``lm``, together: those of one shape share a forward."""
        entries = [entry for entry in self.card.drafters if entry.kind == "lm"]
        models: dict[str, PreTrainedModel] = {}
        for entry in entries:
            what = f"drafter {entry.name!r}"
            models[entry.name] = load_model(entry.source, self.path, self.model.dtype, str(self.model.device), what)
            check_same_tokens(entry.name, drafter_tokenizer(entry.source, self.path), self.tokenizer)
            self._check_window(entry, models[entry.name])
        windows = {entry.name: Window(entry.window, entry.sinks) for entry in entries if entry.window}
        confidences = {entry.name: entry.confidence for entry in entries}
        drafters = make_lm_drafters(models, self.target.vocab_size, windows, confidences)
        return {drafter.name: Made(drafter, models[drafter.name].state_dict()) for drafter in drafters}

    def _check_window(self, entry: DrafterCard, model: PreTrainedModel) -> None:
        own = getattr(model.config.get_text_config(), "max_position_embeddings", None)
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
        shape, tensors = read_head(folder_of(entry.source, self.path), self.model)
        head = EagleHead(shape, tensors, self.model)
        drafter = EagleDrafter(
            entry.name, head, self.target, self.target.vocab_size, entry.nodes, entry.branches, entry.confidence
        )
        return Made(drafter, tensors)


MAKERS: dict[str, Callable[[Workshop, DrafterCard], Made]] = {
    "pld": Workshop.prompt_lookup,
    "suffix": Workshop.suffix,
    "rest": Workshop.datastore,
    "eagle": Workshop.eagle,
}
