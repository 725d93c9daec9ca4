"""Models, tokenizers and pools of a few kilobytes, the same in every run.

Freshly initialised models are nearly uniform, so their weights are drawn larger here: distributions are
peaked, greedy decoding has no ties. A drafter made ``like`` a target shares its weights up to noise, so that
some of its tokens are accepted and some are not.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from drafters.models.onnx_decoder import OnnxDecoder
from drafters.models.runtimes import HubDecoder
from drafters.models.torch_decoder import TorchDecoder
from drafters.pool import Pool, load_pool

_written: WeakKeyDictionary[PreTrainedModel, dict[Any, list[list[int]]]] = WeakKeyDictionary()
END = 0
VOCAB = 12
WINDOW = 64
CHARACTERS = "?abcdefghi "
"""What the tokens 1 … 11 spell; token 0 is ``<|end|>``, ``?`` stands for everything unknown."""

HUB_KINDS = ("gpt2", "gpt_neox", "qwen2", "qwen3", "mistral", "gemma2")
"""Architectures beside Llama. All layers of mistral, every other one of gemma2, see a sliding window of six tokens."""


RUNTIMES = {
    "onnx": OnnxDecoder,
    "torch": TorchDecoder,
    "static": lambda model: TorchDecoder(model, static=True),
    "hub": HubDecoder,
}
"""Ways to run a plain decoder, by name; ``static`` is what a GPU does, without its graphs."""

KINDS_BY_RUNTIME = [
    *(f"llama:{runtime}" for runtime in RUNTIMES),
    *(f"{kind}:{runtime}" for kind in ("qwen2", "qwen3", "mistral") for runtime in ("onnx", "torch", "static")),
    *(f"{kind}:hub" for kind in HUB_KINDS),
]
"""Architectures, each with the runtimes that it has."""


def spread(model: PreTrainedModel, seed: int, sharpness: float = 3.0, gain: float = 2.0) -> PreTrainedModel:
    """Redraw all weights such that logits have a standard deviation of about ``sharpness``.

    ``gain`` makes the layers outweigh the embedding they add to, so that more than the last token counts. The
    stop token's row is zero: greedy decoding hardly ever takes it.
    """
    generator = torch.Generator().manual_seed(seed)
    output = model.get_output_embeddings().weight
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter is output:
                scale = sharpness / math.sqrt(parameter.shape[1])
            elif parameter is model.get_input_embeddings().weight:
                scale = 1.0
            elif parameter.ndim < 2:
                continue
            else:
                scale = gain / math.sqrt(parameter.shape[1])
            parameter.normal_(0.0, scale, generator=generator)
        if output is not model.get_input_embeddings().weight:
            output[END] = 0.0
    return model.eval()


def blend(model: PreTrainedModel, like: PreTrainedModel, noise: float) -> PreTrainedModel:
    """Give ``model`` the weights of ``like`` plus ``noise`` times its own, wherever names and shapes agree."""
    theirs = dict(like.named_parameters())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in theirs and theirs[name].shape == parameter.shape and parameter.ndim > 1:
                parameter.mul_(noise).add_(theirs[name])
    return model


def llama(
    seed: int = 0,
    *,
    layers: int = 2,
    hidden: int = 24,
    vocab: int = VOCAB,
    window: int = WINDOW,
    sharpness: float = 3.0,
    **settings: Any,
) -> LlamaForCausalLM:
    """A Llama with grouped queries."""
    values: dict[str, Any] = {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": window,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": END,
        "pad_token_id": None,
    }
    return spread(LlamaForCausalLM(LlamaConfig(**{**values, **settings})), seed, sharpness)


def causal_lm(
    kind: str, seed: int = 0, *, layers: int = 2, vocab: int = VOCAB, window: int = WINDOW
) -> PreTrainedModel:
    """A model of one of ``HUB_KINDS``."""
    values: dict[str, Any] = {
        "vocab_size": vocab,
        "hidden_size": 24,
        "intermediate_size": 48,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "max_position_embeddings": window,
        "bos_token_id": None,
        "eos_token_id": END,
        "pad_token_id": None,
    }
    if kind in ("qwen2", "qwen3", "mistral", "gemma2"):
        values["num_key_value_heads"] = 2
        values["head_dim"] = 16
    if kind in ("mistral", "gemma2"):
        values["sliding_window"] = 6
        values["tie_word_embeddings"] = False
    if kind == "gpt2":
        del values["intermediate_size"]
    return spread(AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**values)), seed)


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a character."""
    return characters(["<|end|>", *CHARACTERS], eos_token="<|end|>")


def spaced_tokenizer(
    tokens: Iterable[str] = ("<|end|>", *(f"▁{character}" for character in CHARACTERS)),
) -> PreTrainedTokenizerFast:
    """As of SentencePiece: by default the same characters as words, whose space belongs to them and is dropped at the
    very start."""
    words = characters(tokens, eos_token="<|end|>")
    words.backend_tokenizer.decoder = decoders.Metaspace()
    return words


def characters(tokens: Iterable[str] | dict[str, int], **special: Any) -> PreTrainedTokenizerFast:
    """A tokenizer of these tokens, by number or in their order, each a character or ``special``."""
    numbers = tokens if isinstance(tokens, dict) else {token: number for number, token in enumerate(tokens)}
    one = Tokenizer(models.WordLevel(numbers, unk_token="?"))
    one.pre_tokenizer, one.decoder = pre_tokenizers.Split("", "isolated"), decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=one, unk_token="?", **special)


def load(card: str | Path, **options: Any) -> Pool:
    """A pool without stop tokens, so that outputs have their full length."""
    pool = load_pool(card, **options)
    pool.stop_ids = frozenset()
    return pool


def write_pool(folder: Path, *, sharpness: float = 3.0, **card: Any) -> Path:
    """Write models, tokenizer and card of a pool to ``folder``.

    Its drafters: ``near`` and ``far`` (Llamas of one shape: they are judged together), ``lookup`` (prompt lookup),
    ``alone`` (a Qwen2 with a shorter window).

    Returns:
        The card's path.
    """
    target = llama(1, sharpness=sharpness)
    target.save_pretrained(folder / "target")
    tokenizer().save_pretrained(folder / "target")
    blend(llama(2), target, 0.1).save_pretrained(folder / "near")
    blend(llama(3), target, 0.3).save_pretrained(folder / "far")
    blend(causal_lm("qwen2", 4, layers=1, window=WINDOW // 2), target, 0.1).save_pretrained(folder / "alone")
    content = {
        "name": "tiny",
        "title": "A pool of a few kilobytes",
        "target": {"path": "target"},
        "drafters": [
            {"name": "near", "kind": "lm", "path": "near"},
            {"name": "lookup", "kind": "pld"},
            {"name": "far", "kind": "lm", "path": "far"},
            {"name": "alone", "kind": "lm", "path": "alone"},
        ],
        "device": "cpu",
        "draft_length": 4,
        **card,
    }
    path = folder / "card.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def change_card(path: Path, **changes: Any) -> Path:
    """Give a pool's card other values of some settings."""
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **changes}))
    return path


@torch.inference_mode()
def logits_of(model: PreTrainedModel, ids: Sequence[int]) -> torch.Tensor:
    """Logits ``(len(ids), V)`` of a model without any cache: what everything else is compared with."""
    return model(input_ids=torch.tensor([list(ids)], device=model.device), use_cache=False).logits[0]


@torch.no_grad()
def states_of(model: PreTrainedModel, ids: Sequence[int] | torch.Tensor, layers: Sequence[int]) -> torch.Tensor:
    """States that enter some layers side by side, ``(*ids.shape, len(layers) * hidden)``, without any cache; the last
    layer and one are named by their numbers. ``ids``: a text, or several of one length."""
    ids = torch.as_tensor(ids, device=model.device)
    states = model(input_ids=ids.view(-1, ids.shape[-1]), output_hidden_states=True, use_cache=False).hidden_states
    return torch.cat([states[layer] for layer in layers], dim=-1).view(*ids.shape, -1)


def greedy(model: PreTrainedModel, ids: Sequence[int], tokens: int) -> list[int]:
    """``tokens`` greedy tokens after ``ids`` by transformers' own ``generate``, stop tokens ignored."""
    return greedy_batch(model, [ids], tokens)[0]


def greedy_batch(model: PreTrainedModel, rows: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
    """As :func:`greedy`, after each of several prompts of one length; remembered while the model has these weights."""
    weights = tuple((p.data_ptr(), p._version, p.dtype) for p in model.parameters())
    key = (weights, tuple(map(tuple, rows)), tokens)
    known = _written.setdefault(model, {})
    if key not in known:
        prompts = torch.tensor([list(ids) for ids in rows], device=model.device)
        output = model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            max_new_tokens=tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=END,
        )
        known[key] = output[:, prompts.shape[1] :].tolist()
    return [list(row) for row in known[key]]


def prompts(count: int, seed: int = 0, shortest: int = 1, longest: int = 20, vocab: int = VOCAB) -> list[list[int]]:
    """Random prompts of token ids, none a stop token."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(shortest, longest + 1, (count,), generator=generator).tolist()
    return [torch.randint(2, vocab - 1, (length,), generator=generator).tolist() for length in lengths]


def texts(count: int, seed: int = 0, shortest: int = 1, longest: int = 20) -> list[str]:
    """Random prompts of the tiny tokenizer's letters."""
    return ["".join(CHARACTERS[i - 1] for i in ids) for ids in prompts(count, seed, shortest, longest)]
