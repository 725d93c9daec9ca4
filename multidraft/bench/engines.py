"""Other engines with the pool's target: ``transformers`` and llama.cpp.

All decode greedily, from token ids, with the pool's weights on its cores, and stop at its stop tokens. Weights are in
float32 as ours are; llama.cpp also runs with its usual float16.
"""

from __future__ import annotations

import importlib.util
import logging
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig, LlamaForCausalLM, PreTrainedModel
from transformers.generation.streamers import BaseStreamer

from drafters.base import common_prefix
from drafters.errors import UserError
from drafters.kinds.lm import LMDrafter
from drafters.models.onnx_decoder import OnnxDecoder
from drafters.models.token_map import ConfinedHead
from drafters.pool import Pool
from drafters.sampling import SamplingParams
from multidraft.bench.inspect import accepted_by_task
from multidraft.bench.suites import SuiteItem

EXAMPLE_TOKENS = 96
"""Of each example so many tokens decide which drafter assists peers, if none is named."""


@dataclass(frozen=True)
class Output:
    """What a peer has written.

    Attributes:
        token_ids: without the prompt.
        prefill_seconds: until the first tokens, ``first`` of them: with drafts the first round brings several.
        seconds: of the whole request.
    """

    token_ids: list[int]
    prefill_seconds: float
    seconds: float
    first: int = 1


# A warning that transformers 5 gives of its own call of an assistant.
_MIXED = "Passing `generation_config` together with generation-related"
logging.getLogger("transformers.generation.utils").addFilter(lambda record: not record.getMessage().startswith(_MIXED))


class Peer(ABC):
    """An engine with the pool's target loaded."""

    name: str

    @abstractmethod
    def generate(self, ids: Sequence[int], most: int) -> Output:
        """Decode greedily after the prompt ``ids``, until a stop token or ``most`` tokens."""


class Transformers(Peer):
    """``transformers.generate``: by itself, with prompt lookup, or assisted by a drafter.

    Args:
        assistant: a drafter, of ``draft_length`` tokens per round, or fewer where it has less confidence than this.
        options: further settings of ``generate``.
    """

    def __init__(
        self,
        name: str,
        pool: Pool,
        assistant: PreTrainedModel | None = None,
        draft_length: int = 0,
        confidence: float = 0.0,
        **options: Any,
    ):
        self.name, self.model, self.assistant = name, pool.target.model, assistant
        self.settings = {"num_assistant_tokens": draft_length, "assistant_confidence_threshold": confidence}
        self.options = options
        self.stop = sorted(pool.stop_ids) or None

    def generate(self, ids: Sequence[int], most: int) -> Output:
        if self.assistant is not None:
            self.assistant.generation_config.update(**self.settings, num_assistant_tokens_schedule="constant")
        prompt = torch.tensor([list(ids)], device=self.model.device)
        clock = _FirstTokens()
        begun = time.perf_counter()
        output = self.model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            # Not the model's own: some ask for penalties.
            generation_config=GenerationConfig(
                max_new_tokens=most, do_sample=False, eos_token_id=self.stop, pad_token_id=0, **self.options
            ),
            assistant_model=self.assistant,
            streamer=clock,
        )
        seconds = time.perf_counter() - begun
        return Output(output[0, len(ids) :].tolist(), clock.at - begun, seconds, clock.first)


class _FirstTokens(BaseStreamer):
    """Notes when the first tokens came, and how many."""

    def __init__(self) -> None:
        self.calls, self.first, self.at = 0, 0, 0.0

    def put(self, value: torch.Tensor) -> None:
        self.calls += 1
        if self.calls == 2:  # the first is the prompt
            self.first, self.at = value.numel(), time.perf_counter()

    def end(self) -> None:
        pass


class LlamaCpp(Peer):
    """llama.cpp's own decoding through ``llama_cpp``, whose model file is written from the pool's weights.

    Args:
        drafter: a model that drafts ``draft_length`` tokens per round, of which the target verifies all at once.
        half: the target's matrices in float16; llama.cpp then rounds activations to float16 too.
    """

    def __init__(
        self,
        name: str,
        pool: Pool,
        drafter: LlamaForCausalLM | None = None,
        draft_length: int = 0,
        *,
        half: bool = False,
    ):
        self.name, self.stop, self.draft_length = name, pool.stop_ids, draft_length
        self.target = _LlamaCppModel(pool.target.model, half=half)
        self.drafter = _LlamaCppModel(drafter) if drafter is not None else None

    def generate(self, ids: Sequence[int], most: int) -> Output:
        begun = time.perf_counter()
        written: list[int] = [self.target.feed(ids, 0)[-1]]
        if self.drafter is not None:
            self.drafter.follow([*ids])  # as our drafters do, it reads the prompt before decoding begins
        first = time.perf_counter()
        while len(written) < most and written[-1] not in self.stop:
            context = [*ids, *written]
            draft = self._draft(context, most - len(written) - 1)
            choices = self.target.feed([written[-1], *draft], len(context) - 1)
            for proposed, chosen in zip([*draft, None], choices, strict=True):
                written.append(chosen)
                if chosen != proposed or chosen in self.stop:
                    break
        return Output(written, first - begun, time.perf_counter() - begun)

    def _draft(self, context: Sequence[int], most: int) -> list[int]:
        if self.drafter is None:
            return []
        draft: list[int] = []
        while len(draft) < min(self.draft_length, most):
            draft.append(self.drafter.follow([*context, *draft]))
        return draft


class _LlamaCppModel:
    """A Llama in llama.cpp, with its cache."""

    def __init__(self, model: PreTrainedModel, *, half: bool = False):
        import llama_cpp

        self.library, self.vocab = llama_cpp, int(model.config.vocab_size)
        llama_cpp.llama_log_set(_silent(), None)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.gguf"
            write_gguf(model, file, half=half)
            options = llama_cpp.llama_model_default_params()
            options.use_mmap = False  # the file goes
            self.model = llama_cpp.llama_model_load_from_file(str(file).encode(), options)
        context = llama_cpp.llama_context_default_params()
        context.n_ctx = int(model.config.max_position_embeddings)
        context.n_batch = context.n_ubatch = context.n_ctx
        context.n_threads = context.n_threads_batch = torch.get_num_threads()
        self.context = llama_cpp.llama_init_from_model(self.model, context)
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.cached: list[int] = []

    def feed(self, ids: Sequence[int], start: int) -> list[int]:
        """Most probable tokens after each of ``ids``, of a prompt after the last one only."""
        library, count = self.library, len(ids)
        library.llama_memory_seq_rm(self.memory, 0, start, -1)
        batch = library.llama_batch_init(count, 0, 1)
        batch.n_tokens = count
        for at, token in enumerate(ids):
            batch.token[at], batch.pos[at], batch.n_seq_id[at], batch.seq_id[at][0] = token, start + at, 1, 0
            batch.logits[at] = start > 0 or at == count - 1
        if library.llama_decode(self.context, batch):
            raise RuntimeError("llama.cpp could not decode")
        rows = range(count) if start > 0 else [count - 1]
        library.llama_batch_free(batch)
        return [
            int(np.ctypeslib.as_array(library.llama_get_logits_ith(self.context, row), (self.vocab,)).argmax())
            for row in rows
        ]

    def follow(self, context: list[int]) -> int:
        """The most probable token after ``context``; what is cached of it is not fed again."""
        same = min(common_prefix(self.cached, context), len(context) - 1)
        self.cached = context
        return self.feed(context[same:], same)[-1]


@cache
def _silent() -> Any:
    """A log callback that drops everything; llama.cpp calls it for as long as the process lives."""
    import llama_cpp

    return llama_cpp.llama_log_callback(lambda *_: None)


def write_gguf(model: PreTrainedModel, file: Path, *, half: bool = False) -> None:
    """A Llama as a model file of llama.cpp in float32, or with matrices in float16, without a tokenizer."""
    import gguf

    config = model.config
    heads, kv_heads = int(config.num_attention_heads), int(config.num_key_value_heads)
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_context_length(int(config.max_position_embeddings))
    writer.add_embedding_length(int(config.hidden_size))
    writer.add_block_count(int(config.num_hidden_layers))
    writer.add_feed_forward_length(int(config.intermediate_size))
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(int(config.head_dim))
    writer.add_value_length(int(config.head_dim))
    writer.add_rope_dimension_count(int(config.head_dim))
    writer.add_rope_freq_base(float(config.rope_parameters["rope_theta"]))
    writer.add_layer_norm_rms_eps(float(config.rms_norm_eps))
    writer.add_vocab_size(int(config.vocab_size))
    writer.add_tokenizer_model("no_vocab")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if half else gguf.LlamaFileType.ALL_F32)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, int(config.num_hidden_layers))
    for name, tensor in model.state_dict().items():
        if name.startswith("lm_head.") and config.tie_word_embeddings:  # of a drafter with a token map, too: all tokens
            continue
        array = tensor.detach().float().numpy()
        for part, count in (("q_proj", heads), ("k_proj", kv_heads)):
            if name.endswith(f"{part}.weight"):
                array = _interleaved(array, count)
        if half and array.ndim > 1:
            array = array.astype(np.float16)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _interleaved(matrix: np.ndarray, heads: int) -> np.ndarray:
    """Rows of queries or keys in the order that rotates neighbours, from the one that rotates the halves of a head."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _as_gguf(model: PreTrainedModel) -> bool:
    """Whether :func:`write_gguf` knows all that the model computes."""
    config = model.config
    plain = isinstance(model, LlamaForCausalLM) and not (config.attention_bias or config.mlp_bias)
    plain = plain and (config.tie_word_embeddings or not isinstance(model.lm_head, ConfinedHead))
    return plain and config.rope_parameters.get("rope_type", "default") == "default"


def _best_over_all(pool: Pool, names: Sequence[str], draft_length: int) -> str:
    """The drafter of the greatest mean over the tasks of the pool's examples of its tokens per round; the first one
    where there are no examples, ``""`` where there are no names."""
    examples = [SuiteItem("", prompt, task) for task, prompt in pool.examples] if len(names) > 1 else []
    matrix = accepted_by_task(pool, examples, SamplingParams(EXAMPLE_TOKENS, draft_length=draft_length))
    return max(names, key=lambda name: sum(row[name] for row in matrix.values()), default="")


LLAMA_CPP = ("llama_cpp", "gguf")
"""The packages that llama.cpp takes."""


def missing_packages() -> list[str]:
    """Those of :data:`LLAMA_CPP` that are not installed; :func:`peers_for` leaves llama.cpp out then."""
    return [name for name in LLAMA_CPP if importlib.util.find_spec(name) is None]


def peers_for(pool: Pool, draft_length: int, drafter: str | None = None) -> list[Peer]:
    """All peers that are installed and can run the pool's target.

    Args:
        drafter: the one that assists them, a language model on the target's tokens; by default the one of most tokens
            per round over the tasks of the pool's examples.

    Raises:
        UserError: the pool is not on the CPU in float32, where all of them can be compared.
    """
    model = pool.target.model
    if model.device.type != "cpu" or model.dtype != torch.float32:
        raise UserError(f"--peers compares on the CPU in float32; pool {pool.name!r} is {pool.dtype} on {pool.device}")
    peers: list[Peer] = [
        Transformers("transformers", pool),
        Transformers("transformers, prompt lookup", pool, prompt_lookup_num_tokens=draft_length),
    ]
    models = {
        one.name: one.model.model
        for one in pool.drafters
        if isinstance(one, LMDrafter)
        and isinstance(one.model, OnnxDecoder)
        and one.model.vocab_size == pool.target.vocab_size
        and one.model.window >= pool.target.window
    }
    name = drafter if drafter in models else _best_over_all(pool, list(models), draft_length)
    if small := models.get(name):
        for schedule, confidence in (("constant", 0.0), ("confidence", 0.4)):
            title = f"transformers, assisted by {name}, {schedule}"
            peers.append(Transformers(title, pool, small, draft_length, confidence))
    if _as_gguf(model) and not missing_packages():
        peers += [LlamaCpp("llama.cpp", pool), LlamaCpp("llama.cpp, float16", pool, half=True)]
        if isinstance(small, LlamaForCausalLM) and _as_gguf(small):
            peers.append(LlamaCpp(f"llama.cpp, assisted by {name}", pool, small, draft_length))
    return peers
