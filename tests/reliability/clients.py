"""Clients of a server that is going to be killed, and what they were told."""

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import httpx

from tests.reliability.visitor import Refused, Visitor

SETTINGS = (0.0, 1.0, 0, None, 0, True)
"""Of a call: temperature, top-p, top-k, draft length, seed, and whether its run may be learnt from."""

POLICIES = ("ucb", "normal-hedge", "fixed:near", "autoregressive")


@dataclass
class Told:
    """What clients were told is finished, and what they were told is not kept.

    Attributes:
        runs: prompts of single runs, each of which is unlike all others.
        batches: how many runs of a batch, by its id.
        kinds: how many runs were told in which way.
        unkept: answers which said that the run is not in the history yet.
    """

    runs: list[str] = field(default_factory=list)
    batches: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    unkept: int = 0

    def run(self, kind: str, prompt: str, kept: bool = True) -> None:
        """A run was told as finished."""
        self.kinds[kind] += 1
        if kept:
            self.runs.append(prompt)
        else:
            self.unkept += 1


class Clients:
    """Ask one server for all that it offers, in threads, until it is gone."""

    def __init__(self, address: str, told: Told, numbers: Iterator[int], seed: int):
        self.address, self.told, self.numbers, self.random = address, told, numbers, random.Random(seed)
        self.config = httpx.get(f"{address}/config", timeout=60).json()
        asked = (self.call, self.stream, self.batch, self.complete, self.complete_in_parts, self.play, self.page_batch)
        self.threads = [threading.Thread(target=self._repeat, args=(ask,), daemon=True) for ask in asked]
        for thread in self.threads:
            thread.start()

    def _repeat(self, ask: Callable[[Visitor], None]) -> None:
        with (
            suppress(httpx.HTTPError, json.JSONDecodeError, Refused),
            httpx.Client(base_url=self.address, timeout=60) as http,
        ):
            visitor = Visitor(http, self.config)
            while True:
                ask(visitor)

    def _prompt(self) -> str:
        return f"ab {next(self.numbers)} {''.join(self.random.choices('abcdefghi', k=8))}"

    def _policy(self) -> str:
        return self.random.choice(POLICIES)

    def call(self, visitor: Visitor) -> None:
        prompt = self._prompt()
        for run in visitor.called("generate", prompt, self._policy(), 16, *SETTINGS):
            if run and run["status"] in ("completed", "stopped"):
                self.told.run("API", prompt, run["id"] is not None)
                break  # what is sent once more at the end is not told twice

    def stream(self, visitor: Visitor) -> None:
        prompt, update = self._prompt(), None
        for update in visitor.called("stream", prompt, self._policy(), 16, *SETTINGS):
            if update["status"] in ("completed", "stopped"):
                self.told.run("API, streamed", prompt, update["run_id"] is not None)
                break

    def batch(self, visitor: Visitor) -> None:
        prompts = [self._prompt() for _ in range(3)]
        for report in visitor.called("batch", prompts, ["ucb", "round-robin"], 12, None, 0, 1, True):
            if report and not report["unkept"]:
                for prompt in prompts:
                    self.told.batches[prompt] = 2
                self.told.kinds["batch of the API"] += 6
                break

    def complete(self, visitor: Visitor) -> None:
        prompt = self._prompt()
        answer = visitor.http.post("/v1/completions", json={"prompt": prompt, "max_tokens": 16, "model": "tiny"})
        if answer.status_code == 200:
            self.told.run("/v1", prompt, answer.json()["metrics"]["run_id"] is not None)

    def complete_in_parts(self, visitor: Visitor) -> None:
        prompt = self._prompt()
        asked = {"prompt": prompt, "max_tokens": 16, "model": "tiny", "stream": True}
        with visitor.http.stream("POST", "/v1/completions", json=asked) as answer:
            for line in answer.iter_lines():
                if '"finish_reason":"' in line:
                    self.told.run("/v1, streamed", prompt)

    def play(self, visitor: Visitor) -> None:
        prompt = self._prompt()
        for message in visitor.clicks("run", prompt=prompt):
            text = json.dumps(message)
            if "Completed: " in text or "Ended" in text:
                self.told.run("page", prompt, "Not in the history yet" not in text)
                break

    def page_batch(self, visitor: Visitor) -> None:
        lines = "\n".join(json.dumps({"prompt": self._prompt(), "task": "letters"}) for _ in range(6))
        file = visitor.upload("suite.jsonl", lines.encode())
        given = {"upload": file, "length": 12, "batch-policies": ["ucb", "round-robin"]}
        for id, message in visitor.starts("batch-run", **given, **{"at-once": self.random.choice([1, 1, 2])}):
            if message["msg"] != "process_completed":  # which repeats all of them
                rows = json.dumps(message.get("output")).count("data-item=")
                self.told.batches[id] += rows
                self.told.kinds["batch of the page"] += rows
