"""The target: a causal LM with its key-value cache; verifies a whole draft in one forward."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from functools import partial

import torch
from transformers import PreTrainedModel

from drafters.checkpoints.model_sizes import last_hidden_state
from drafters.draft import Draft
from drafters.errors import ContextWindowError
from drafters.models.decoder import Decoder
from drafters.models.features import Features
from drafters.models.runtimes import HubDecoder, decoder_for
from drafters.sampling import choices


class Target:
    """A causal LM and the tokens it has cached.

    Between calls the cache holds the whole context but its last token: that one is *pending* and goes
    first into the next forward, whose first row of logits is the distribution after the context.

    Args:
        model: any Hugging Face causal LM with a key-value cache, in evaluation mode.
        decoder: what runs it; by default the fastest that can (:func:`~drafters.models.runtimes.decoder_for`).
        window: most tokens of a context; by default, and at most, what the model knows.
    """

    def __init__(self, model: PreTrainedModel, decoder: Decoder | None = None, *, window: int | None = None):
        self.model = model
        self.vocab_size: int = int(model.config.get_text_config().vocab_size)
        self.device = model.device
        self.decoder = decoder or decoder_for(model, verifies=True)
        self.window: int = min(self.decoder.window, window or self.decoder.window)
        self._length = 0
        self._pending: int | None = None
        self._features = Features(partial(_hidden_states, model))
        self._fed: list[int] = []
        self.queries = 0
        """How many prompts were prefilled: by it a generation notices that another took over the cache."""
        own = isinstance(self.decoder, HubDecoder)
        self.trees = not own or (not _counts_slots(model) and self._scores_trees())
        """Whether drafts may branch: not where a token's position follows from its slot in the cache."""

    def twin(self) -> Target:
        """The same model for another text: weights are shared, the cache is its own."""
        twin = copy.copy(self)
        twin.decoder, twin._features = self.decoder.twin(), self._features.twin()
        twin._length, twin._pending, twin.queries = 0, None, 0
        return twin

    @property
    def context_length(self) -> int:
        """Tokens of the context, the pending one included."""
        return self._length + (self._pending is not None)

    def prefill(self, ids: Sequence[int]) -> None:
        """Begin a new context with the prompt ``ids``.

        Raises:
            ContextWindowError: the prompt leaves no room for a single new token.
        """
        if not ids:
            raise ValueError("a context needs at least one token")
        if len(ids) >= self.window:
            raise ContextWindowError(
                f"the prompt has {len(ids):,} tokens, but the target's context window holds {self.window:,} "
                f"including the answer; shorten the prompt to at most {self.window - 1:,} tokens"
            )
        self.queries += 1
        self._features.clear()
        self._length, self._pending = 0, None
        if len(ids) > 1:
            self.decoder.forward(ids[:-1], 0, last=1, capture=self._features.layers)
            if self._features.layers:
                self._features.extend(ids[:-1], self.decoder.captured, range(len(ids) - 1))
        self._length, self._pending = len(ids) - 1, ids[-1]

    def score(self, draft: Draft) -> torch.Tensor:
        """Logits ``(n + 1, V)`` for a draft of ``n`` nodes in one forward.

        Row 0 follows the context, row ``j + 1`` follows node ``j`` and its ancestors. The nodes stay in
        the cache until :meth:`accept` says which of them are kept. The logits are valid until the next forward.
        """
        if self._pending is None:
            raise RuntimeError("prefill the target before scoring a draft")
        if not draft.is_chain and not self.trees:
            raise ValueError(f"{type(self.model).__name__} cannot score drafts that branch")
        self._fed = ids = [self._pending, *draft.tokens]
        start, layers = self._length, self._features.layers
        if draft.is_chain:
            return self.decoder.forward(ids, start, capture=layers, lend=True)
        positions = start + torch.tensor([0, *(depth + 1 for depth in draft.depths)])
        mask = tree_mask(draft, start)
        return self.decoder.forward(ids, start, positions=positions, mask=mask, capture=layers, lend=True)

    def choices(self, logits: torch.Tensor) -> tuple[list[int], list[bool]]:
        """As :func:`~drafters.sampling.choices` of the logits that :meth:`score` returned last."""
        if self.decoder.likeliest is None:
            return choices(logits)
        tokens, chances = self.decoder.likeliest
        return tokens.tolist(), [chance > -math.inf for chance in chances.tolist()]  # false for NaN too

    def accept(self, path: Sequence[int], own: int) -> None:
        """Keep the nodes of ``path`` from the draft just scored, forget the others; ``own`` becomes pending."""
        kept = [0, *(node + 1 for node in path)]
        if self._features.layers:
            self._features.extend(self._fed, self.decoder.captured, kept)
        self.decoder.keep(self._length, kept)
        self._length += len(kept)
        self._pending = own

    def watch(self, layers: Sequence[int]) -> None:
        """As of :class:`~drafters.base.FeatureSource`.

        Raises:
            ValueError: a layer that the model does not have.
        """
        count = last_hidden_state(self.model)
        if missing := [layer for layer in layers if not 0 <= layer <= count]:
            raise ValueError(f"the target has hidden states 0 to {count}, not {missing[0]}")
        self._features.watch(layers)

    def features(self, context: Sequence[int], layers: Sequence[int]) -> torch.Tensor:
        """As of :class:`~drafters.base.FeatureSource`. Those of the present context come from its own forwards; any
        other text costs one forward."""
        return self._features.of(context, layers)

    def _scores_trees(self) -> bool:
        """Score a small tree and each of its paths as a chain: whether they agree, up to rounding."""
        tokens = [token % self.vocab_size for token in range(1, 5)]
        tree = Draft(tuple(tokens), (-1, -1, 0, 1))
        self.trees = True
        try:
            self.prefill([0, 0])
            scores = self.score(tree)[3:].clone()
            paths = []
            for path in ((0, 2), (1, 3)):
                self.prefill([0, 0])
                paths.append(self.score(Draft.chain([tokens[node] for node in path]))[2].clone())
        except Exception:  # models raise whatever comes of masks and positions that they do not know
            return False
        finally:
            self.queries, self._pending, self._length = 0, None, 0
        expected = torch.stack(paths).float()
        exact = self.model.dtype == torch.float32 and not getattr(self.model, "is_quantized", False)
        return bool((scores.float() - expected).abs().max() <= (1e-3 if exact else 0.05) * expected.std())


@torch.inference_mode()
def _hidden_states(model: PreTrainedModel, ids: Sequence[int], layers: Sequence[int]) -> torch.Tensor:
    tokens = torch.tensor([list(ids)], device=model.device)
    states = model(input_ids=tokens, use_cache=False, output_hidden_states=True, logits_to_keep=1)
    return torch.cat([states.hidden_states[layer][0] for layer in layers], dim=-1)


def tree_mask(draft: Draft, start: int) -> torch.Tensor:
    """Which positions each of the ``n + 1`` fed tokens sees: bool ``(n + 1, start + n + 1)``.

    All see the ``start`` cached tokens and the pending one; a node also sees its ancestors and itself.
    """
    count = len(draft) + 1
    own = torch.zeros(count, count, dtype=torch.bool)
    own[:, 0] = True
    for node, parent in enumerate(draft.parents):
        own[node + 1] |= own[parent + 1]
        own[node + 1, node + 1] = True
    return torch.cat([torch.ones(count, start, dtype=torch.bool), own], dim=1)


def _counts_slots(model: PreTrainedModel) -> bool:
    """Whether attention depends on how far apart tokens lie in the cache: by chunks, bands or linear biases (ALiBi)."""
    config = model.config.get_text_config()
    biased = getattr(config, "alibi", False) or config.model_type in ("bloom", "mpt", "gpt_neo")
    kinds = set(getattr(config, "layer_types", None) or ())
    return bool(biased or kinds - {"full_attention", "sliding_attention"})
