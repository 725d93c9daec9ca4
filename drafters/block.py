"""``dflash`` and ``mtp``: drafters that write a block from the target's hidden states, by transformers' own models.

The library brings the networks and the generators that drive them (``generation/candidate_generator.py``:
``DFlashTokenCandidateGenerator``, ``MTPCandidateGenerator``). Here the same networks are fed the same inputs through
our interface: hidden states come from the :class:`~multidraft.features.FeatureSource`, and what is cached follows the
context whatever was asked before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.cache_utils import DFlashCache, MtpCache
from transformers.modeling_layers import MtpModel

from drafters.base import Evidence, common_prefix
from drafters.proposing import PointMassDrafter
from multidraft.draft import Draft
from multidraft.features import FeatureSource
from multidraft.sampling import SamplingParams


class BlockDrafter(PointMassDrafter):
    """What the two have in common: drafts are chains of point masses, each token the likeliest to the drafter.

    A block has the size that its network was trained with; of a longer one than asked for the first tokens are taken.
    γ and acceptances are found by drafting at each position, one block each.
    """

    def prepare(self, context: Sequence[int]) -> None:
        self.forget()
        if len(context) > 1:
            self._block(context)

    def propose(
        self,
        context: Sequence[int],
        length: int,
        params: SamplingParams,
        generator: torch.Generator,
        *,
        with_q: bool = False,
    ) -> Draft:
        if len(context) < 2 or length < 1:  # a context of one token has no hidden states yet
            return Draft.empty()
        return Draft.chain(self._block(context)[:length])

    def gamma(self, evidence: Evidence) -> np.ndarray:
        """γ = p(x̂) of the first token of the block at each position; 0 at a text's first two."""
        self.read(evidence.context)
        return super().gamma(evidence)

    def acceptances(self, context: Sequence[int], start: int, length: int) -> np.ndarray:
        self.read(context)
        return super().acceptances(context, start, length)

    def _block(self, context: Sequence[int]) -> list[int]:
        try:
            return self.block(list(context))
        except BaseException:  # a forward that breaks off leaves a cache that is good for nothing
            self.forget()
            raise

    def read(self, context: Sequence[int]) -> None:
        """Let the target read once what all prefixes of ``context`` need."""
        raise NotImplementedError

    def forget(self) -> None:
        """Empty the cache."""
        raise NotImplementedError

    def block(self, context: list[int]) -> list[int]:
        """The tokens that the network puts after ``context``, which has two at least."""
        raise NotImplementedError


class DFlashDrafter(BlockDrafter):
    """Denoises a block of masks in one forward, conditioned on hidden states of several of the target's layers.

    The keys and values of the context are made of those hidden states; the queries are the context's last token and
    ``block_size - 1`` masks, all embedded by the target and seeing each other both ways. The target's output
    embedding reads the tokens off.

    Args:
        name: the arm's name.
        model: a DFlash network of the library: ``MuseGlimmerAssistantModel`` is the one it has (5.23); any other with
            ``block_size``, ``mask_token_id`` and ``target_layer_ids`` in its configuration and the same ``forward``
            will do.
        target: the target's model, for its embeddings.
        source: where the target's hidden states come from.

    Raises:
        ValueError: a network that is none of DFlash, or does not fit the target.

    Source: DFlash (Chen et al. 2026) as in transformers' ``DFlashTokenCandidateGenerator``. There the drafted tokens
    are drawn in sampled runs; here they are the likeliest in all runs.
    """

    kind = "dflash"

    def __init__(self, name: str, model: PreTrainedModel, target: PreTrainedModel, source: FeatureSource):
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
        self.size = int(config.block_size)
        self.parameter_count = model.num_parameters()
        source.watch(self.layers)
        self.forget()

    def read(self, context: Sequence[int]) -> None:
        self.source.features(context, self.layers)

    def forget(self) -> None:
        # Without a configuration every layer keeps all it sees, and any of it can be taken back; the window of
        # sliding layers is applied by the mask.
        self.cache = DFlashCache()
        self.cached: list[int] = []
        """The tokens whose hidden states are in the cache."""

    @torch.inference_mode()
    def block(self, context: list[int]) -> list[int]:
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
            position_ids=torch.arange(keep, len(known) + self.size, device=device)[None],
            past_key_values=self.cache,
        )
        self.cache.crop(-self.size)
        self.cached = known
        head = self.target.get_output_embeddings()
        hidden = output.last_hidden_state[0, 1:].to(head.weight.device, head.weight.dtype)
        tokens: list[int] = head(hidden).argmax(dim=-1).tolist()
        return tokens

    def _embedded(self, ids: torch.Tensor) -> torch.Tensor:
        """Embeddings ``(1, n, hidden)``, without the norm that some targets' embedding ends in (as the library)."""
        embedding = self.target.get_input_embeddings()
        normed = getattr(embedding, "embed_norm", None) is not None
        embedded: torch.Tensor = functional.embedding(ids, embedding.weight) if normed else embedding(ids)
        return embedded


class MTPDrafter(BlockDrafter):
    """Drafts with the target's own layers for multi-token prediction, one token a layer.

    Layer ``k`` joins what layer ``k - 1`` made of a position (the first: the target's last hidden state) with the
    embedding of the token ``k + 1`` further on. Embedding and output head are the target's.

    Args:
        name: the arm's name.
        model: the layers, as many as the target's configuration names in ``num_mtp_layers``;
            ``MtpModel.from_pretrained(target, device_map={"": device})`` reads them from the target's checkpoint.
        target: the target's model.
        source: where the target's hidden states come from.

    Source: DeepSeek-V3 (2024), Sec. 2.2, as in transformers' ``MTPCandidateGenerator``. Entries of deeper layers that
    were made with refused tokens are dropped from the cache like there, but never by a fixed number: all that saw
    another token than the context holds.
    """

    kind = "mtp"

    def __init__(self, name: str, model: MtpModel, target: PreTrainedModel, source: FeatureSource):
        # The library leaves layers that it has read from a checkpoint in training mode.
        self.name, self.model, self.source = name, model.eval(), source
        self.layers = (int(target.config.get_text_config().num_hidden_layers),)
        self.parameter_count = sum(parameter.numel() for parameter in model.layers.parameters())
        source.watch(self.layers)
        self.forget()

    def read(self, context: Sequence[int]) -> None:
        self.source.features(context, self.layers)

    def forget(self) -> None:
        self.cache = MtpCache()  # without a configuration, for the same reason as in DFlashDrafter
        self.rows = 0
        """Positions in the cache of each layer."""
        self.seen: list[int] = []
        """The tokens that made them; a position of layer ``k`` has seen ``k`` tokens beyond the next one."""

    @torch.inference_mode()
    def block(self, context: list[int]) -> list[int]:
        depth = len(self.model.layers)
        keep = max(min(common_prefix(self.seen, context) - depth, len(context) - 2), 0)
        self.cache.crop(keep - self.rows)
        device = next(self.model.layers.parameters()).device
        drafted, _, _ = self.model(
            input_ids=torch.tensor([context[keep + 1 :]], device=device),
            last_hidden_states=self.source.features(context, self.layers)[None, keep:].to(device),
            attention_mask=None,
            position_ids=torch.arange(keep + 1, len(context), device=device)[None],
            mtp_cache=self.cache,
        )
        tokens: list[int] = drafted[0].tolist()
        self.rows, self.seen = len(context) - 1, [*context, *tokens[:-1]]
        return tokens
