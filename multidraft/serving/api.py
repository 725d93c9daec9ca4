"""The endpoints for programs: stable names, plain values in and out; the same are the tools of the MCP server."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any, TypedDict, TypeVar

import gradio as gr

from drafters.errors import UserError, quoted
from drafters.sampling import SamplingParams
from multidraft.bench.batches import summary_of_batches
from multidraft.bench.measure import Request
from multidraft.bench.suites import SuiteItem
from multidraft.bench.summary import as_json
from multidraft.policies import make_policy
from multidraft.policies.titles import DEFAULT_POLICY, policy_choices
from multidraft.service.batch import BatchJob
from multidraft.service.inputs import make_params, whole_number
from multidraft.service.jobs import Job
from multidraft.service.workbench import RunJob, Workbench
from storage.records import Round
from storage.run import Origin

UPDATE_SECONDS = 0.1
"""How often a stream tells of what is new."""

ALIVE_SECONDS = 1.0
"""How often an endpoint gives a sign of life at least: only then Gradio can end it with its caller."""


NEW_TOKENS = 128
"""Tokens of an answer at most where nothing is said about it, if the server allows as many."""

_KINDS: dict[type, str] = {str: "a text", bool: "true or false"}

T = TypeVar("T", str, bool)
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


class RoundReport(TypedDict):
    """One round; ``storage.records.Round`` documents each entry."""

    index: int
    drafter: str | None
    drafted: int
    accepted: int
    text: str
    seconds: float


class Update(TypedDict):
    """How far a run is: all of its text so far, and the rounds since the update before. Before it starts: how many jobs
    are ahead of it, and about how many seconds it has to wait (null as long as that cannot be told). At the end
    ``run_id``, its number in the history, ``None`` where it is not kept there yet."""

    status: str
    text: str
    tokens: int
    tokens_per_second: float
    new_rounds: list[RoundReport]
    run_id: int | None
    ahead: int
    wait_seconds: float | None


class PolicyReport(TypedDict):
    """A policy that can be asked for by its spec."""

    spec: str
    title: str
    explanation: str


class PoolReport(TypedDict):
    """The pool that decodes what is asked for now; ``status`` says in words what is loaded and what is on its way,
    ``news`` only the latter."""

    name: str
    title: str
    card_hash: str
    draft_length: int
    drafters: list[str]
    loading: bool
    status: str
    news: str


class BatchReport(TypedDict):
    """Of a batch a row for each prompt and policy, and their summary by task and policy; where several texts were
    decoded at once, also the throughput of each policy. ``unkept`` runs are not in the history yet."""

    rows: list[dict[str, Any]]
    summary: list[dict[str, Any]]
    throughput: list[dict[str, Any]]
    unkept: int


def endpoint(result: Any, takes: Callable[..., Any] | None = None) -> Callable[[Endpoint], Endpoint]:
    """Decorates an endpoint with the type that its callers get; of a stream, that of its items. Gradio takes it from
    the signature, where it has to be the type itself, not its name.

    Args:
        takes: whose parameters it has, and whose docstring explains them (its ``Args:``, which come last there).
    """

    def mark(endpoint: Endpoint) -> Endpoint:
        signature = inspect.signature(takes or endpoint).replace(return_annotation=result)
        endpoint.__signature__ = signature  # type: ignore[attr-defined]
        if takes is not None:
            endpoint.__annotations__ = takes.__annotations__
            about, returns, report = (inspect.getdoc(endpoint) or "").partition("Returns:")
            endpoint.__doc__ = f"{about}Args:{(inspect.getdoc(takes) or '').partition('Args:')[2]}\n\n{returns}{report}"
        return endpoint

    return mark


class Api:
    """The endpoints on one workbench.

    All that decode are generators, since Gradio can end nothing else when its caller cancels or goes. Of those that
    have one result, it is the last item, and ``None`` comes before it.
    """

    def __init__(self, workbench: Workbench):
        self.workbench = workbench

    def build(self) -> None:
        """Register the endpoints; call it inside ``gr.Blocks``."""
        most = self.workbench.limits.queue  # whoever waits does so in the queue of jobs, which knows visitors
        for decodes in (self.generate, self.stream, self.batch):
            gr.api(decodes, api_name=decodes.__name__, concurrency_limit=most)
        gr.api(self.policies, api_name="policies", queue=False)

    def _params(
        self, most: int | None, temperature: float, top_p: float, top_k: int, draft_length: int | None
    ) -> SamplingParams:
        """The parameters asked for; ``None`` takes what is usual here."""
        usual = min(NEW_TOKENS, self.workbench.limits.new_tokens or NEW_TOKENS)
        length = self.workbench.pool.draft_length if draft_length is None else draft_length
        return make_params(usual if most is None else most, temperature, top_p, top_k, length)

    def submit(
        self,
        prompt: str,
        policy: str = DEFAULT_POLICY,
        max_new_tokens: int | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        draft_length: int | None = None,
        seed: int = 0,
        learn: bool = True,
    ) -> RunJob:
        """Put a run in line, or raise :class:`UserError`, which the page makes an answer of.

        Args:
            prompt: what the target is to answer.
            policy: a policy spec, e.g. "normal-hedge", "ucb:beta=0.1,reward=be", "fixed:math".
            max_new_tokens: most tokens to generate; null takes 128, or the server's limit where that is lower.
            temperature: 0 is greedy decoding.
            top_p: keep the fewest most probable tokens whose mass reaches this; 1 keeps all.
            top_k: keep this many most probable tokens; 0 keeps all.
            draft_length: most tokens a drafter proposes in a round; null takes the pool's.
            seed: same seed, same tokens (but under a policy with start=previous).
            learn: whether drafters and policies may learn from this run for later ones; the history records it anyway.
        """
        params = self._params(max_new_tokens, temperature, top_p, top_k, draft_length)
        prompt, policy = _checked("prompt", prompt, str), _checked("policy", policy, str)
        origin = Origin("api", learn=_checked("learn", learn, bool))
        return self.workbench.submit(Request(prompt, policy, params, whole_number("seed", seed), origin))

    @endpoint(dict[str, Any], takes=submit)
    def generate(self, *asked: Any, **named: Any) -> Iterator[dict[str, Any] | None]:
        """Decode a prompt with several drafters and return the text and its figures.

        Returns:
            the run as in the history: id (null where it is not kept yet), text, status, error, output_tokens, rounds,
            tokens_per_second, speedup (of decoding), request_speedup (of the whole request, prefill and routing
            included), speedup_uncertainty (half the width of the 95 % interval, as a share of the speed-up),
            mean_accepted_tokens, acceptance_rate, drafter_shares, regret_rounds, best_drafter, lossless, near_tie_gap
            (null where unknown) and all that was asked. A run that fails has status "error", and error says why.
        """
        job = self.submit(*asked, **named)
        try:
            yield from _alive(job)
        finally:
            job.leave()
        yield job.run.to_json()

    @endpoint(Update, takes=submit)
    def stream(self, *asked: Any, **named: Any) -> Iterator[Update]:
        """Decode a prompt with several drafters and stream the text with the rounds it is made of.

        Returns:
            about ten times a second status, all the text so far, tokens, tokens_per_second, and the rounds since the
            update before; the last has the status with which the run ended and run_id, its number in the history
            (null where it is not kept there yet). A run that fails ends it with an error.
        """
        job = self.submit(*asked, **named)
        shown, said = 0, -ALIVE_SECONDS
        try:
            while True:
                done = job.wait(UPDATE_SECONDS)
                generation = job.measurement.snapshot()
                new = [_round(r) for r in generation.rounds[shown:]]
                shown += len(new)
                if done and generation.status == "error":
                    raise gr.Error(f"the run failed: {generation.error}", print_exception=False)
                if new or done or time.monotonic() - said >= ALIVE_SECONDS:
                    said = time.monotonic()
                    yield {
                        "status": generation.status if done else "running",
                        "text": "".join(r.text for r in generation.rounds),
                        "tokens": len(generation.token_ids),
                        "tokens_per_second": generation.tokens_per_second,
                        "new_rounds": new,
                        "run_id": job.run.id if done else None,
                        "ahead": job.ahead,
                        "wait_seconds": job.wait_seconds,
                    }
                if done:
                    return
        finally:
            job.leave()

    @endpoint(list[PolicyReport])
    def policies(self) -> list[PolicyReport]:
        """List the policies that can be asked for, with what each does."""
        pool = self.workbench.pool
        names = pool.drafter_names
        return [
            {"spec": spec, "title": title, "explanation": make_policy(spec, names).explanation}
            for title, spec in policy_choices(names, pool.router is not None)
        ]

    @endpoint(BatchReport)
    def batch(
        self,
        prompts: list[str],
        policies: list[str],
        max_new_tokens: int | None = None,
        draft_length: int | None = None,
        seed: int = 0,
        texts_at_once: int = 1,
        learn: bool = True,
    ) -> Iterator[BatchReport | None]:
        """Decode prompts under several policies, greedily, and return a row per prompt and policy and their summary.

        Args:
            prompts: the texts to answer; how many times policies they may be is the server's to say, usually 1,000.
            policies: policy specs.
            max_new_tokens: most tokens to generate for each prompt; null as in generate.
            draft_length: most tokens a drafter proposes in a round; null takes the pool's.
            seed: same seed, same choices.
            texts_at_once: 1 times each run alone; 2, 4, 8 or 16 decode as many prompts at once and measure the
                throughput of each policy instead of speed-ups.
            learn: whether drafters and policies may learn from these runs for later ones.
        """
        items, specs = _items(prompts, policies)
        params = self._params(max_new_tokens, 0.0, 1.0, 0, draft_length)
        seed, at_once = whole_number("seed", seed), whole_number("texts at once", texts_at_once)
        learn = _checked("learn", learn, bool)
        job = BatchJob(self.workbench, items, specs, params, seed, "api", texts_at_once=at_once, learn=learn)
        batch = self.workbench.jobs.submit(job)
        try:
            yield from _alive(batch)
        finally:
            batch.cancel()
            self.workbench.jobs.forget(batch)
        if batch.error:
            raise gr.Error(f"an error ended the batch after {len(batch.rows)} of {batch.total} runs: {batch.error}")
        report, throughput = as_json(batch.rows), summary_of_batches(batch.figures)
        rows = [{**row, "prompt": prompts[int(row["id"]) - 1]} for row in report["rows"]]
        yield {"rows": rows, "summary": report["summary"], "throughput": throughput, "unkept": batch.unkept}


def _alive(job: Job) -> Iterator[None]:
    """Signs of life until a job has ended."""
    yield None
    while not job.wait(ALIVE_SECONDS):
        yield None


def _items(prompts: Any, policies: Any) -> tuple[list[SuiteItem], list[str]]:
    """What was sent as a batch, checked."""
    if not isinstance(prompts, list) or not isinstance(policies, list):
        raise UserError("prompts and policies must be lists of texts")
    if not prompts:
        raise UserError("send at least one prompt")
    items = [SuiteItem(str(n), _checked(f"prompt {n}", prompt, str)) for n, prompt in enumerate(prompts, start=1)]
    return items, [_checked("policy", policy, str) for policy in policies]


def _checked(name: str, value: Any, kind: type[T]) -> T:
    """``value`` if it is of this kind: an endpoint hands on whatever JSON was sent, and a list would pass for token
    ids."""
    if not isinstance(value, kind):
        raise UserError(f"{name} must be {_KINDS[kind]}, got {quoted(value)}")
    return value


def _round(r: Round) -> RoundReport:
    values = {key: getattr(r, key) for key in RoundReport.__annotations__}
    return {**values, "drafted": len(r.drafted)}  # type: ignore[typeddict-item]
