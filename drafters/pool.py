"""A pool: one target and its drafters, loaded from a card."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from drafters.base import Drafter, DrafterGroup, Evidence
from drafters.card import Card, Source, find_card, load_card, pool_names
from drafters.datastore import Datastore, tokenizer_fingerprint
from drafters.lm import make_lm_drafters
from drafters.pld import PromptLookup
from drafters.rest import DatastoreDrafter
from drafters.router import Router
from drafters.suffix import SuffixDrafter
from drafters.window import Window
from multidraft.costs import CostMeter
from multidraft.errors import PoolError
from multidraft.sampling import SamplingParams
from multidraft.target import Target

__all__ = ["Pool", "load_pool", "pool_names"]


class Pool:
    """A target, its tokenizer, and the drafters that propose tokens for it.

    Attributes:
        target: the :class:`~multidraft.target.Target`.
        drafters: the arms, in the card's order.
        tokenizer: shared by target and drafters.
        stop_ids: token ids that end an output.
        card, card_hash: what it was loaded from; the hash covers card and weights.
        router: guesses by the prompt which drafter suits it; ``None`` where the card names none.
        costs: what rounds have cost on this device so far.
        previous: how each drafter did in the last finished query under each policy spec.
        lock: held by who uses target or drafters, for one round at a time: their caches serve one generation.
    """

    def __init__(
        self,
        target: Target,
        drafters: Sequence[Drafter],
        tokenizer: PreTrainedTokenizerBase,
        card: Card,
        card_hash: str = "",
        stop_ids: frozenset[int] = frozenset(),
        router: Router | None = None,
    ):
        self.target, self.drafters, self.tokenizer = target, list(drafters), tokenizer
        self.card, self.card_hash, self.stop_ids, self.router = card, card_hash, stop_ids, router
        self.name, self.title, self.description = card.name, card.title, card.description
        self.dtype, self.draft_length = card.dtype, card.draft_length
        self.costs = CostMeter(len(self.drafters))
        self.previous: dict[str, list[float]] = {}
        self.lock = threading.RLock()
        self.examples = [(example.task, example.prompt) for example in card.examples]

    @property
    def device(self) -> torch.device:
        """Device of the target."""
        return self.target.device

    def encode(self, prompt: str) -> list[int]:
        """Token ids of a user's prompt, in the target's chat form where its tokenizer has one."""
        if self.tokenizer.chat_template:
            messages = [{"role": "user", "content": prompt}]
            ids = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        else:
            ids = self.tokenizer(prompt)["input_ids"]
        return list(ids)

    def route(self, prompt: str) -> list[float] | None:
        """How well each drafter suits ``prompt``, in [0, 1], in the pool's order; ``None`` without a router.

        Drafters that the router was not trained on get what suits one drafter as well as the next: 1 / their number.
        """
        if self.router is None:
            return None
        suited = self.router.probabilities(prompt)
        return [suited.get(drafter.name, 1.0 / len(suited)) for drafter in self.drafters]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, without special tokens."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def prepare(self, context: Sequence[int], arms: Sequence[int]) -> None:
        """Let the drafters ``arms`` read the prompt; a group reads it at once if all its members do."""
        chosen = [self.drafters[arm] for arm in arms]
        done: set[int] = set()
        for group in {id(d.group): d.group for d in chosen if d.group}.values():
            if all(member in chosen for member in group.members):
                group.prepare(context)
                done.update(id(member) for member in group.members)
        for drafter in chosen:
            if id(drafter) not in done:
                drafter.prepare(context)

    def gamma(self, context: Sequence[int], start: int, p: torch.Tensor | None, params: SamplingParams) -> np.ndarray:
        """Acceptance probabilities ``(m, N)`` of all drafters at positions ``start … len(context) - 1`` (SPEC 3).

        Args:
            p: target probabilities ``(m, V)`` there; ``None`` for greedy runs.
        """
        evidence = Evidence(context, start, p, params)
        return self._collect(
            lambda group: group.gamma(evidence).T, lambda drafter: drafter.gamma(evidence), len(evidence)
        ).T

    def acceptances(self, context: Sequence[int], start: int, length: int) -> np.ndarray:
        """How many leading tokens of each drafter's greedy draft, begun at each position from ``start`` on, equal
        the recorded text: int64 ``(N, len(context) - start)``."""
        return self._collect(
            lambda group: group.acceptances(context, start, length),
            lambda drafter: drafter.acceptances(context, start, length),
            len(context) - start,
        ).astype(np.int64)

    def _collect(self, of_group, of_drafter, columns: int) -> np.ndarray:  # type: ignore[no-untyped-def]
        rows = np.zeros((len(self.drafters), columns))
        index = {id(drafter): i for i, drafter in enumerate(self.drafters)}
        groups: dict[int, DrafterGroup] = {id(d.group): d.group for d in self.drafters if d.group}
        for group in groups.values():
            rows[[index[id(member)] for member in group.members]] = of_group(group)
        for drafter in self.drafters:
            if drafter.group is None:
                rows[index[id(drafter)]] = of_drafter(drafter)
        return rows


def load_pool(name_or_path: str | Path, *, device: str | None = None) -> Pool:
    """Load a pool from a bundled card's name or a path to a card.

    Args:
        device: overrides the card's ``device``; ``"auto"`` takes the GPU if there is one.

    Raises:
        PoolError: unknown pool, invalid card, or models that are missing, corrupt or do not fit together.
    """
    path = find_card(name_or_path)
    card, text = load_card(path)
    where = device or card.device
    if where == "auto":
        where = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=where)
    except Exception as error:  # torch raises three kinds: unknown name, no such number, not built in
        raise PoolError(f"device {where!r} of pool {card.name!r} cannot be used: {_first_line(error)}") from error
    dtype = getattr(torch, card.dtype)
    tokenizer = load_tokenizer(card, path)
    model = _load_model(card.target, path, dtype, where, "the target")
    models: dict[str, PreTrainedModel] = {}
    for d in (d for d in card.drafters if d.kind == "lm"):
        models[d.name] = _load_model(d.source, path, dtype, where, f"drafter {d.name!r}")
        _check_same_tokens(d.name, _drafter_tokenizer(d.source, path), tokenizer)
    target = Target(model)
    windows = {d.name: Window(d.window, d.sinks) for d in card.drafters if d.window}
    for name, window in windows.items():
        own = getattr(models[name].config.get_text_config(), "max_position_embeddings", None) or window.size
        if window.size + card.draft_length - 1 > own:
            raise PoolError(
                f"drafter {name!r} is to read {window.size} tokens and to draft {card.draft_length} more, "
                f"but its model knows {own} positions"
            )
    confidences = {d.name: d.confidence for d in card.drafters}
    by_name: dict[str, Drafter] = {d.name: d for d in make_lm_drafters(models, target.vocab_size, windows, confidences)}
    by_name.update({d.name: PromptLookup(d.name) for d in card.drafters if d.kind == "pld"})
    by_name.update({d.name: SuffixDrafter(d.name, d.nodes, d.past) for d in card.drafters if d.kind == "suffix"})
    stores: list[Datastore] = []
    for d in (d for d in card.drafters if d.kind == "rest"):
        file = (path.parent / str(d.path)).resolve()
        stores.append(Datastore.open(file, tokenizer_fingerprint(tokenizer), target.vocab_size))
        by_name[d.name] = DatastoreDrafter(d.name, stores[-1], d.nodes)
    drafters = [by_name[d.name] for d in card.drafters]
    digest = _digest(text + "".join(store.fingerprint for store in stores), [model, *models.values()])
    router = Router.load((path.parent / card.router).resolve()) if card.router else None
    return Pool(target, drafters, tokenizer, card, digest, _stop_ids(card, model, tokenizer), router)


def _location(source: Source, card: Path) -> tuple[str, dict[str, str]]:
    if source.path is not None:
        folder = (card.parent / source.path).resolve()
        if not folder.is_dir():
            raise PoolError(f"the pool card {card} names the folder {folder}, which does not exist")
        return str(folder), {}
    return str(source.id), {"revision": source.revision} if source.revision else {}


def _load_model(source: Source, card: Path, dtype: torch.dtype, device: str, what: str) -> PreTrainedModel:
    location, extra = _location(source, card)
    try:
        model, loading = AutoModelForCausalLM.from_pretrained(
            location, dtype=dtype, use_safetensors=True, trust_remote_code=False, output_loading_info=True, **extra
        )
        if missing := loading["missing_keys"]:  # the library would go on with random weights in their place
            raise ValueError(f"its weights lack {len(missing)} tensors, e.g. {min(missing)}")
        if model._is_stateful:
            raise ValueError(f"{type(model).__name__} keeps a recurrent state, which cannot be rolled back")
        model = model.to(device).eval()
        _probe(model)
    except Exception as error:
        raise PoolError(
            f"cannot load {what} from {location}: {_first_line(error)}. Check that the folder or Hub repository "
            "holds config.json and complete .safetensors weights (and, for a gated one, that you are logged in)"
        ) from error
    return model


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


def _drafter_tokenizer(source: Source, card: Path) -> PreTrainedTokenizerBase | None:
    """The drafter's tokenizer where it brings one."""
    location, extra = _location(source, card)
    try:
        own = AutoTokenizer.from_pretrained(location, trust_remote_code=False, **extra)
    except Exception:  # weights alone are fine: then the card's author answers for the ids
        return None
    # Where the files are missing the library may make up a tokenizer of a few special tokens.
    return own if len(own.get_vocab()) > len(own.all_special_ids) else None


def _check_same_tokens(name: str, own: PreTrainedTokenizerBase | None, target: PreTrainedTokenizerBase) -> None:
    """Raise :class:`PoolError` unless the ids that both tokenizers know stand for the same tokens."""
    if own is None:
        return
    theirs = {index: token for token, index in target.get_vocab().items()}
    for token, index in sorted(own.get_vocab().items(), key=lambda item: item[1]):
        if theirs.get(index, token) != token:
            raise PoolError(
                f"drafter {name!r} has another tokenizer than the target: id {index} is {token!r} to it and "
                f"{theirs[index]!r} to the target. Drafters of kind lm need the target's token ids"
            )


def _digest(card: str, models: Sequence[PreTrainedModel]) -> str:
    """What identifies a pool in the history: 16 hex digits of its card (with the checksums of its datastores) and
    of its weights (64 of each tensor)."""
    digest = hashlib.sha256(card.encode())
    for model in models:
        for name, tensor in model.state_dict().items():
            flat = tensor.flatten()
            sample = flat[:: max(1, len(flat) // 64)].float().cpu().contiguous()
            digest.update(f"{name} {tuple(tensor.shape)}".encode() + sample.numpy().tobytes())
    return digest.hexdigest()[:16]


def load_tokenizer(card: Card, path: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of the pool that ``card``, read from ``path``, describes.

    Raises:
        PoolError: it cannot be loaded.
    """
    location, extra = _location(card.target, path)
    try:
        return AutoTokenizer.from_pretrained(location, trust_remote_code=False, **extra)
    except Exception as error:
        raise PoolError(f"cannot load the tokenizer from {location}: {_first_line(error)}") from error


def _stop_ids(card: Card, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    ids: set[int] = set()
    for value in (tokenizer.eos_token_id, model.generation_config.eos_token_id):
        ids.update(value if isinstance(value, list) else [] if value is None else [value])
    for text in card.stop:
        found = tokenizer.convert_tokens_to_ids(text)
        if found is None or found == tokenizer.unk_token_id:
            raise PoolError(f"stop token {text!r} of pool {card.name!r} is not a single token of its tokenizer")
        ids.add(int(found))
    return frozenset(ids)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".")
