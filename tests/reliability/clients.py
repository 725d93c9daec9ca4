"""Clients of a server that is going to be killed, and what they were told."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

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
        config = httpx.get(f"{address}/config", timeout=60).json()
        self.components = {component["id"]: component for component in config["components"]}
        self.events = config["dependencies"]
        asked = (self.call, self.stream, self.batch, self.complete, self.complete_in_parts, self.play, self.page_batch)
        self.threads = [threading.Thread(target=self._repeat, args=(ask,), daemon=True) for ask in asked]
        for thread in self.threads:
            thread.start()

    def _repeat(self, ask: Callable[[httpx.Client], None]) -> None:
        with suppress(httpx.HTTPError, json.JSONDecodeError), httpx.Client(base_url=self.address, timeout=60) as http:
            while True:
                ask(http)

    def _prompt(self) -> str:
        return f"ab {next(self.numbers)} {''.join(self.random.choices('abcdefghi', k=8))}"

    def _policy(self) -> str:
        return self.random.choice(POLICIES)

    def _called(self, http: httpx.Client, name: str, *values: Any) -> Iterator[Any]:
        """What an endpoint of the API sends."""
        id = http.post(f"/gradio_api/call/{name}", json={"data": values}).json()["event_id"]
        with http.stream("GET", f"/gradio_api/call/{name}/{id}") as answer:
            for line in answer.iter_lines():
                if line.startswith("data: ") and (found := json.loads(line[6:])):
                    yield found[0]

    def call(self, http: httpx.Client) -> None:
        prompt = self._prompt()
        for run in self._called(http, "generate", prompt, self._policy(), 16, *SETTINGS):
            if run and run["status"] in ("completed", "stopped"):
                self.told.run("API", prompt, run["id"] is not None)
                break  # what is sent once more at the end is not told twice

    def stream(self, http: httpx.Client) -> None:
        prompt, update = self._prompt(), None
        for update in self._called(http, "stream", prompt, self._policy(), 16, *SETTINGS):
            if update["status"] in ("completed", "stopped"):
                self.told.run("API, streamed", prompt, update["run_id"] is not None)
                break

    def batch(self, http: httpx.Client) -> None:
        prompts = [self._prompt() for _ in range(3)]
        for report in self._called(http, "batch", prompts, ["ucb", "round-robin"], 12, None, 0, 1, True):
            if report and not report["unkept"]:
                for prompt in prompts:
                    self.told.batches[prompt] = 2
                self.told.kinds["batch of the API"] += 6
                break

    def complete(self, http: httpx.Client) -> None:
        prompt = self._prompt()
        answer = http.post("/v1/completions", json={"prompt": prompt, "max_tokens": 16, "model": "tiny"})
        if answer.status_code == 200:
            self.told.run("/v1", prompt, answer.json()["metrics"]["run_id"] is not None)

    def complete_in_parts(self, http: httpx.Client) -> None:
        prompt = self._prompt()
        asked = {"prompt": prompt, "max_tokens": 16, "model": "tiny", "stream": True}
        with http.stream("POST", "/v1/completions", json=asked) as answer:
            for line in answer.iter_lines():
                if '"finish_reason":"' in line:
                    self.told.run("/v1, streamed", prompt)

    def _event(self, id: str, kind: str) -> tuple[int, list[dict[str, Any]]]:
        """The number of a control's event, and the components that it hands over."""
        control = next(n for n, c in self.components.items() if c["props"].get("elem_id") == id)
        event = next(e for e in self.events if [control, kind] in e["targets"] and e["backend_fn"])
        return event["id"], [self.components[number] for number in event["inputs"]]

    def _happens(self, http: httpx.Client, event: int, values: Sequence[Any]) -> Iterator[dict[str, Any]]:
        """What the page is sent when an event happens on it."""
        session = f"{self.random.random()}"
        http.post("/gradio_api/queue/join", json={"data": values, "fn_index": event, "session_hash": session})
        with http.stream("GET", "/gradio_api/queue/data", params={"session_hash": session}) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    yield (message := json.loads(line[6:]))
                    if message["msg"] == "process_completed":
                        return

    def play(self, http: httpx.Client) -> None:
        prompt = self._prompt()
        event, inputs = self._event("run", "click")
        values = [prompt if c["props"].get("elem_id") == "prompt" else c["props"].get("value") for c in inputs]
        for message in self._happens(http, event, values):
            text = json.dumps(message)
            if "Completed: " in text or "Ended: " in text:
                self.told.run("page", prompt, "Not in the history yet" not in text)
                break

    def page_batch(self, http: httpx.Client) -> None:
        lines = "\n".join(json.dumps({"prompt": self._prompt(), "task": "letters"}) for _ in range(6))
        (path,) = http.post("/gradio_api/upload", files={"files": ("suite.jsonl", lines)}).json()
        event, inputs = self._event("batch-run", "click")
        given = {
            "upload": {"path": path, "meta": {"_type": "gradio.FileData"}},
            "length": 12,
            "batch-policies": ["ucb", "round-robin"],
            "at-once": self.random.choice([1, 1, 2]),
        }
        values = [given.get(c["props"].get("elem_id"), c["props"].get("value")) for c in inputs]
        for message in self._happens(http, event, values):
            if message["msg"] == "process_completed" and message["success"]:
                self._watch(http, message["output"]["data"][0], event)

    def _watch(self, http: httpx.Client, id: str, started: int) -> None:
        """Count the rows that the page shows of a batch."""
        asked = next(e for e in self.events if e["id"] == started)["outputs"][0]
        watch = next(e["id"] for e in self.events if [asked, "change"] in e["targets"] and e["backend_fn"])
        for message in self._happens(http, watch, [id]):
            if message["msg"] != "process_completed":  # which repeats all of them
                rows = json.dumps(message.get("output")).count("data-item=")
                self.told.batches[id] += rows
                self.told.kinds["batch of the page"] += rows
