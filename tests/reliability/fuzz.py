"""Malformed input to a server in a process of its own, one after the other::

    python -m tests.reliability.fuzz --inputs 5000

Uploads (bytes, encodings, depth, width, archives) that are read and imported, calls of the API, events of the page,
bodies to ``/v1``, links, addresses and policy specs, made by Hypothesis. Counted are answers from 500 on, tracebacks in
the log, ends of the server, paths of its files in answers, answers that took long, and how its memory grew.
"""

import argparse
import io
import json
import re
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import psutil
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from multidraft.policies.base import policy_names
from tests import tiny
from tests.app import ROOT, serve
from tests.reliability.clients import SETTINGS
from tests.reliability.visitor import Refused, Visitor

LONG_SECONDS = 20.0
"""An answer that takes longer counts as slow."""

GROWTH_MIB = 256.0
"""What the server's memory may grow from the first input to its peak."""

Input = tuple[str, Any]
"""What kind of input it is, and what is sent."""

_numbers = st.one_of(
    st.integers(), st.floats(), st.sampled_from([0, -1, 1, 10**400, 2**63, 1e308, -0.0, True, "1", "NaN", [], {}, None])
)
_texts = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        ["", "\0", "a\ud83d", "=cmd()", "../../etc/passwd", "<script>", "{{7*7}}", "a b", "%00", "‮", "x" * 100_000]
    ),
)
_json = st.recursive(
    st.one_of(st.none(), st.booleans(), _numbers, _texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_texts, inner, max_size=4)),
    max_leaves=12,
)
_specs = st.one_of(
    _texts,
    st.builds(
        lambda name, parts: f"{name}:{','.join(f'{key}={value}' for key, value in parts)}",
        st.sampled_from(policy_names()),
        st.lists(st.tuples(st.sampled_from(["beta", "reward", "drafter", "start", "", "x"]), _numbers | _texts)),
    ),
)
_row = {"prompt": "a b", "task": "letters", "question_id": 1, "turns": ["a", "b"], "messages": [{"role": "user"}]}
_rows = st.dictionaries(st.sampled_from([*_row, "category", "body", "choices", "id"]), _json, max_size=4)
_files = st.one_of(
    st.binary(max_size=2000),
    st.builds(lambda rows: "\n".join(map(_dumped, rows)).encode("utf-8", "replace"), st.lists(_rows, max_size=8)),
    st.builds(lambda rows: _dumped(rows).encode("utf-8", "replace"), st.lists(_rows, max_size=8)),
    st.builds(lambda text, code: text.encode(code, "replace"), _texts, st.sampled_from(["utf-16", "utf-32", "cp037"])),
    st.builds(lambda depth, what: what * depth, st.integers(1, 200_000), st.sampled_from([b"[", b'{"a":', b'"', b","])),
    st.builds(lambda width: b"prompt" + b",x" * width + b"\na", st.integers(1, 200_000)),
    st.builds(lambda digits: b'{"prompt": "a", "id": ' + b"9" * digits + b"}", st.integers(1, 50_000)),
    st.builds(lambda lines: b"\n" * lines + b"a", st.integers(1, 500_000)),
    st.builds(lambda size: _zipped(size), st.integers(1, 20_000_000)),
)
_names = st.sampled_from(["a.jsonl", "a.json", "a.csv", "a.txt", "a", "a.zip", "../a.json", "a\u202ejson", "a" * 300])
_clicks = st.dictionaries(st.sampled_from(["run", "item", "experiment", "pool"]), _json)
_field = st.sampled_from(
    "model prompt messages max_tokens temperature top_p top_k n best_of stop stream stream_options policy draft_length "
    "seed echo logprobs top_logprobs tools response_format user ignore_eos min_tokens store nonsense".split()
)
_address = st.sampled_from(
    ["result/run/", "result/race/", "result/comparison/1/", "embed/run/", "gradio_api/file=", "v1/models/", ""]
)
_query = st.dictionaries(
    st.sampled_from(
        "prompt with_policy with_pool max_new_tokens temperature seed run race batch tab policy task".split()
    ),
    st.one_of(_texts, _specs, _numbers.map(str)),
    max_size=4,
)

INPUTS: dict[str, st.SearchStrategy[Any]] = {
    "upload": st.tuples(_names, _files),
    "import": st.tuples(_names, _files),
    "API": st.tuples(
        st.sampled_from(["generate", "stream", "batch", "policies", "nonsense"]), st.lists(_json, max_size=10)
    ),
    "spec": _specs,
    "event": st.tuples(st.integers(-2, 120), st.lists(_json, max_size=12), _json | _clicks),
    "body": st.tuples(
        st.sampled_from(["v1/completions", "v1/chat/completions", "gradio_api/queue/join", "gradio_api/call/generate"]),
        st.one_of(st.binary(max_size=500), _files),
    ),
    "/v1": st.tuples(st.sampled_from(["completions", "chat/completions"]), st.dictionaries(_field, _json, max_size=6)),
    "link": _query,
    "address": st.tuples(_address, _texts, st.sampled_from(["", ".csv", ".json", ".svg", ".png"])),
}
"""What is sent, by kind."""


def _dumped(value: Any) -> str:
    return json.dumps(value) if not _huge(value) else '{"prompt": 1' + "0" * 5000 + "}"


def _huge(value: Any) -> bool:
    """Whether there is a number that Python does not print."""
    if isinstance(value, dict):
        return any(map(_huge, value.values()))
    return any(map(_huge, value)) if isinstance(value, list) else isinstance(value, int) and abs(value) >= 10**4000


def _zipped(size: int) -> bytes:
    """An archive that is a thousand times as large when it is unpacked."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.jsonl", bytes(size))
    return file.getvalue()


@dataclass
class Report:
    """What came of it; ``failed``, ``leaked`` and ``slow`` tell the input and the answer.

    Attributes:
        sent: inputs by kind.
        failed: answers from 500 on, or the page's word for an error of its own, or none at all.
        tracebacks: in the log.
        memory: MiB of the server at first, at its peak and in the end.
    """

    sent: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    tracebacks: int = 0
    died: bool = False
    longest: float = 0.0
    memory: list[float] = field(default_factory=list)

    @property
    def grew(self) -> float:
        """MiB, from the first input to the peak."""
        return max(self.memory) - self.memory[0] if self.memory else 0.0

    @property
    def well(self) -> bool:
        """Whether nothing of that happened."""
        return not (self.failed or self.leaked or self.slow or self.tracebacks or self.died) and self.grew <= GROWTH_MIB

    def __str__(self) -> str:
        faults = {"failed": self.failed, "leaked": self.leaked, "slow": self.slow}
        lines = [f"inputs: {self.sent.total():,} {dict(sorted(self.sent.items()))}"]
        for name, found in faults.items():
            lines += [f"{name}: {len(found)}", *(f"  {one}" for one in found[:10])]
        half = self.memory[len(self.memory) // 2]
        return "\n".join(
            [
                *lines,
                f"tracebacks in the log: {self.tracebacks}",
                f"the server died: {self.died}",
                f"longest answer: {self.longest:.1f} s",
                f"memory: {self.memory[0]:.0f} MiB at first, {half:.0f} half-way, {self.memory[-1]:.0f} in the end, "
                f"{max(self.memory):.0f} at most",
            ]
        )


class Fuzz:
    """Sends inputs to a server.

    Args:
        folder: of the server's files: no answer may tell where they are, but for those that it hands out.
    """

    def __init__(self, http: httpx.Client, folder: Path, report: Report):
        self.http, self.report = http, report
        self.visitor = Visitor(http, http.get("/config").json())
        secret = "|".join(re.escape(str(path)) for path in (ROOT, sys.prefix, Path.home() / "."))
        self._secret = re.compile(rf"{secret}|{re.escape(str(folder))}(?!/uploads)|site-packages|Traceback")

    def send(self, kind: str, what: Any) -> str:
        """One of them; returns the answer."""
        if kind in ("upload", "import"):
            try:
                file = self.visitor.upload(*what)
            except (Refused, httpx.HTTPStatusError) as error:
                if isinstance(error, httpx.HTTPStatusError) and error.response.status_code >= 500:
                    raise
                return str(error)
            if kind == "import":
                return self._said(lambda: self.visitor.clicks("import", import_file=file, import_name=""))
            return self._said(lambda: self.visitor.happens(self.visitor.event("upload", "change"), upload=file))
        if kind == "API":
            return self._posted(f"/gradio_api/call/{what[0]}", {"data": what[1]}, what[0])
        if kind == "spec":
            return self._posted("/gradio_api/call/generate", {"data": ["a b", what, 1, *SETTINGS]}, "generate")
        if kind == "event":
            asked = {"data": what[1], "fn_index": what[0], "event_data": what[2], "session_hash": "fuzz"}
            return self._posted("/gradio_api/queue/join", asked)
        if kind == "body":
            return self._text(self.http.post(f"/{what[0]}", content=what[1], headers=_AS_JSON))
        if kind == "/v1":
            asked = {"prompt": "a b", "max_tokens": 2, **what[1]}
            return self._text(self.http.post(f"/v1/{what[0]}", content=_body(asked), headers=_AS_JSON))
        if kind == "link":
            named = "&".join(f"{key}={_quoted(value)}" for key, value in what.items())
            self._text(self.http.get(f"/?{named[:20_000]}"))
            return self._said(lambda: self.visitor.opens(f"?{named[:20_000]}"))
        return self._text(self.http.get(f"/{what[0]}{_quoted(what[1])[:20_000]}{what[2]}"))

    def _posted(self, address: str, asked: Any, name: str | None = None) -> str:
        """A call's answer, and what comes of it."""
        answer = self.http.post(address, content=_body(asked), headers=_AS_JSON)
        text = self._text(answer)
        if answer.status_code != 200 or "event_id" not in answer.json():
            return text
        read = f"/gradio_api/call/{name}/{answer.json()['event_id']}" if name else "/gradio_api/queue/data"
        with self.http.stream("GET", read, params=None if name else {"session_hash": "fuzz"}) as stream:
            return text + "".join(stream.iter_text())

    @staticmethod
    def _said(ask: Callable[[], Any]) -> str:
        said = []
        try:
            said += [json.dumps(message) for message in ask()]
        except Refused as refused:
            said.append(str(refused))
        return "\n".join(said)

    @staticmethod
    def _text(answer: httpx.Response) -> str:
        if answer.status_code >= 500 and answer.status_code != 503:
            answer.raise_for_status()
        return answer.text

    def check(self, kind: str, what: Any) -> None:
        """Send one and note what is wrong."""
        report, begin = self.report, time.monotonic()
        told = f"{kind} {what!r:.300}"
        report.sent[kind] += 1
        try:
            text = self.send(kind, what)
        except (httpx.HTTPError, KeyError, StopIteration) as error:
            said = error.response.text[:200] if isinstance(error, httpx.HTTPStatusError) else ""
            report.failed.append(f"{told}: {error!r:.200} {said}")
        else:
            if "the server failed" in text.lower():
                report.failed.append(f"{told}: {text[-300:]}")
            if found := self._secret.search(text):
                report.leaked.append(f"{told}: {text[max(0, found.start() - 80) : found.end() + 80]}")
        seconds = time.monotonic() - begin
        report.longest = max(report.longest, seconds)
        if seconds > LONG_SECONDS:
            report.slow.append(f"{told}: {seconds:.0f} s")

    def check_many(self, kind: str, count: int, start: int, memory: Callable[[], float]) -> None:
        """Likewise, ``count`` of them, made from a seed; ``memory`` is the server's, in MiB."""

        def send(what: Any) -> None:
            self.report.memory.append(memory())
            self.check(kind, what)

        asked = settings(
            max_examples=count,
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        seed(start)(asked(given(INPUTS[kind])(send)))()


_AS_JSON = {"Content-Type": "application/json"}


def _body(value: Any) -> bytes:
    """JSON, with NaN, halves of characters and numbers of any length, which httpx would not send."""
    return _dumped(value).encode("utf-8", "surrogatepass")


def _quoted(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe="/")


def fuzz(folder: Path, inputs: int, start: int = 0, kinds: Sequence[str] = tuple(INPUTS)) -> Report:
    """Send so many, equally many of each kind.

    Args:
        folder: of the server's files.
        start: seed of Hypothesis.
    """
    (folder / "pool").mkdir()
    card, report = tiny.write_pool(folder / "pool"), Report()
    with serve(str(card), folder / "runs.db") as address:
        server = next(p for p in psutil.Process().children() if "app.py" in p.cmdline())
        with httpx.Client(base_url=address, timeout=3 * LONG_SECONDS) as http:
            fuzz = Fuzz(http, folder, report)
            for _ in fuzz.visitor.called("generate", "a b", "ucb", 4, *SETTINGS):
                pass  # what the first run loads is not growth
            for kind in kinds:
                fuzz.check_many(kind, inputs // len(kinds), start, lambda: server.memory_info().rss / 2**20)
                print(
                    f"{report.sent.total()} sent, {len(report.failed)} failed, {report.memory[-1]:.0f} MiB", flush=True
                )
        report.died = not server.is_running()
        if not report.died:
            report.memory.append(server.memory_info().rss / 2**20)
    report.tracebacks = (folder / "log").read_text(errors="replace").count("Traceback (most recent call last)")
    return report


def main(options: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("::")[0])
    parser.add_argument("--inputs", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", choices=INPUTS, default=tuple(INPUTS))
    parser.add_argument("--log", type=Path, help="where to keep the server's log")
    asked = parser.parse_args(options)
    with tempfile.TemporaryDirectory(prefix="multidraft-fuzz-") as folder:
        report = fuzz(Path(folder), asked.inputs, asked.seed, asked.kinds)
        if asked.log:
            asked.log.write_bytes(Path(folder, "log").read_bytes())
    print(report)
    return 0 if report.well else 1


if __name__ == "__main__":
    sys.exit(main())
