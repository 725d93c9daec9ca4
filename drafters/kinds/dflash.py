"""``dflash``: a network that denoises a block of masks, given hidden states of the target (DFlash, Chen et al. 2026).

The library brings such networks and the generator that drives them (``generation/candidate_generator.py``:
``DFlashTokenCandidateGenerator``). Here the same network is fed the same inputs through our interface.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.cache_utils import DFlashCache

from drafters.base import FeatureSource, common_prefix
from drafters.checkpoints.dflash import Output, dflash_config, is_published_dflash, own_outputs, read_dflash
from drafters.checkpoints.digest import digest_of
from drafters.checkpoints.hub import MODEL_FILES
from drafters.checkpoints.loading import cache_argument, load_model
from drafters.checkpoints.model_sizes import cache_numbers, config_of, skeleton
from drafters.checkpoints.tensor_files import read_config
from drafters.errors import PoolError
from drafters.kinds.base import BuildContext, Footprint, ModelEntry, SizeContext, register
from drafters.proposing import BlockDrafter


class DFlashDrafter(BlockDrafter):
    """Denoises a block of masks in one forward, conditioned on hidden states of several of the target's layers.

    The keys and values of the context are made of those hidden states; the queries are the context's last token and
    ``block_size - 1`` masks, all embedded by the target and seeing each other both ways. The target's output
    embedding reads the tokens off.

    Args:
        output: its output layer, if it has one of its own.
        model: a DFlash network of the library: ``MuseGlimmerAssistantModel`` is the one it has (5.23); any other with
            ``block_size``, ``mask_token_id`` and ``target_layer_ids`` in its configuration and the same ``forward``
            will do.

    Raises:
        ValueError: not a DFlash network, or one that does not fit the target.

    Source: DFlash (Chen et al. 2026) as in transformers' ``DFlashTokenCandidateGenerator``. There the drafted tokens
    are drawn in sampled runs; here they are the likeliest in all runs.
    """

    def __init__(
        self,
        name: str,
        model: PreTrainedModel,
        target: PreTrainedModel,
        source: FeatureSource,
        output: Output | None = None,
    ):
        config, text = model.config, target.config.get_text_config()
        if missing := [f for f in ("block_size", "mask_token_id", "target_layer_ids") if not hasattr(config, f)]:
            raise ValueError(f"{type(model).__name__} is no DFlash drafter: its configuration lacks {missing[0]}")
        if config.hidden_size != text.hidden_size:
            raise ValueError(f"the drafter's hidden size is {config.hidden_size}, the target's {text.hidden_size}")
        if config.mask_token_id >= target.get_input_embeddings().num_embeddings:
            raise ValueError(f"the target has no embedding of the drafter's mask token {config.mask_token_id}")
        self.name, self.model, self.target, self.source = name, model.eval(), target, source
        # The configuration counts layers by what leaves them, hidden states are counted by what enters.
        self.layers = tuple(int(layer) + 1 for layer in config.target_layer_ids)
        self.size, self._cache_argument = int(config.block_size), cache_argument(model)
        self.output = output
        self.parameter_count = model.num_parameters() + (0 if output is None else output.weight.numel())
        source.watch(self.layers)
        self.forget()

    def forget(self) -> None:
        # Without a configuration every layer keeps all it sees, and any of it can be taken back; the window of
        # sliding layers is applied by the mask.
        self.cache = DFlashCache()
        self.cached: list[int] = []
        """The tokens whose hidden states are in the cache."""

    @torch.inference_mode()
    def block(self, context: list[int], length: int) -> list[int]:
        known = context[:-1]
        keep = common_prefix(self.cached, known)
        self.cache.crop(keep - len(self.cached))
        device, dtype = self.model.device, self.model.dtype
        features = self.source.features(context, self.layers)[keep:].to(device, dtype)
        self.cache.set_previous_accepted_tokens(len(features))
        ids = torch.tensor([[context[-1], *[self.model.config.mask_token_id] * (self.size - 1)]])
        output = self.model(
            noise_embeds=self._embedded(ids.to(self.target.device)).to(device, dtype),
            context_hidden_states=features[None],
            attention_mask=self._masks(len(known)),
            position_ids=torch.arange(keep, len(known) + self.size, device=device)[None],
            **{self._cache_argument: self.cache},
        )
        self.cache.crop(-self.size)
        self.cached = known
        hidden = output.last_hidden_state[0, 1:]
        if self.output is not None:
            return list(self.output.ids[functional.linear(hidden, self.output.weight).argmax(dim=-1)].tolist())
        head = self.target.get_output_embeddings()
        return list(head(hidden.to(head.weight.device, head.weight.dtype)).argmax(dim=-1).tolist())

    def _masks(self, cached: int) -> dict[str, torch.Tensor | None] | None:
        """What a block sees of so many cached positions and of itself, by kind of layer, to be added to the scores;
        ``None`` leaves it to the library, for whose own networks blocks see themselves both ways.

        Source: ``_attention_mask`` of the published code (``z-lab/dflash``).
        """
        config = self.model.config
        if (causal := getattr(config, "causal", None)) is None:
            return None
        ahead = torch.arange(cached + self.size) - torch.arange(cached, cached + self.size)[:, None]
        masks = dict[str, torch.Tensor | None]()
        for kind in causal:
            reach = config.sliding_window if kind == "sliding_attention" else cached + self.size
            hidden = (ahead <= -reach) | (ahead > 0 if causal[kind] else ahead >= reach)
            bias = torch.zeros(hidden.shape, dtype=self.model.dtype).masked_fill_(hidden, -torch.inf)
            masks[kind] = bias[None, None].to(self.model.device) if bool(hidden.any()) else None
        return masks

    def _embedded(self, ids: torch.Tensor) -> torch.Tensor:
        """Embeddings ``(1, n, hidden)``, without the norm that some targets' embedding ends in (as the library)."""
        embedding = self.target.get_input_embeddings()
        normed = getattr(embedding, "embed_norm", None) is not None
        return functional.embedding(ids, embedding.weight) if normed else embedding(ids)


@register
class DFlashEntry(ModelEntry):
    """A drafter of kind ``dflash``."""

    title = "DFlash"
    description = "a whole block at once from the target's hidden states"
    needs_target = True
    source_files = MODEL_FILES

    kind: Literal["dflash"]

    def footprint(self, context: SizeContext) -> Footprint:
        config, file = config_of(self.source, context.card)
        outputs = own_outputs(config, file, int(context.target.config.get_text_config().vocab_size))
        if is_published_dflash(config):
            config = dflash_config(config, file).to_dict()
        model = skeleton(config, file, language_model=False)
        layers = getattr(model.config, "target_layer_ids", None)
        if layers is None:
            raise PoolError(f"{file} is not the configuration of a DFlash network: it lacks target_layer_ids")
        numbers = model.num_parameters() + outputs * int(model.config.hidden_size)
        return context.head(numbers, [int(i) + 1 for i in layers], cache_numbers(model.config))

    def build(self, context: BuildContext) -> DFlashDrafter:
        folder, target = self.folder(context), context.model
        model: PreTrainedModel
        output: Output | None = None
        if is_published_dflash(read_config(folder / "config.json")):
            model, output = read_dflash(folder, target)
        else:
            what, device = f"drafter {self.name!r}", str(target.device)
            model = load_model(self.source, context.card, target.dtype, device, what, language_model=False)
        try:
            drafter = DFlashDrafter(self.name, model, target, context.target, output)
        except ValueError as error:
            raise PoolError(f"drafter {self.name!r} does not fit the target: {error}") from error
        drafter.digest = digest_of(model.state_dict(), *([vars(output)] if output else []))
        drafter.outputs = len(output.ids) if output else context.target.vocab_size
        return drafter
