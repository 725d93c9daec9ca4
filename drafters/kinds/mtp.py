"""``mtp``: the target's own layers for multi-token prediction (DeepSeek-V3, 2024, Sec. 2.2).

The library brings these layers and the generator that drives them (``generation/candidate_generator.py``:
``MTPCandidateGenerator``), one token a layer. Here the same layers are fed the same inputs through our interface, and
the last one is applied again for what is to be drafted beyond, as vLLM does.
"""

from __future__ import annotations

from typing import Literal

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel

from drafters.base import FeatureSource, common_prefix
from drafters.checkpoints.digest import digest_of
from drafters.checkpoints.loading import explained, load_mtp
from drafters.checkpoints.model_sizes import cache_numbers, last_hidden_state
from drafters.errors import MisfitError
from drafters.kinds.base import BuildContext, DrafterEntry, Footprint, SizeContext, register
from drafters.proposing import BlockDrafter

MISSING = "the target brings no multi-token-prediction layers that can be loaded"


class MTPDrafter(BlockDrafter):
    """Drafts with the target's own layers for multi-token prediction: one token a layer, the others with the last one.

    Layer ``k`` joins what layer ``k - 1`` made of a position (the first: the target's last hidden state) with the
    embedding of the token ``k + 1`` further on. Embedding and output head are the target's. Applied again, the last
    layer joins what it made of the last position, after its own norm, with the token drafted there, at the position
    after it, and sees all that it has seen before.

    Args:
        model: the layers, such as :func:`~drafters.checkpoints.loading.load_mtp` reads them.

    Source: DeepSeek-V3 (2024), Sec. 2.2, as in transformers' ``MTPCandidateGenerator``. Entries of deeper layers that
    were made with refused tokens are dropped from the cache like there, but never by a fixed number: all that saw
    another token than the context holds. Further applications as in vLLM's ``DeepSeekMultiTokenPredictorLayer``;
    what they leave in the cache, made of states that are not the target's, is dropped at once.
    """

    def __init__(self, name: str, model: MtpModel, target: PreTrainedModel, source: FeatureSource):
        # The library leaves layers that it has read from a checkpoint in training mode.
        self.name, self.model, self.source = name, model.eval(), source
        self.layers = (last_hidden_state(target),)
        self.parameter_count = sum(parameter.numel() for parameter in model.layers.parameters())
        source.watch(self.layers)
        self.forget()

    def forget(self) -> None:
        self.cache = MtpCache()  # without a configuration, for the same reason as in DFlashDrafter
        self.seen: list[int] = []
        """The tokens that made its positions: one of layer ``k`` has seen ``k`` tokens beyond the next one."""

    @torch.inference_mode()
    def block(self, context: list[int], length: int) -> list[int]:
        depth = len(self.model.layers)
        keep = max(min(common_prefix(self.seen, context) - depth, len(context) - 2), 0)
        self.cache.crop(keep - max(len(self.seen) - depth, 0))
        device = next(self.model.layers.parameters()).device
        hidden = self.source.features(context, self.layers)[None, keep:].to(device)
        ids = torch.tensor([context[keep + 1 :]], device=device)
        positions = torch.arange(keep + 1, len(context), device=device)[None]
        tokens: list[int] = []
        for step in range(max(length, depth)):
            if step:  # a deeper layer reads all positions once more, a layer that is applied again the last one alone
                first = 1 if step < depth else ids.shape[1]
                ids = torch.cat([ids[:, first:], ids.new_tensor([tokens[-1:]])], dim=1)
                positions = torch.cat([positions[:, first:], positions[:, -1:] + 1], dim=1)
                hidden = hidden[:, -ids.shape[1] :]
            layer = min(step, depth - 1)
            hidden = self.model.forward_layer(layer, hidden, positions, self.cache, input_ids=ids)
            tokens.append(int(self.model._project_to_logits(hidden[:, -1]).argmax()))
        if (again := len(tokens) - depth) > 0:
            self.cache.layers[-1].crop(-again)
        self.seen = [*context, *tokens[: depth - 1]]
        return tokens


@register
class MTPEntry(DrafterEntry):
    """A drafter of kind ``mtp``: its layers are part of the target's checkpoint."""

    title = "MTP layers"
    description = "the target's own layers for multi-token prediction"
    needs_target = True

    kind: Literal["mtp"]

    def footprint(self, context: SizeContext) -> Footprint:
        own, count = context.target.config.get_text_config(), self._count(context.target)
        with torch.device("meta"), explained(f"drafter {self.name!r}: {MISSING}"):
            model = MtpModel(context.target, count)
        numbers = sum(parameter.numel() for parameter in model.layers.parameters())
        per_layer = cache_numbers(own) // int(own.num_hidden_layers)
        return context.head(numbers, [last_hidden_state(context.target)], count * per_layer)

    def build(self, context: BuildContext) -> MTPDrafter:
        self._count(context.model)
        with explained(f"drafter {self.name!r}: {MISSING}"):
            model = load_mtp(context.model)
        drafter = MTPDrafter(self.name, model, context.model, context.target)
        drafter.digest, drafter.outputs = digest_of(model.layers.state_dict()), context.target.vocab_size
        return drafter

    def _count(self, target: PreTrainedModel) -> int:
        """How many layers the target's configuration names."""
        if count := getattr(target.config.get_text_config(), "num_mtp_layers", None):
            return int(count)
        raise MisfitError(
            f"drafter {self.name!r}: {MISSING}: its configuration names none (num_nextn_predict_layers), or "
            "transformers knows none of its kind; remove the drafter from the card"
        )
