"""A pool: one target and its drafters, loaded from a card."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from drafters.base import Drafter, DrafterGroup, Evidence
from drafters.card import Card, find_card, load_card, pool_names
from drafters.chat import chat_ids, end_ids
from drafters.kinds import Identity, Workshop
from drafters.loading import count_steps, enough_memory, fetch_models, first_line, load_model, load_tokenizer
from drafters.memory_check import check_memory
from drafters.progress import Report, Steps, silent
from drafters.router import Router
from multidraft.costs import CostMeter
from multidraft.errors import PoolError, PromptError
from multidraft.records import Turn
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
        # Of a quantised target the weights' type belongs to it: its output is another model's.
        quantization = card.target.quantization
        self.dtype = card.dtype if quantization is None else f"{card.dtype}, {quantization} weights"
        self.draft_length = card.draft_length
        self.costs = CostMeter(len(self.drafters))
        self.previous: dict[str, list[float]] = {}
        self.lock = threading.RLock()
        self.examples = [(example.task, example.prompt) for example in card.examples]

    @property
    def device(self) -> torch.device:
        """Device of the target."""
        return self.target.device

    @property
    def conversational(self) -> bool:
        """Whether a prompt may follow up on earlier answers."""
        has_template = bool(self.tokenizer.chat_template)
        return has_template if self.card.conversation is None else has_template and self.card.conversation

    def encode(self, prompt: str, turns: Sequence[Turn] = ()) -> list[int]:
        """Token ids of a user's prompt, in the target's chat form where its tokenizer has one.

        Args:
            turns: the earlier prompts of the conversation with their answers.

        Raises:
            PromptError: there are earlier turns, and the pool knows no conversations.
        """
        if turns and not self.conversational:
            raise PromptError(f"pool {self.name!r} answers single prompts; it takes no earlier turns")
        return chat_ids(self.tokenizer, prompt, turns, self.card.chat_template_kwargs)

    def route(self, prompt: str) -> list[float] | None:
        """How well each drafter suits ``prompt`` (:meth:`~drafters.router.Router.suited`), in the pool's order;
        ``None`` without a router."""
        if self.router is None:
            return None
        called = self.card.routed_names()
        return self.router.suited(prompt, [called.get(drafter.name, drafter.name) for drafter in self.drafters])

    @property
    def weight_bytes(self) -> int:
        """Memory of all weights, counted once where drafters share them."""
        itemsize = getattr(torch, self.card.dtype).itemsize
        again = {entry.name for entry in self.card.drafters if self.card.shares_with(entry)}
        drafters = sum(drafter.parameter_count for drafter in self.drafters if drafter.name not in again)
        return self.target.model.get_memory_footprint() + itemsize * drafters

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

    def acceptances(
        self, context: Sequence[int], start: int, length: int, check: Callable[[], None] = lambda: None
    ) -> np.ndarray:
        """How many leading tokens of each drafter's greedy draft, begun at each position from ``start`` on, equal
        the recorded text: int64 ``(N, len(context) - start)``.

        Args:
            check: called before each drafter, or group of them; what it raises ends it.
        """

        def of(judged: Drafter | DrafterGroup) -> np.ndarray:
            check()
            return judged.acceptances(context, start, length)

        return self._collect(of, of, len(context) - start).astype(np.int64)

    def _collect(self, of_group, of_drafter, columns: int) -> np.ndarray:  # type: ignore[no-untyped-def]
        rows = np.zeros((len(self.drafters), columns))
        index = {id(drafter): i for i, drafter in enumerate(self.drafters)}
        groups: dict[int, DrafterGroup] = {id(d.group): d.group for d in self.drafters if d.group}
        for group in groups.values():
            with _naming(group.members):
                rows[[index[id(member)] for member in group.members]] = of_group(group)
        for drafter in self.drafters:
            if drafter.group is None:
                with _naming([drafter]):
                    rows[index[id(drafter)]] = of_drafter(drafter)
        return rows


@contextmanager
def _naming(drafters: Sequence[Drafter]) -> Iterator[None]:
    """Note on what is raised whose it is: of a drafter of one's own the message alone does not tell."""
    try:
        yield
    except Exception as error:
        error.add_note(f"drafter {', '.join(drafter.name for drafter in drafters)}")
        raise


def load_pool(name_or_path: str | Path, *, device: str | None = None, progress: Report = silent) -> Pool:
    """Load a pool from a bundled card's name or a path to a card.

    Args:
        device: overrides the card's ``device``; ``"auto"`` takes the GPU if there is one.
        progress: told of each step.

    Raises:
        PoolError: unknown pool, invalid card, more than the device has memory for, or models that are missing, corrupt
            or do not fit together.
    """
    path = find_card(name_or_path)
    card, text = load_card(path)
    where = usable_device(device or card.device, card.name)
    check_memory(card, path, where)
    steps = Steps(count_steps(card), progress)
    fetch_models(card, steps)
    with enough_memory(card.name, where, steps):
        steps.loading("the target")
        tokenizer = load_tokenizer(card, path)
        if card.chat_template is not None:
            tokenizer.chat_template = card.chat_template
        model = load_model(card.target, path, getattr(torch, card.dtype), where, "the target")
        target = Target(model, window=card.context_window)
        drafters, identities = Workshop(card, path, model, target, tokenizer, steps).make()
    digest = _digest([text, model.state_dict(), *identities])
    pool = Pool(target, drafters, tokenizer, card, digest, _stop_ids(card, model, tokenizer), load_router(card, path))
    _try_chat_form(pool)
    return pool


def load_router(card: Card, path: Path) -> Router | None:
    """The router of a card in the file ``path``, ``None`` if it names none.

    Raises:
        PoolError: missing or damaged files.
    """
    return Router.load((path.parent / card.router).resolve()) if card.router else None


def usable_device(device: str, pool: str) -> str:
    """The device that a card means: of ``auto`` the GPU if there is one.

    Raises:
        PoolError: it cannot be used.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except Exception as error:  # torch raises three kinds: unknown name, no such number, not built in
        raise PoolError(f"device {device!r} of pool {pool!r} cannot be used: {first_line(error)}") from error
    return device


def _try_chat_form(pool: Pool) -> None:
    """Encode a prompt, so that a template that cannot be used says so at loading."""
    try:
        pool.encode("Hello", [("Hello", "Hello")] if pool.conversational else [])
    except Exception as error:  # a template may raise whatever it likes
        raise PoolError(f"the chat template of pool {pool.name!r} cannot be used: {first_line(error)}") from error


def _digest(identities: Sequence[Identity]) -> str:
    """What identifies a pool in the history: 16 hex digits of its card, of checksums, and of weights (64 numbers of
    each tensor)."""
    digest = hashlib.sha256()
    for identity in identities:
        if isinstance(identity, str):
            digest.update(identity.encode())
            continue
        for name, tensor in identity.items():
            flat = tensor.flatten()
            sample = flat[:: max(1, len(flat) // 64)].float().cpu().contiguous()
            digest.update(f"{name} {tuple(tensor.shape)}".encode() + sample.numpy().tobytes())
    return digest.hexdigest()[:16]


def _stop_ids(card: Card, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    ids = end_ids(model, tokenizer)
    for text in card.stop:
        found = tokenizer.convert_tokens_to_ids(text)
        if found is None or found == tokenizer.unk_token_id:
            raise PoolError(f"stop token {text!r} of pool {card.name!r} is not a single token of its tokenizer")
        ids.add(int(found))
    return frozenset(ids)
