"""``/metrics`` for Prometheus: the figures that vLLM has, under its names, and those that tell drafters apart."""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from multidraft.bench.measure import Measurement
from multidraft.service.workbench import Workbench
from multidraft.serving.openai.answers import REASONS
from storage.records import PHASES, Round
from storage.run import Run

TARGET = "target"
"""What stands for the drafter of rounds without a draft."""

UPDATE_SECONDS = 0.25
"""How often the rounds of a text are counted while it grows: often enough for those who scrape, and costs little."""

BORDERS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Of histograms of seconds."""

MODEL = "model_name", "engine"
"""Labels of all of them."""

ENGINE = "0"
"""vLLM numbers its engines; there is one here."""

ENDS = {**REASONS, "error": "error"}
"""Why a text ended, in vLLM's words, by its status; those that the client or the server ended are ``abort``."""


class Drafts:
    """The counters of drafts, told apart by ``labels``."""

    def __init__(self, prefix: str, labels: Sequence[str], registry: CollectorRegistry):
        def counter(name: str, about: str, *more: str) -> Counter:
            return Counter(f"{prefix}:spec_decode_{name}", about, (*labels, *more), registry=registry)

        self.drafts = counter("num_drafts", "Drafts.")
        self.tokens = counter("num_draft_tokens", "Drafted tokens.")
        self.accepted = counter("num_accepted_tokens", "Drafted tokens that were accepted.")
        self.accepted_at = counter("num_accepted_tokens_per_pos", "The same by position in the draft.", "position")

    def add(self, rounds: Sequence[Round], *labels: str) -> None:
        """Count rounds with a draft."""
        self.drafts.labels(*labels).inc(len(rounds))
        self.tokens.labels(*labels).inc(sum(len(r.drafted) for r in rounds))
        self.accepted.labels(*labels).inc(sum(r.accepted for r in rounds))
        for position, count in Counts(at for r in rounds for at in range(r.accepted)).items():
            self.accepted_at.labels(*labels, str(position)).inc(count)


@dataclass
class Followed:
    """A run and how much of it has been counted; times are those of ``time.monotonic``."""

    measurement: Measurement
    began: float | None = None
    counted: int = 0
    counted_at: float = 0.0
    first: float | None = None
    last: float = 0.0
    ended: bool = False
    scored: bool = False


class Metrics(Collector):
    """Counts what a workbench decodes, whoever asked for it; baselines and warm-ups are not counted.

    A client that has its answer finds all of it counted, but for its scores, which come later.

    The counters by drafter have names of their own: of vLLM's each model has one series, which vLLM's dashboards and
    AIPerf's report take for the whole.
    """

    def __init__(self, workbench: Workbench):
        self.workbench, self.registry = workbench, CollectorRegistry()
        self.drafts = Drafts("vllm", MODEL, self.registry)
        self.by_drafter = Drafts("multidraft", [*MODEL, "drafter"], self.registry)
        self.rounds = self._counter("multidraft:rounds", "Rounds by drafter.", "drafter")
        self.seconds = self._counter("multidraft:round_seconds", "Seconds of rounds by part.", "drafter", "part")
        self.prompt_tokens = self._counter("vllm:prompt_tokens", "Tokens of prompts.")
        self.generation_tokens = self._counter("vllm:generation_tokens", "Tokens generated.")
        self.finished = self._counter("vllm:request_success", "Ended texts.", "finished_reason")
        self.scored = self._counter("multidraft:scored_rounds", "Rounds of texts with a known regret.")
        self.best = self._counter(
            "multidraft:best_drafter_rounds", "Rounds that their best fixed drafter would have needed."
        )
        self.queued = self._histogram("request_queue_time", "From the request to its first turn.")
        self.to_first = self._histogram("time_to_first_token", "From the request to the end of the first round.")
        self.per_token = self._histogram("request_time_per_output_token", "Between tokens, on average over a text.")
        self.whole = self._histogram("e2e_request_latency", "From the request to the last token.")
        self.registry.register(self)
        workbench.observers.append(self.follow)

    def route(self) -> Route:
        """Where Prometheus reads it."""
        return Route("/metrics", self._answer)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """How many jobs there are now, on the pool that is loaded now."""
        running, waiting = self.workbench.jobs.counts
        for name, about, count in (
            ("vllm:num_requests_running", "Jobs that have begun.", running),
            ("vllm:num_requests_waiting", "Jobs that wait for their first turn.", waiting),
        ):
            family = GaugeMetricFamily(name, about, labels=MODEL)
            family.add_metric((self.workbench.pool.name, ENGINE), count)
            yield family

    def follow(self, measurement: Measurement) -> None:
        """Count a run that has not begun."""
        followed = Followed(measurement)
        measurement.watch(lambda: self._look(followed))

    async def _answer(self, request: Request) -> Response:
        return Response(generate_latest(self.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(name, about, (*MODEL, *labels), registry=self.registry)

    def _histogram(self, name: str, about: str) -> Histogram:
        return Histogram(f"vllm:{name}_seconds", about, MODEL, buckets=BORDERS, registry=self.registry)

    def _look(self, followed: Followed) -> None:
        measurement, now = followed.measurement, time.monotonic()
        generation, done = measurement.generation, measurement.phase == "done"
        if not done:
            followed.began = followed.began or now
        if len(generation.rounds) > followed.counted:
            followed.first, followed.last = followed.first or now, now
        over = done or generation.status != "running"
        if over or now - followed.counted_at >= UPDATE_SECONDS:
            new = generation.rounds[followed.counted :]
            followed.counted, followed.counted_at = followed.counted + len(new), now
            self._count(measurement.run.conditions.pool, new)
        if over and not followed.ended:  # its client does not wait for the scores
            followed.ended = True
            self._ended(followed)
        if done and not followed.scored:  # told once more when the history has it
            followed.scored = True
            self._scored(measurement.run)

    def _count(self, pool: str, rounds: Sequence[Round]) -> None:
        model = pool, ENGINE
        self.drafts.add([r for r in rounds if r.drafted], *model)
        self.generation_tokens.labels(*model).inc(sum(r.emitted for r in rounds))
        for name in {r.drafter or TARGET for r in rounds}:
            own = [r for r in rounds if (r.drafter or TARGET) == name]
            self.rounds.labels(*model, name).inc(len(own))
            for part in PHASES:
                self.seconds.labels(*model, name, part).inc(sum(getattr(r, f"{part}_seconds") for r in own))
            if drafted := [r for r in own if r.drafted]:
                self.by_drafter.add(drafted, *model, name)

    def _ended(self, followed: Followed) -> None:
        run, asked = followed.measurement.run, followed.measurement.asked_at
        model, tokens = (run.conditions.pool, ENGINE), len(run.generation.token_ids)
        self.finished.labels(*model, ENDS.get(run.generation.status, "abort")).inc()
        if followed.began is not None:
            self.prompt_tokens.labels(*model).inc(run.generation.prompt_tokens)
            self.queued.labels(*model).observe(followed.began - asked)
        if followed.first is not None:
            self.to_first.labels(*model).observe(followed.first - asked)
            self.whole.labels(*model).observe(followed.last - asked)
            if tokens > 1:
                self.per_token.labels(*model).observe((followed.last - followed.first) / (tokens - 1))

    def _scored(self, run: Run) -> None:
        if run.scores.regret_rounds is not None:
            model = run.conditions.pool, ENGINE
            self.scored.labels(*model).inc(len(run.generation.rounds))
            self.best.labels(*model).inc(len(run.generation.rounds) - run.scores.regret_rounds)
