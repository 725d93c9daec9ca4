"""Many visitors at once, each at an address of its own, on a server in a process of its own::

    python -m tests.reliability.crowd --visitors 100 --minutes 30

They use the page (*Play*, races, batches with uploads, opening it, the dashboard, leaving in the middle), its API and
``/v1``, with pauses in between. All decode greedily, so the answer to each prompt is known: it is decoded without
drafters before the crowd comes, and every answer, and in the end every run of the history, is compared with it.
"""

import argparse
import json
import random
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psutil

import multidraft
from drafters.pool import load_pool
from drafters.sampling import SamplingParams
from multidraft.bench.suites import load_suite, spread
from multidraft.service.limits import PUBLIC
from tests.app import started
from tests.reliability.clients import SETTINGS
from tests.reliability.crowd_report import Report
from tests.reliability.visitor import Refused, Visitor, answered

ACTIONS = {
    "API": 4,
    "API, streamed": 4,
    "/v1": 4,
    "/v1, streamed": 4,
    "Play": 4,
    "race": 1,
    "batch": 1,
    "page": 2,
    "dashboard": 1,
    "leaves": 2,
}
"""What visitors do, and how often in proportion."""

POLICIES = ("ucb", "normal-hedge", "exp3", "round-robin", "autoregressive")

POLITE = ("already running", "of uploads are kept", "a day here", "Queue is full")
"""Words of refusals by a limit."""

PATIENCE = 900.0
"""Seconds without a byte after which a visitor counts the server as broken; with a hundred waiting, a text takes
minutes on a machine that is busy with other work too."""

SAMPLE_SECONDS = 5.0
"""Between two looks at the server's memory."""


class Crowd:
    """Visitors who come until :attr:`over` is set.

    Args:
        known: plain decoding's answer to each prompt.
        tokens: of each answer, at most.
        think: mean seconds of a pause.
    """

    def __init__(self, address: str, known: dict[str, str], tokens: int, think: float, seed: int):
        self.address, self.known, self.tokens, self.think, self.seed = address, known, tokens, think, seed
        self.prompts, self.report, self.lock = list(known), Report(), threading.Lock()
        self.over = threading.Event()
        self.config = httpx.get(f"{address}config", timeout=60).json()

    def visit(self, number: int) -> None:
        """What one of them does."""
        chance = random.Random(f"{self.seed} {number}")
        headers = {"X-Forwarded-For": f"198.18.{number // 250}.{number % 250 + 1}"}
        with httpx.Client(base_url=self.address, timeout=PATIENCE, headers=headers) as http:
            visitor = Visitor(http, self.config)
            self.over.wait(chance.uniform(0, self.think))
            while not self.over.is_set():
                (action,) = chance.choices(list(ACTIONS), list(ACTIONS.values()))
                begin = time.monotonic()
                try:
                    self._act(action, visitor, chance)
                except Refused as refused:
                    self._count(action, refused)
                except Exception as error:  # a crowd goes on, whatever becomes of one
                    with self.lock:
                        self.report.errors.append(f"{action}: {type(error).__name__}: {str(error)[:300]}")
                else:
                    with self.lock:
                        self.report.seconds[action].append(time.monotonic() - begin)
                self.over.wait(chance.expovariate(1 / self.think) if self.think else 0)

    def _count(self, action: str, refused: Refused) -> None:
        with self.lock:
            if any(words in str(refused) for words in POLITE):
                self.report.refused[action] += 1
            else:
                self.report.errors.append(f"{action}: {str(refused)[:300]}")

    def _check(self, prompt: str, answer: str) -> None:
        if answer != self.known[prompt]:
            with self.lock:
                self.report.wrong += 1
                self.report.crossed += answer in self.known.values()

    def _act(self, action: str, visitor: Visitor, chance: random.Random) -> None:
        prompt, policy = chance.choice(self.prompts), chance.choice(POLICIES)
        said = [{"role": "user", "content": prompt}]
        asked = {"model": "", "messages": said, "max_tokens": self.tokens, "temperature": 0, "policy": policy}
        if action == "API":
            *_, last = visitor.called("generate", prompt, policy, self.tokens, *SETTINGS)
            self._check(prompt, last["text"])
        elif action == "API, streamed":
            self._check(prompt, self._followed(visitor.called("stream", prompt, policy, self.tokens, *SETTINGS)))
        elif action == "/v1":
            answer = answered(visitor.http.post("/v1/chat/completions", json=asked))
            self._check(prompt, answer["choices"][0]["message"]["content"])
        elif action == "/v1, streamed":
            self._check(prompt, _streamed(visitor.http, asked))
        elif action == "Play":
            self._play(visitor, prompt, policy)
        elif action == "race":
            lanes = {"race_lane_1": policy, "race_lane_2": "ucb", "race_lane_3": "", "race_lane_4": ""}
            for _ in visitor.starts("race-run", race_prompt=prompt, race_max_new_tokens=self.tokens, **lanes):
                pass
        elif action == "batch":
            lines = [json.dumps({"prompt": text}) for text in chance.sample(self.prompts, min(3, len(self.prompts)))]
            file = visitor.upload("prompts.jsonl", "\n".join(lines).encode())
            given = {"upload": file, "length": self.tokens, "at_once": chance.choice([1, 1, 2])}
            for _ in visitor.starts("batch-run", batch_policies=["ucb", "autoregressive"], **given):
                pass
        elif action == "page":
            visitor.http.get("/").raise_for_status()
            for _ in visitor.opens():
                pass
        elif action == "dashboard":
            for _ in visitor.clicks("refresh"):
                pass
        else:
            for _ in visitor.called("stream", prompt, policy, self.tokens, *SETTINGS):
                break  # and the connection is closed

    def _followed(self, updates: Iterator[dict[str, Any]]) -> str:
        """The text in the end; the wait that was told first is compared with the true one."""
        told, since, text = 0.0, None, ""
        for update in updates:
            text = update["text"]
            if since is None and update["ahead"] and update["wait_seconds"]:
                told, since = update["wait_seconds"], time.monotonic()
            elif since and told and not update["ahead"]:
                with self.lock:
                    self.report.waits.append((told, time.monotonic() - since))
                told = 0.0
        return text

    def _play(self, visitor: Visitor, prompt: str, policy: str) -> None:
        """Run a prompt on the page, and read the answer in the file that it offers."""
        event = visitor.event("run")
        *_, last = visitor.happens(event, prompt=prompt, policy=policy, max_new_tokens=self.tokens)
        file = visitor.shown(event, last, "download-run")
        if not file or not file.get("value"):
            raise Refused(str(visitor.shown(event, last, "status")))
        answer = visitor.http.get(f"/gradio_api/file={file['value']['path']}").raise_for_status()
        self._check(prompt, answer.json()["text"])


def _streamed(http: httpx.Client, asked: dict[str, Any]) -> str:
    text, ended = "", False
    with http.stream("POST", "/v1/chat/completions", json={**asked, "stream": True}) as answer:
        if answer.is_error:
            answer.read()
            answered(answer)
        for line in answer.iter_lines():
            ended = ended or line == "data: [DONE]"
            if line.startswith("data: {"):
                text += "".join(choice["delta"].get("content") or "" for choice in _told(line)["choices"])
    if not ended:
        raise Refused(f"the stream broke off after {text!r}")
    return text


def _told(line: str) -> Any:
    told = json.loads(line[6:])
    if "error" in told:
        raise Refused(told["error"]["message"])
    return told


def crowd(
    folder: Path,
    pool: str,
    prompts: Sequence[str],
    visitors: int,
    minutes: float,
    tokens: int = 32,
    think: float = 2.0,
    seed: int = 0,
    log: Path | None = None,
) -> Report:
    """Let so many visitors come.

    Args:
        folder: of history, uploads and, by default, the log.
        pool: a bundled pool or a card.
        think: mean seconds of a pause.
        log: the server's. Visitors leave when the server has ended, and its log says why.
    """
    known = plain(pool, prompts, tokens)
    named = ("share", "batch_runs", "run_seconds", "batch_seconds")
    limits = {f"MULTIDRAFT_{name.upper()}": f"{getattr(PUBLIC, name)}" for name in named}
    history, log = folder / "runs.db", log or folder / "log"
    with started(pool, history, log, **limits) as (address, server):
        process = psutil.Process(server.pid)
        all = Crowd(address, known, tokens, think, seed)
        report, begin = all.report, time.monotonic()
        threads = [threading.Thread(target=all.visit, args=(number,)) for number in range(visitors)]
        for thread in threads:
            thread.start()
        printed = 0
        while (passed := (time.monotonic() - begin) / 60) < minutes and server.poll() is None:
            report.memory.append((passed, process.memory_info().rss / 2**20))
            if passed >= printed:
                done = sum(map(len, report.seconds.values()))
                size = report.memory[-1][1]
                print(f"minute {printed}: {size:.0f} MiB, {done} actions, {len(report.errors)} errors", flush=True)
                printed += 1
            time.sleep(min(SAMPLE_SECONDS, 60 * (minutes - passed)))
        all.over.set()
        for thread in threads:
            thread.join()
        report.minutes = (time.monotonic() - begin) / 60
        report.ended_by_itself = server.poll()
        if report.ended_by_itself is None:
            report.memory.append((report.minutes, process.memory_info().rss / 2**20))
    report.status = server.returncode
    _compare(history, known, report)
    said = log.read_text()
    if "Traceback" in said:
        report.errors.append(f"the server's log: {said[said.index('Traceback') :][:2000]}")
    if report.ended_by_itself is not None:
        report.errors.append(f"the server ended by itself; the end of its log: {said[-2000:]}")
    return report


def plain(pool: str, prompts: Sequence[str], tokens: int) -> dict[str, str]:
    """What the target answers without drafters."""
    loaded = load_pool(pool)
    params = SamplingParams(max_new_tokens=tokens)
    return {p: multidraft.generate(loaded, p, policy="autoregressive", params=params).text for p in prompts}


def _compare(history: Path, known: dict[str, str], report: Report) -> None:
    whole = "SELECT prompt, text, output_tokens FROM runs WHERE status IN ('completed', 'context_limit')"
    with closing(sqlite3.connect(history)) as connection:
        for prompt, text, tokens in connection.execute(whole):
            report.recorded += 1
            report.tokens += tokens
            report.wrong_records += text != known[prompt]


def main(options: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("::")[0])
    parser.add_argument("--visitors", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--pool", default="pocket")
    parser.add_argument("--prompts", type=int, default=60, help="different ones, of the bundled suite")
    parser.add_argument("--tokens", type=int, default=32, help="of an answer, at most")
    parser.add_argument("--think", type=float, default=2.0, help="mean seconds between a visitor's actions")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="the server's log, which is kept")
    asked = parser.parse_args(options)
    prompts = [item.prompt for item in spread(load_suite("pocket").items, asked.prompts)]
    with tempfile.TemporaryDirectory(prefix="multidraft-crowd-") as folder:
        report = crowd(
            Path(folder),
            asked.pool,
            prompts,
            asked.visitors,
            asked.minutes,
            asked.tokens,
            asked.think,
            asked.seed,
            asked.log and asked.log.resolve(),
        )
    print(report)
    return 0 if report.well else 1


if __name__ == "__main__":
    sys.exit(main())
