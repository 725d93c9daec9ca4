"""A pool: one target and its drafters, loaded from a card."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from drafters.base import Acceptances, Drafter, DrafterGroup, Evidence, Lesson
from drafters.benched import Benched, ask
from drafters.caches import Caches
from drafters.card import WITHOUT, Card, card_file, load_card
from drafters.checkpoints.digest import card_digest
from drafters.checkpoints.hub import MODEL_FILES, TOKENIZER_FILES, fetch
from drafters.checkpoints.loading import load_model, tokenizer_of
from drafters.checkpoints.model_sizes import config_of, skeleton
from drafters.costs import CostMeter
from drafters.device_lock import DeviceLock
from drafters.errors import ContextWindowError, PoolError, PoolMemoryError, PromptError, first_line, quoted
from drafters.hardware import is_out_of_memory, usable_device
from drafters.kinds.base import BuildContext, build_drafters
from drafters.memory import check_memory, text_bytes
from drafters.models.onnx_decoder import OnnxDecoder
from drafters.models.remote import RemoteTarget
from drafters.models.target import Target
from drafters.progress import Report, Steps
from drafters.router import Router
from drafters.text import TokenTexts, Turn, chat_ids, message_ids, stop_ids_of
from drafters.traffic import Expectation

LONGEST_TOKEN = 32
"""Characters that a token of a prompt spells at most on average: longer texts are refused before they are tokenised."""


class Pool:
    """A target, its tokenizer, and the drafters that propose tokens for it.

    Attributes:
        drafters: the arms, in the card's order.
        stop_ids: token ids that end an output.
        card, card_hash, path: what it was loaded from, without the drafters left out; the hash covers card and weights.
        token_texts: the text of single tokens, by their ids.
        router: guesses by the prompt which drafter suits it; ``None`` where the card names none.
        costs: what rounds have cost on this device so far.
        previous: how each drafter did in the last finished query under each policy spec.
        traffic: what the pool has learnt from all queries; ``None`` where nobody has it learn.
        lock: held for one round at a time: caches of target and drafters serve one generation.
        caches: the budget of the texts that are decoded on it and its twins.
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
        caches: Caches | None = None,
        path: Path | None = None,
    ):
        self.target, self.drafters, self.tokenizer = target, list(drafters), tokenizer
        self.token_texts = TokenTexts(tokenizer)
        self.card, self.card_hash, self.path, self.stop_ids, self.router = card, card_hash, path, stop_ids, router
        self.name, self.title, self.description = card.name, card.title, card.description
        self.dtype = card.precision()
        self.draft_length = card.draft_length
        self.caches = caches or Caches()
        self.costs = self.new_costs()
        self.previous: dict[str, list[float]] = {}
        self.traffic: Expectation | None = None
        self.lock = DeviceLock(one_thread=isinstance(target.decoder, OnnxDecoder))
        self.examples = [(example.task, example.prompt) for example in card.examples]

    def twin(self) -> Pool:
        """The same pool for another text decoded at the same time: all is shared but caches, which are its own."""
        twin = copy.copy(self)
        twin.renew()
        twin.costs = copy.copy(self.costs)
        twin.costs.begin()
        return twin

    def new_costs(self) -> CostMeter:
        """A meter of its costs that has measured nothing yet."""
        return CostMeter(len(self.drafters), [id(one if one.group is None else one.group) for one in self.drafters])

    def renew(self) -> None:
        """Have caches of its own, empty ones, instead of those it has; not while a text is under way."""
        target = self.target.twin()
        groups = {id(drafter.group): drafter.group for drafter in self.drafters if drafter.group}
        members: dict[Drafter, Drafter] = {}
        for group in groups.values():
            members |= zip(group.members, group.twin(target).members, strict=True)
        self.drafters = [members.get(drafter) or drafter.twin(target) for drafter in self.drafters]
        self.target = target

    def disband(self) -> None:
        """Let the caches of a twin go that is not used again. Groups and their members refer to each other, and would
        hold them until Python's collector comes by."""
        for drafter in self.drafters:
            drafter.group = None

    @property
    def drafter_names(self) -> list[str]:
        """In the card's order."""
        return [drafter.name for drafter in self.drafters]

    @property
    def device(self) -> torch.device:
        return self.target.device

    @property
    def conversational(self) -> bool:
        """Whether a prompt may follow up on earlier answers."""
        return bool(self.tokenizer.chat_template) and self.card.conversation is not False

    def encode(self, prompt: str, turns: Sequence[Turn] = ()) -> list[int]:
        """Token ids of a user's prompt, in the target's chat form where its tokenizer has one.

        Args:
            turns: the earlier prompts of the conversation with their answers.

        Raises:
            PromptError: no text; or there are earlier turns, and the pool knows no conversations.
            ContextWindowError: the texts have more characters than the context window could hold.
        """
        self._check_texts([prompt, *(text for turn in turns for text in turn)])
        if turns and not self.conversational:
            raise PromptError(f"pool {self.name!r} answers single prompts; it takes no earlier turns")
        return chat_ids(self.tokenizer, prompt, turns, self.card.chat_template_kwargs)

    def encode_messages(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Token ids of a conversation in the target's chat form; each message has ``role`` and ``content``.

        Raises:
            PromptError: the pool knows no conversations, or its chat template does not take these messages.
            ContextWindowError: the texts have more characters than the context window could hold.
        """
        self._check_texts([message["content"] for message in messages])
        if not self.conversational:
            raise PromptError(f"pool {self.name!r} answers single prompts; it takes no earlier turns")
        try:
            return message_ids(self.tokenizer, messages, self.card.chat_template_kwargs)
        except Exception as error:  # a template may raise whatever it likes
            raise PromptError(
                f"the chat template of pool {self.name!r} does not take these messages: {first_line(error)}"
            ) from error

    def encode_text(self, text: str) -> list[int]:
        """Token ids of a text as it stands, outside any chat form; the first may be the target's begin token."""
        self._check_texts([text])
        return list(self.tokenizer(text, verbose=False)["input_ids"])

    def _check_texts(self, texts: Sequence[str]) -> None:
        if wrong := [text for text in texts if not isinstance(text, str)]:
            raise PromptError(f"the prompt must be a text, got {quoted(wrong[0])}")
        most = LONGEST_TOKEN * self.target.window
        if (characters := sum(map(len, texts))) > most:
            earlier = " with the earlier turns" if len(texts) > 1 else ""
            raise ContextWindowError(
                f"the prompt{earlier} has {characters:,} characters, but the context window of pool {self.name!r} "
                f"holds {self.target.window:,} tokens, hence at most {most:,} characters; shorten the prompt"
            )

    def route(self, prompt: str) -> list[float] | None:
        """How well each drafter suits ``prompt`` (:meth:`~drafters.router.Router.suited`), in the pool's order;
        ``None`` without a router."""
        if self.router is None:
            return None
        names = self.card.routed_names()
        return self.router.suited(prompt, [names.get(name, name) for name in self.drafter_names])

    def fits(self, prompt: str) -> bool:
        """Whether the target knows what is asked: not where it knows certain tasks only, and ``prompt`` is of none."""
        return self.router is None or not self.card.only_tasks or self.router.knows(prompt)

    @property
    def weight_bytes(self) -> int:
        """Memory of all weights, counted once where drafters share them."""
        itemsize = getattr(torch, self.card.dtype).itemsize
        again = {entry.name for entry in self.card.drafters if self.card.shares_with(entry)}
        once = [drafter for drafter in self.drafters if drafter.name not in again]
        drafters = sum(drafter.stored_bytes or itemsize * drafter.parameter_count for drafter in once)
        return self.target.model.get_memory_footprint() + drafters

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, without special tokens."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def prepare(self, context: Sequence[int], arms: Sequence[int], benched: Benched | None = None) -> None:
        """Begin a query: the drafters ``arms`` read the prompt, a group at once if all its members do; others forget
        what they have read before. ``benched`` is as of :func:`~drafters.benched.ask`."""
        for arm, drafter in enumerate(self.drafters):
            with benched.by(arm) if benched else nullcontext():
                drafter.begin(context)
                if arm not in arms:
                    drafter.forget()
        ask(self.drafters, arms, lambda judge, _: judge.prepare(context), benched)

    def learn(self, lesson: Lesson, benched: Benched) -> None:
        """Let the drafters learn from a text that the target has written."""
        for arm, drafter in enumerate(self.drafters):
            if arm not in benched:
                with benched.by(arm):
                    drafter.learn(lesson)

    def study(self) -> float:
        """Let drafters that learn work for a moment, as far as their share of the device allows; returns seconds."""
        with self.lock:
            self.lock.all_threads()
            return sum(drafter.study() for drafter in self.drafters)

    def versions(self) -> dict[str, str]:
        """What drafters that learn draft with in the present query, by name."""
        return {drafter.name: drafter.version for drafter in self.drafters if drafter.version}

    def gamma(self, evidence: Evidence, benched: Benched | None = None, without: Collection[str] = ()) -> np.ndarray:
        """Acceptance probabilities ``(m, K, N)`` of all drafters at the verified positions, by depth
        (:meth:`~drafters.base.Drafter.gamma`); 0 of those that are in ``benched`` (see :func:`~drafters.benched.ask`)
        or named in ``without``."""
        rows = np.zeros((evidence.params.draft_length, len(self.drafters), len(evidence)))

        def fill(judge: Drafter | DrafterGroup, arms: int | list[int]) -> None:
            gamma = judge.gamma(evidence)
            if not (np.abs(gamma - 0.5) <= 0.501).all():  # neither true of NaN; 0.001 for rounding
                raise ValueError("its acceptance probabilities are no numbers from 0 to 1")
            rows[:, arms] = np.moveaxis(gamma, 0, -1)

        ask(self.drafters, self._arms(without), fill, benched)
        return np.moveaxis(rows, -1, 0)

    def acceptances(
        self,
        context: Sequence[int],
        start: int,
        length: int,
        check: Callable[[], None] = lambda: None,
        without: Collection[str] = (),
    ) -> Acceptances:
        """The greedy drafts of all drafters begun at each position from ``start`` on; ``(N, len(context) - start)``.
        ``check`` is called before each drafter or group, and ends all by raising. Those ``without`` draft nothing."""
        rows = np.zeros((3, len(self.drafters), len(context) - start), dtype=np.int64)

        def fill(judge: Drafter | DrafterGroup, arms: int | list[int]) -> None:
            check()
            rows[:, arms] = judge.acceptances(context, start, length)

        ask(self.drafters, self._arms(without), fill)
        return Acceptances(*rows)

    def _arms(self, without: Collection[str]) -> list[int]:
        return [arm for arm, drafter in enumerate(self.drafters) if drafter.name not in without]


def load_pool(
    name_or_path: str | Path,
    *,
    device: str | None = None,
    cache_bytes: int | None = None,
    progress: Report = lambda step: None,
    remote_window: int | None = None,
    model: PreTrainedModel | None = None,
    learnt: str | Path | None = None,
    learns: bool = True,
) -> Pool:
    """Load a pool from a bundled card's name or a path to a card, as of :func:`~drafters.card.load_card`.

    Args:
        device: overrides the card's ``device``; ``"auto"`` takes the GPU if there is one.
        cache_bytes: what keys and values of all texts under way may take; by default most of what the weights leave,
            without bound beside another engine.
        progress: called with each step.
        remote_window: most tokens of a context in another engine, where that runs the target. Of the target only
            configuration and tokenizer are read then, and drafters that need more of it are left out.
        model: the target, where it is loaded already; device and type of the drafters are then its own.
        learnt: folder where drafters that learn keep what they have learnt; by default in memory only.
        learns: whether they go on learning.

    Raises:
        PoolError: unknown pool, invalid card, more than the device has memory for, or models that are missing, corrupt
            or do not fit together.
    """
    if cache_bytes is not None and not (isinstance(cache_bytes, int | float) and cache_bytes > 0):
        raise PoolError(f"cache_bytes must be a number above 0, got {quoted(cache_bytes)}")
    path, (card, text) = card_file(name_or_path), load_card(name_or_path)
    remote = remote_window is not None
    where = str(model.device) if model else usable_device(device or card.device, card.name)
    entries = [entry for entry in card.drafters if not (remote and entry.needs_target)]
    if not entries:
        names = ", ".join(f"{entry.name} ({entry.kind})" for entry in card.drafters)
        raise PoolError(
            f"all drafters of pool {card.name!r} read the target's weights, hidden states or logits, which are in "
            f"another engine: {names}. Take a card with drafters of kind lm, pld, suffix, rest or custom"
        )
    caches = None
    if not remote and model is None:  # otherwise the target has its memory already, and drafters are small
        caches = check_memory(card, path, where, cache_bytes)
    elif remote and cache_bytes is not None:
        ours = card.model_copy(update={"drafters": entries, "context_window": remote_window})
        caches = Caches(partial(text_bytes, ours, path, where, remote=True), cache_bytes)
    models = [(f"drafter {entry.name!r}", entry.source, entry.source_files) for entry in entries]
    models = [("the target", card.target, TOKENIZER_FILES if remote or model else MODEL_FILES), *models]
    repositories = [(what, source, files) for what, source, files in models if source and source.id]
    steps = Steps(len(repositories) + 1 + len(entries), progress)
    for what, source, files in repositories:  # all of them before the first model takes up memory
        steps.begin("fetching", f"{what}, {source.id}")
        fetch(source, files, steps.fetched)
    steps.begin("loading", "the target")
    tokenizer = tokenizer_of(card.target, path)
    if card.chat_template is not None:
        tokenizer.chat_template = card.chat_template
    dtype = getattr(torch, card.dtype)
    try:
        if remote_window is None:
            model = model or load_model(card.target, path, dtype, where, "the target")
            target = Target(model, window=card.context_window)
        else:
            model = copy.deepcopy(skeleton(*config_of(card.target, path))).to(dtype)  # on no device
            target = RemoteTarget(model, remote_window, where)
        folder = Path(learnt) / card.name.partition(WITHOUT)[0] if learnt else None
        context = BuildContext(path, card.draft_length, model, target, tokenizer, steps, folder, learns)
        drafters = build_drafters(entries, context)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise PoolMemoryError(
            f"pool {card.name!r} does not fit into the memory that is free on {where}: it ran out at {steps.what}. "
            "Quantise the target (quantization: nf4 or int8 in the card), leave drafters out, or stop what else uses "
            "memory there"
        ) from None
    digest = card_digest(text, None if remote else model.state_dict(), (drafter.digest for drafter in drafters))
    stop_ids, router = stop_ids_of(model, tokenizer, card.stop, card.name), Router.of_card(card.router, path)
    pool = Pool(target, drafters, tokenizer, card, digest, stop_ids, router, caches, path)
    try:
        pool.encode("Hello", [("Hello", "Hello")] if pool.conversational else [])
    except Exception as error:  # a template may raise whatever it likes
        raise PoolError(f"the chat template of pool {pool.name!r} cannot be used: {first_line(error)}") from error
    return pool
