"""Models and tokenizers from folders beside a card or from the Hub, refused where they could not serve."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from inspect import signature
from logging import ERROR, getLogger
from pathlib import Path
from typing import Any, cast

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
from transformers.modeling_layers import MtpModel
from transformers.utils import is_bitsandbytes_available, logging

from drafters.checkpoints.hub import MODEL_FILES, TOKENIZER_FILES, folder_of
from drafters.checkpoints.tensor_files import check_finite, check_parts, read_config
from drafters.errors import PoolError, first_line
from drafters.hardware import is_out_of_memory
from drafters.source import Quantization, Source


def load_model(
    source: Source, card: Path, dtype: torch.dtype, device: str, what: str, *, language_model: bool = True
) -> PreTrainedModel:
    """A model in evaluation mode with all its weights: a causal LM with a cache that can be rolled back, or a network
    that drafts and is no language model by itself, of a class that ``transformers`` has. Messages call it ``what``."""
    folder = folder_of(source, card, MODEL_FILES)
    check_parts(folder)
    location, quantization = source.id or folder, source.quantization
    auto = AutoModelForCausalLM if language_model else AutoModel
    files = ". Check that the folder or Hub repository holds config.json and complete .safetensors weights"
    with explained(f"cannot load {what} from {location}", files), _quietly():
        read_config(folder / "config.json")  # refuses layers without end, which the library would make
        model, loading = auto.from_pretrained(
            folder,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # the library would tell no shapes
            **(_quantized(quantization, dtype, device) if quantization else {}),
        )
        if missing := loading["missing_keys"]:  # the library would go on with random weights in their place
            raise ValueError(f"its weights lack {len(missing)} tensors, e.g. {min(missing)}")
        if unlike := loading["mismatched_keys"]:
            name, found, due = min(unlike, key=str)
            raise ValueError(f"{name} is {list(found)} in its weights, and {list(due)} by its config.json")
        check_finite(model.named_parameters())
        model = (model if quantization else model.to(device)).eval()  # a quantised one is on its device
        if quantization == "nf4":
            _keep_storage_order(model, dtype)
    kernels = quantization and (
        f". Its files are complete, but bitsandbytes {version('bitsandbytes')} may lack a kernel for {quantization} "
        f"weights of these shapes on {device}: remove quantization from the card, or take the other of nf4 and int8"
    )
    with explained(f"cannot run {what} from {location}", kernels or ""):
        if language_model:
            _probe(model)
    return model


def load_mtp(target: PreTrainedModel) -> MtpModel:
    """The target's layers for multi-token prediction, as its own checkpoint holds them.

    Raises:
        ValueError: they are damaged, or the target runs on numbers of 8 bits, which the library would read of these
            layers without their scales.
    """
    of_8_bits = any(weight.is_floating_point() and weight.itemsize == 1 for weight in target.parameters())
    # With 5.24 the library forgets how it has unpacked a target's layers.
    published = read_config(Path(target.config.name_or_path) / "config.json")
    if of_8_bits or ("quantization_config" in published and not hasattr(target, "_weight_conversions")):
        raise ValueError("its checkpoint holds numbers of 8 bits; name one of 16 bits, or remove the drafter")
    with _quietly():
        model = MtpModel.from_pretrained(target, device_map={"": target.device})
    check_finite(model.layers.named_parameters())
    return model


def cache_argument(model: PreTrainedModel) -> str:
    """What a model's forward calls its cache: ``transformers`` renamed it with 5.24."""
    return "cache" if "cache" in signature(model.forward).parameters else "past_key_values"


@contextmanager
def explained(problem: str, remedy: str = "") -> Iterator[None]:
    """Raise what goes wrong as a :class:`PoolError` of ``problem``; but for memory that runs out, which is the pool's
    to explain."""
    try:
        yield
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise PoolError(f"{problem}: {first_line(error)}{remedy}") from error


def _keep_storage_order(model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Let ``bitsandbytes`` rearrange nf4 weights for its AVX-512-BF16 kernel only where that is correct.

    On a CPU with these instructions a layer's first forward rearranges its weights, which fails unless 32 divides the
    output features and whole blocks the input features; the kernel then computes in bfloat16 whatever the dtype of the
    model. All other layers keep the order of storage, which every CPU computes with in the model's dtype.
    """
    from bitsandbytes.nn import Linear4bit

    for layer in model.modules():
        if isinstance(layer, Linear4bit):
            stored = cast(Any, layer.weight).quant_state
            rows, columns = stored.shape
            if rows % 32 or columns % stored.blocksize or dtype != torch.bfloat16:
                layer.support_avx512bf16_for_cpu = False


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
        getLogger("bitsandbytes.autograd._functions").setLevel(ERROR)  # it warns of float16 at every single product
    return {"quantization_config": how, "device_map": {"": device}}


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the library's progress bars, one for each model: a pool of small ones would print nothing else. And
    without its tables of tensors, of which an error's one line says what matters."""
    shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()


@torch.inference_mode()
def _probe(model: PreTrainedModel) -> None:
    """Decode three tokens and roll one back, as every round will: what cannot do that should say so at loading."""
    if model._is_stateful:
        raise ValueError(f"{type(model).__name__} keeps a recurrent state, which cannot be rolled back")
    ids = torch.tensor([[0, 1]], device=model.device)
    cache = DynamicCache()
    cached: dict[str, Any] = {cache_argument(model): cache, "use_cache": True}
    model(input_ids=ids, logits_to_keep=1, **cached)
    cache.crop(-1)
    model(input_ids=ids[:, 1:], logits_to_keep=1, **cached)
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


def tokenizer_of(source: Source, card: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a model."""
    folder = folder_of(source, card, TOKENIZER_FILES)
    files = ". Check that the folder or Hub repository holds tokenizer.json and tokenizer_config.json"
    with explained(f"cannot load the tokenizer from {source.id or folder}", files):
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
