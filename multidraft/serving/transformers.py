"""Drafters and policy of a pool for whoever holds a model of ``transformers``: a ``custom_generate`` for its
``generate``."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    StoppingCriteriaList,
    SynthIDTextWatermarkLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    UnbatchedClassifierFreeGuidanceLogitsProcessor,
)
from transformers.generation.streamers import BaseStreamer

from drafters.draft import Draft
from drafters.errors import PoolError, UserError
from drafters.pool import Pool, load_pool
from drafters.sampling import SamplingParams
from multidraft.engine.decoding import Decoding
from multidraft.engine.verify import Verdict, verify
from storage.records import Generation

WARPERS = (TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)
"""The processors that :class:`~drafters.sampling.SamplingParams` stands for, in their order."""

STATEFUL = (SynthIDTextWatermarkLogitsProcessor, UnbatchedClassifierFreeGuidanceLogitsProcessor)
"""Processors that expect to be called once for each token of the text; a verification has rows that are rejected."""

NO_LIMIT = 1 << 20


class Speculate:
    """A ``custom_generate``: ``model.generate(**inputs, custom_generate=Speculate("my-pool.yaml"))``.

    Greedy output is the model's own, and sampled output is distributed as the model's. Settings of ``generate`` are
    respected: processors of logits, stopping criteria, sampling, ``set_seed`` (which repeats a sampled text under
    policies that do not look at the clock, as the default does). The library hands no ``streamer`` to
    callables: name it ``stream_to`` in the call of ``generate``.

    Args:
        pool: a bundled card's name or the path of one, whose target is the model.
        policy: a policy spec.
        draft_length: most tokens drafted per round; by default the card's.

    Attributes:
        generation: the last one, with its rounds.
    """

    def __init__(self, pool: str, policy: str = "rate-hedge", draft_length: int | None = None):
        self.card, self.policy, self.draft_length = pool, policy, draft_length
        self.generation: Generation | None = None
        self._pool: Pool | None = None

    @torch.no_grad()
    def __call__(
        self,
        model: PreTrainedModel,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        streamer: BaseStreamer | None = None,
        stream_to: BaseStreamer | None = None,
        **model_kwargs: Any,
    ) -> torch.Tensor:
        """Decode; called by ``generate``.

        Returns:
            Prompt and output ``(1, T)``.

        Raises:
            UserError: something is asked for that this cannot do.
        """
        _check(input_ids, generation_config, model_kwargs)
        if stateful := next((type(one).__name__ for one in logits_processor if isinstance(one, STATEFUL)), None):
            raise UserError(
                f"Speculate cannot apply {stateful}, which carries a state from token to token: leave it out"
            )
        pool = self._loaded(model)
        pool.stop_ids = frozenset(_ids(generation_config.eos_token_id))
        processors, warpers = _split(logits_processor) if generation_config.do_sample else (logits_processor, {})
        room = int(generation_config.max_length) - input_ids.shape[1]
        params = SamplingParams(
            max_new_tokens=min(room, NO_LIMIT),
            temperature=warpers.pop("temperature", 1.0) if generation_config.do_sample else 0.0,
            draft_length=pool.draft_length if self.draft_length is None else self.draft_length,
            **warpers,
        )
        seed = int(torch.randint(2**62, ())) if generation_config.do_sample else 0
        decoding = _Processed(pool, input_ids[0].tolist(), self.policy, params, seed)
        decoding.processors = processors
        self.generation = decoding.generation
        if stream_to := stream_to or streamer:
            stream_to.put(input_ids.cpu())
        for round in decoding:
            for token in round.tokens:
                input_ids = torch.cat([input_ids, input_ids.new_tensor([[token]])], dim=-1)
                if stream_to:
                    stream_to.put(input_ids[:, -1].cpu())
                if stopping_criteria(input_ids, None).all():
                    decoding.cancel()
                    break
        if stream_to:
            stream_to.end()
        return input_ids

    def _loaded(self, model: PreTrainedModel) -> Pool:
        """The pool around the model, loaded with the first call."""
        if self._pool is None or self._pool.target.model is not model:
            self._pool = load_pool(self.card, model=model)
            known = len(self._pool.tokenizer)
            if known > self._pool.target.vocab_size:
                raise PoolError(
                    f"the target of pool {self._pool.name!r} has a vocabulary of {known:,} tokens, the model one of "
                    f"{self._pool.target.vocab_size:,}: take a card for this model"
                )
        return self._pool


class _Processed(Decoding):
    """A decoding with processors of logits, applied to each row of a verification as after one token at a time."""

    processors: LogitsProcessorList

    def _verify(self, draft: Draft) -> tuple[Draft, Verdict, torch.Tensor | None]:
        logits = self.pool.target.score(draft)
        if self.processors:
            logits = logits.float()
            paths: list[list[int]] = [[]]
            for token, parent in zip(draft.tokens, draft.parents, strict=True):
                paths.append([*paths[parent + 1], token])
            rows = [torch.tensor([[*self.context, *path]], device=logits.device) for path in paths]
            logits = torch.cat([self.processors(ids, row[None]) for ids, row in zip(rows, logits, strict=True)])
            self.pool.target.decoder.likeliest = None  # it was of the logits before
        return draft, verify(draft, logits, self.params, self._generator, self.pool.target.choices), logits


def _check(input_ids: torch.Tensor, config: GenerationConfig, model_kwargs: dict[str, Any]) -> None:
    """Raise UserError for what cannot be done."""
    mask = model_kwargs.get("attention_mask")
    caches = [given for name in ("cache", "past_key_values") if (given := model_kwargs.get(name)) is not None]
    for name, instead in (("num_beams", "it does not search"), ("num_return_sequences", "call generate several times")):
        if (asked := getattr(config, name) or 1) > 1:  # the library has repeated the prompt as often
            raise UserError(f"Speculate writes one sequence: {name} must be 1, got {asked}; {instead}")
    if input_ids.shape[0] != 1:
        raise UserError(f"Speculate decodes one prompt at a time, got a batch of {input_ids.shape[0]}; loop over them")
    if mask is not None and not bool(mask.all()):
        raise UserError("Speculate takes prompts without padding: the attention mask must be all ones")
    if any(cache.get_seq_length() for cache in caches):
        raise UserError("Speculate has caches of its own: pass the whole prompt instead of past_key_values")
    for name in ("inputs_embeds", "encoder_outputs", "pixel_values"):
        if model_kwargs.get(name) is not None:
            raise UserError(f"Speculate takes token ids, not {name}")
    if config.prompt_lookup_num_tokens:
        raise UserError("Speculate has the drafters of its card: leave prompt_lookup_num_tokens out")
    if config.return_dict_in_generate:
        raise UserError("Speculate returns token ids: leave return_dict_in_generate out; see Speculate.generation")


def _split(processors: LogitsProcessorList) -> tuple[LogitsProcessorList, dict[str, Any]]:
    """Processors to be applied, and those that sampling parameters stand for, which must be the last: others among or
    after them are applied with them all."""
    own = [processor for processor in processors if not isinstance(processor, WARPERS)]
    warpers = list(processors[len(own) :])
    order = [WARPERS.index(type(one)) for one in warpers if isinstance(one, WARPERS)]
    if list(processors[: len(own)]) != own or order != sorted(set(order)):
        return processors, {}
    params: dict[str, Any] = {}
    for warper in warpers:
        for name, kind in (("temperature", float), ("top_k", int), ("top_p", float)):
            if hasattr(warper, name):
                params[name] = kind(getattr(warper, name))
    return LogitsProcessorList(own), params


def _ids(found: Any) -> list[int]:
    """Token ids, given as one, several or none."""
    return [] if found is None else [found] if isinstance(found, int) else list(found)
