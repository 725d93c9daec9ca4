"""The core loop: draft → verify → learn, one round at a time."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from greenlet import GreenletExit

from drafters.base import Evidence
from drafters.caches import ran_out
from drafters.draft import Draft
from drafters.errors import ContextWindowError, DraftError, error_message
from drafters.hardware import clock_of
from drafters.models.streams import let_others_on, own_seconds, texts_at_once
from drafters.sampling import SamplingParams, probabilities
from drafters.text import TextStream
from multidraft.engine.arguments import check_pool, check_settings, continued, policy_for, read_prompt, read_seed
from multidraft.engine.drafting import Drafting, Verified
from multidraft.engine.experience import Experience, Notes, context_of
from multidraft.engine.laps import Laps
from multidraft.engine.output import Output, StopTexts, TokenLogprob, logprobs_of
from multidraft.engine.verify import Verdict, verify
from multidraft.policies import ALL_DRAFTERS, NO_DRAFTER, Feedback, Policy, canonical_spec
from multidraft.policies.faults import (
    chosen_arm,
    chosen_length,
    chosen_readers,
    chosen_span,
    raised_by,
    told_number,
    told_numbers,
)
from storage.records import Generation, Round, Status, Turn

if TYPE_CHECKING:
    from drafters.pool import Pool


class Decoding(Iterator[Round]):
    """A generation under way: iterate over it to decode, round by round.

    Nothing is computed before the first round is asked for. ``generation`` always holds what is done so
    far, also after :meth:`cancel` or an exception; ``longest`` is how many tokens prompt and answer may have.

    Args:
        pool: target, drafters and tokenizer.
        prompt: the user's text, or token ids (of a prompt that is already in its final form).
        policy: a policy spec such as ``"ucb"``, or a :class:`~multidraft.policies.Policy` of one's own. The default
            does not look at the clock, so a seed gives the same run again; ``"rate-hedge"``, which does, is faster.
        params: see :class:`~drafters.sampling.SamplingParams`.
        seed: seeds the target's and drafters' sampling, and the policy where that is a spec: a policy of one's own has
            the seed that it was made with.
        turns: earlier prompts of the conversation with their answers; ``prompt`` must be a text then.
        output: texts that end it, and whether ``logprobs`` are noted.
        learn: whether later queries may profit from this one: drafters and policies keep something of it.

    Attributes:
        logprobs: of the tokens so far, where ``output`` asks for them.

    Raises:
        PromptError: a prompt that is empty, no text, or holds ids that the target does not have.
        ContextWindowError: a prompt that fills the target's context window.
        TextMemoryError: one for whose keys and values there is never room; while decoding, the memory ran out.
        PolicyError: an unknown policy or a setting it cannot take; while decoding, a policy that misbehaves.
        UserError: a seed, ``params`` or ``output`` that is none.
    """

    def __init__(
        self,
        pool: Pool,
        prompt: str | Sequence[int],
        policy: str | Policy = "normal-hedge",
        params: SamplingParams | None = None,
        seed: int = 0,
        turns: Sequence[Turn] = (),
        output: Output = Output(),  # noqa: B008
        learn: bool = True,
    ):
        check_pool(pool)
        params = SamplingParams() if params is None else params
        check_settings(params, output)
        self.pool, self.params, self.output = pool, params.drafting(pool.draft_length), output
        self.seed = read_seed(seed)
        text, self.context = read_prompt(pool, prompt, turns)
        self.learn, self._notes = learn, Notes(pool if learn else None)
        if len(self.context) >= pool.target.window:
            raise ContextWindowError(
                f"the prompt has {len(self.context):,} tokens, but the context window of pool {pool.name!r} holds "
                f"{pool.target.window:,} including the answer; shorten the prompt or pick a pool with a larger window"
            )
        self.longest = pool.caches.check(len(self.context), self.params.max_new_tokens, pool.target.window)
        names = pool.drafter_names
        self.policy = policy_for(pool, policy, self.seed)
        spec = canonical_spec(policy) if isinstance(policy, str) else policy.name
        self.generation = Generation(text, spec, tuple(names), len(self.context), turns=tuple(turns))
        self._arms = range(ALL_DRAFTERS, len(names))
        self._cancelled, self._stopped = threading.Event(), False
        before = continued(pool, prompt, self.context, output)
        self._text, self.logprobs = TextStream(pool.tokenizer, before), list[TokenLogprob]()
        self._stop = StopTexts(output.stop, TextStream(pool.tokenizer, before), output.stop_after)
        self._evaluated, self._unseen_p = len(self.context), list[torch.Tensor]()
        self._rounds = self._decode()

    def __next__(self) -> Round:
        return next(self._rounds)

    def cancel(self) -> None:
        """End the generation after the round in progress; may be called from another thread."""
        self._cancelled.set()

    def run(self) -> Generation:
        """Decode to the end."""
        for _ in self:
            pass
        return self.generation

    def _decode(self) -> Generator[Round]:
        generation, target, policy = self.generation, self.pool.target, self.policy
        # Not before: a process without the device may check and queue what another one decodes.
        self._generator = torch.Generator(device=target.device).manual_seed(self.seed)
        try:
            with self.pool.lock:
                self._clock = clock_of(target.device)
                self._drafting = Drafting(self.pool, self.params, self._generator)
                generation.benched = self._drafting.benched.why
                started = self._clock()
                previous = self.pool.previous.get(generation.policy)
                self._experience = Experience(self.pool.drafters, previous, by_token=policy.uses_gamma)
                policy.begin(context_of(self.pool, policy, generation, self.params))
                target.prefill(self.context)
                generation.readers = chosen_readers(generation.policy, policy.candidates(), self._arms[-1] + 1)
                self.pool.prepare(self.context, generation.readers, self._drafting.benched)
                generation.versions = self.pool.versions()
                self.pool.costs.begin(len(self.context), generation.readers, by_time=policy.uses_costs)
                generation.prefill_seconds = self._clock() - started
                query = target.queries
            while generation.status == "running":
                if self._cancelled.is_set():
                    generation.status = "cancelled"
                    break
                with self.pool.lock:  # no other thread may come in between the check and the end of the round
                    if target.queries != query:
                        raise RuntimeError(
                            f"another generation has begun on pool {self.pool.name!r}, which runs one at a time, "
                            "and has ended this one: let each finish before the next begins, decode several at once "
                            "with generate_batch, or load the pool twice"
                        )
                    generation.rounds.append(round := self._round())
                generation.token_ids.extend(round.tokens)
                generation.text += round.text
                generation.streams = max(generation.streams, texts_at_once())
                generation.status = self._status(round)
                let_others_on()
                yield round
            self.remember()
        except (GeneratorExit, GreenletExit):  # the caller dropped iterator or batch, perhaps after the last round
            if generation.status == "running":
                generation.status = "cancelled"
            raise
        except BaseException as error:
            fault = raised_by(policy, generation.policy, error) or ran_out(error, self.pool, len(self.context))
            generation.status, generation.error = "error", error_message(fault or error)
            if fault:
                raise fault from error
            raise

    def remember(self) -> None:
        """Keep how each drafter did, for the next query, and let those that can learn from the text."""
        if self.learn and (means := self._experience.means()):
            self.pool.previous[self.generation.policy] = means
        if self.learn and self.generation.token_ids:
            self.pool.learn(self._notes.lesson(self.context, self.generation), self._drafting.benched)

    def _round(self) -> Round:
        """Choose, draft, verify, learn."""
        policy, drafting, costs, laps = self.policy, self._drafting, self.pool.costs, Laps(self._clock, own_seconds)
        drafting.benched.tokens = len(self.generation.token_ids)
        room = min(self.params.max_new_tokens - drafting.benched.tokens, self.pool.target.window - len(self.context))
        chances = policy.probabilities()
        # With room for one token there is nothing to draft, hence nothing to choose or to learn.
        arm, length = self._choice(room) if room > 1 else (NO_DRAFTER, 0)
        laps.end("policy")
        draft = drafting.draft(arm, self.context, length, with_q=policy.uses_block_divergence, nodes=policy.tree_nodes)
        laps.end("draft")
        done = self._verified(arm, length, draft)
        self._emit(done)
        pieces = self._text.add(done.tokens)
        record = done.record(self.pool.token_texts, self.pool.target.choices)
        laps.end("verify")
        self._notes.add(done.logits, done.rows)
        divergence = drafting.divergence(done) if policy.uses_block_divergence and done.length else None
        alone = done.arm if done.length and not done.together and done.arm not in drafting.benched else None
        seconds = laps.own["draft"], laps.own["verify"]
        brought = {"emitted": len(done.tokens), "depth": done.draft.depth, "accepted": done.accepted}
        costs.played(alone, done.length, len(done.draft), *seconds, **brought, together=done.together)
        unread = costs.unread.mean
        laps.end("policy")
        gamma = self._evaluate(done) if room > 1 else None
        laps.end("evaluate")
        if gamma is not None:
            costs.evaluated(laps.own["evaluate"])
        if room > 1:
            self._learn(done, divergence, gamma, laps.seconds["draft"] + laps.seconds["verify"])
        laps.end("policy")
        return Round(
            index=len(self.generation.rounds),
            arm=done.arm if done.length else None,
            drafter=self.pool.drafters[done.arm].name if done.length else None,
            text="".join(pieces),
            pieces=tuple(pieces),
            reward=self._reward if done.length else None,
            block_divergence=divergence,
            probabilities=None if chances is None else told_numbers(policy.name, "probabilities", chances),
            evaluated=0.0 if gamma is None else unread,
            **record,
            **laps.record(),
        )

    def _choice(self, room: int) -> tuple[int, int]:
        """The policy's arm and draft length for a round that may emit ``room`` tokens."""
        policy, spec = self.policy, self.generation.policy
        arm = chosen_arm(spec, policy.select(), self._arms)
        if arm == NO_DRAFTER:
            return arm, 0
        most = min(self.params.draft_length, room - 1)
        length = chosen_length(spec, policy.draft_length(most), most)
        return NO_DRAFTER if arm == ALL_DRAFTERS and not length else arm, length

    def _verified(self, arm: int, length: int, asked: Draft) -> Verified:
        """What became of a draft; of none where it is not sound, and its drafter is benched then."""
        drafting = self._drafting
        try:
            draft, verdict, logits = self._verify(asked)
        except DraftError as error:
            drafting.benched.add(arm, error)
            draft, verdict, logits = self._verify(Draft.empty())
        if len(draft) < len(asked):  # of what was not scored nothing is known
            length = draft.depth
            arm = arm if length else NO_DRAFTER
        if length and logits is not None:
            drafting.observe(arm, draft, logits)
        together = arm == ALL_DRAFTERS
        tokens, own = self._cut(draft, verdict)
        arm = drafting.union.author(verdict.path[: len(tokens)]) if together else arm
        return Verified(arm, together, length, draft, verdict, logits, tokens, own)

    def _verify(self, draft: Draft) -> tuple[Draft, Verdict, torch.Tensor | None]:
        """What the target makes of a draft: as much of it as was scored, the verdict and the logits, ``None`` where
        they are unknown."""
        target = self.pool.target
        logits = target.score(draft)
        return draft, verify(draft, logits, self.params, self._generator, target.choices), logits

    def _cut(self, draft: Draft, verdict: Verdict) -> tuple[list[int], int | None]:
        """The round's tokens, cut after the first that ends the output; without an own token where that is before."""
        tokens = [*(draft.tokens[node] for node in verdict.path), verdict.own]
        ends = frozenset[int]() if self.output.ignore_end else self.pool.stop_ids
        for index, token in enumerate(tokens):
            if token in ends or self._stop.completed_by(token):
                self._stopped = True
                return tokens[: index + 1], verdict.own if index == len(verdict.path) else None
        return tokens, verdict.own

    def _emit(self, done: Verified) -> None:
        """Take the round's tokens over into the text and the target's cache."""
        # All but the last token are cached then, also where a stop token within the draft ends the output.
        self.pool.target.accept(done.verdict.path[: len(done.tokens) - 1], done.tokens[-1])
        if self.output.logprobs is not None and done.logits is not None:
            self.logprobs += logprobs_of(done.logits[done.rows], done.tokens, self.output.logprobs)
        self.context.extend(done.tokens)

    def _evaluate(self, done: Verified) -> np.ndarray | None:
        """γ of all drafters at positions verified since the last evaluation, if the policy wants it now."""
        if not self.policy.uses_gamma:
            return None
        if done.verdict.probs is not None:
            self._unseen_p.append(done.verdict.probs[done.rows])
        elif self.policy.uses_soft_gamma and done.logits is not None:
            self._unseen_p.append(probabilities(done.logits[done.rows], self.params))
        asked = chosen_span(self.generation.policy, self.policy.evaluation_span)
        if asked:  # each is of a whole vocabulary
            del self._unseen_p[:-asked]
        if not self._wants_evaluation(len(done.tokens)):
            return None
        span = min(asked or len(self.context), len(self.context) - self._evaluated)
        start, first = len(self.context) - span, self.generation.prompt_tokens
        p = torch.cat(self._unseen_p)[-span:] if self._unseen_p else None
        gamma = self.pool.gamma(Evidence(self.context, start, p, self.params, first), self._drafting.benched)
        self._evaluated, self._unseen_p = len(self.context), []
        return gamma

    def _wants_evaluation(self, emitted: int) -> bool:
        return self.policy.wants_evaluation(emitted)

    def _learn(self, done: Verified, divergence: float | None, gamma: np.ndarray | None, seconds: float) -> None:
        """Tell the policy, and what later queries begin with."""
        drafted, emitted = len(done.main_path), len(done.tokens)
        feedback = Feedback(done.arm, drafted, done.accepted, emitted, done.length, divergence, gamma, seconds)
        self.policy.update(feedback)
        self._experience.add(feedback, self._reward)

    @property
    def _reward(self) -> float | None:
        reward = self.policy.last_reward
        return None if reward is None else told_number(self.policy.name, "last_reward", reward)

    def _status(self, round: Round) -> Status:
        if self._stopped:
            return "stopped"
        if len(self.generation.token_ids) >= self.params.max_new_tokens:
            return "completed"
        if len(self.context) >= self.pool.target.window:
            return "context_limit"
        return "running"


stream = Decoding
"""Decodes a prompt, yielding each :class:`~storage.records.Round` as it happens."""


def generate(
    pool: Pool,
    prompt: str | Sequence[int],
    policy: str | Policy = "normal-hedge",
    params: SamplingParams | None = None,
    seed: int = 0,
    turns: Sequence[Turn] = (),
    output: Output = Output(),  # noqa: B008
) -> Generation:
    """Decode ``prompt`` to the end and return the whole :class:`~storage.records.Generation`.

    Arguments and errors are those of :class:`Decoding`.
    """
    return Decoding(pool, prompt, policy, params, seed, turns, output).run()
