"""Models and tokenizers from folders beside a card or from the Hub, refused where they could not serve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    DynamicCache,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import is_bitsandbytes_available, logging

from drafters.card import KINDS, Card, Quantization, Source
from drafters.hub import HEAD_FILES, MODEL_FILES, TOKENIZER_FILES, fetch, fetched_folder
from drafters.progress import Steps
from multidraft.errors import PoolError

HEADS = ("eagle", "medusa", "bpd")
"""Kinds of drafters for which ``transformers`` has no class."""


class PoolMemoryError(PoolError):
    """A pool that does not fit into the memory that is free.

    Attributes:
        missing: bytes that are needed beyond those that are free; ``None`` where that is not known.
    """

    def __init__(self, message: str, missing: int | None = None):
        super().__init__(message)
        self.missing = missing


def folder_of(source: Source, card: Path, files: Sequence[str] = HEAD_FILES) -> Path:
    """The local folder of a model; the ``files`` of a Hub repository are fetched if they have not been.

    Raises:
        PoolError: a folder that does not exist, or a repository that cannot be fetched.
    """
    if source.path is None:
        return fetched_folder(source, files)
    folder = (card.parent / source.path).resolve()
    if not folder.is_dir():
        raise PoolError(f"the pool card {card} names the folder {folder}, which does not exist")
    return folder


def count_steps(card: Card) -> int:
    """How many steps it takes to load a pool: fetching from the Hub, then loading."""
    return len(_repositories(card)) + 1 + len(card.drafters)


def fetch_models(card: Card, steps: Steps) -> None:
    """Bring all Hub repositories of a pool into the local cache, before the first model takes up memory.

    Raises:
        PoolError: one cannot be fetched; the message says which, why, and what to do.
    """
    for what, source, files in _repositories(card):
        steps.fetching(f"{what}, {source.id}")
        fetch(source, files, steps.fetched)


def _repositories(card: Card) -> list[tuple[str, Source, Sequence[str]]]:
    """Each with whose it is, and the files to fetch."""
    wanted: list[tuple[str, Source, Sequence[str]]] = []
    if card.target.id:
        wanted.append(("the target", card.target, MODEL_FILES))
    for entry in card.drafters:
        if entry.id and KINDS[entry.kind][0] == "model":
            wanted.append((f"drafter {entry.name!r}", entry.source, HEAD_FILES if entry.kind in HEADS else MODEL_FILES))
    return wanted


def load_model(source: Source, card: Path, dtype: torch.dtype, device: str, what: str) -> PreTrainedModel:
    """A causal LM in evaluation mode, with all its weights and a cache that can be rolled back.

    Raises:
        PoolError: it cannot be loaded or used; the message says ``what`` was to be loaded from where.
    """
    folder = folder_of(source, card, MODEL_FILES)
    location = source.id or folder
    try:
        with _no_bars():
            model, loading = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=dtype,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
                **(_quantized(source.quantization, dtype, device) if source.quantization else {}),
            )
        if missing := loading["missing_keys"]:  # the library would go on with random weights in their place
            raise ValueError(f"its weights lack {len(missing)} tensors, e.g. {min(missing)}")
        if model._is_stateful:
            raise ValueError(f"{type(model).__name__} keeps a recurrent state, which cannot be rolled back")
        model = (model if source.quantization else model.to(device)).eval()  # a quantised one is on its device
        _probe(model)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise PoolError(
            f"cannot load {what} from {location}: {first_line(error)}. Check that the folder or Hub repository "
            "holds config.json and complete .safetensors weights"
        ) from error
    return model


def _quantized(quantization: Quantization, dtype: torch.dtype, device: str) -> dict[str, Any]:
    """Arguments of ``from_pretrained`` that quantise the weights while they load."""
    if not is_bitsandbytes_available():
        raise ValueError("quantization needs bitsandbytes: pip install bitsandbytes")
    if quantization == "nf4":
        how = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
    else:
        # No threshold for outliers: columns that hold one would be multiplied otherwise for all tokens of a forward, so
        # that a token's logits would depend on which others are verified with it.
        how = BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=0.0)
    return {"quantization_config": how, "device_map": {"": device}}


def load_network(source: Source, card: Path, dtype: torch.dtype, device: str, name: str) -> PreTrainedModel:
    """A drafting network that is no language model by itself, of a class that ``transformers`` has.

    Raises:
        PoolError: it cannot be loaded, or weights are missing.
    """
    folder = folder_of(source, card, MODEL_FILES)
    try:
        model, loading = AutoModel.from_pretrained(
            folder, dtype=dtype, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
        if missing := loading["missing_keys"]:
            raise ValueError(f"its weights lack {len(missing)} tensors, e.g. {min(missing)}")
    except Exception as error:
        if is_out_of_memory(error):
            raise
        location = source.id or folder
        raise PoolError(f"cannot load drafter {name!r} from {location}: {first_line(error)}") from error
    return model.to(device).eval()


@contextmanager
def _no_bars() -> Iterator[None]:
    """Without the library's progress bars, one for each model: a pool of small ones would print nothing else."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@torch.inference_mode()
def _probe(model: PreTrainedModel) -> None:
    """Decode three tokens and roll one back, as every round will: what cannot do that should say so at loading."""
    ids = torch.tensor([[0, 1]], device=model.device)
    cache = DynamicCache()
    model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
    cache.crop(-1)
    model(input_ids=ids[:, 1:], past_key_values=cache, use_cache=True, logits_to_keep=1)
    if cache.get_seq_length() != 2:
        raise ValueError(f"{type(model).__name__} does not keep its past in a cache that can be rolled back")


def drafter_tokenizer(source: Source, card: Path) -> PreTrainedTokenizerBase | None:
    """The drafter's tokenizer where it brings one."""
    folder = folder_of(source, card, MODEL_FILES)
    try:
        own = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception:  # weights alone are fine: then the card's author answers for the ids
        return None
    # Where the files are missing the library may make up a tokenizer of a few special tokens.
    return own if len(own.get_vocab()) > len(own.all_special_ids) else None


def same_tokens(own: PreTrainedTokenizerBase, target: PreTrainedTokenizerBase) -> bool:
    """Whether the ids that both tokenizers know stand for the same tokens."""
    theirs = {index: token for token, index in target.get_vocab().items()}
    return all(theirs.get(index, token) == token for token, index in own.get_vocab().items())


def load_tokenizer(card: Card, path: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of the pool that ``card``, read from ``path``, describes.

    Raises:
        PoolError: it cannot be loaded.
    """
    return tokenizer_of(card.target, path)


def tokenizer_of(source: Source, card: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a model.

    Raises:
        PoolError: it cannot be loaded.
    """
    folder = folder_of(source, card, TOKENIZER_FILES)
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:
        raise PoolError(f"cannot load the tokenizer from {source.id or folder}: {first_line(error)}") from error


@contextmanager
def enough_memory(pool: str, device: str, steps: Steps) -> Iterator[None]:
    """Where memory runs out, say for which model.

    Raises:
        PoolMemoryError: it did.
    """
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise PoolMemoryError(
            f"pool {pool!r} does not fit into the memory that is free on {device}: it ran out at {steps.what}. "
            "Quantise the target (quantization: nf4 or int8 in the card), leave drafters out, or end what else holds "
            "memory there"
        ) from None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch, on a GPU or a CPU, or Python found no more memory."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, without its full stop; its kind where it has none."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".")
