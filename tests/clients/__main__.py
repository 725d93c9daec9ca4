"""Run the clients named on the command line, or all, against a server on the pocket pool, and compare what they print
with the server's history. ``make test-clients`` makes their environments first."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import httpx

from multidraft.bench.suites import load_suite
from storage.run import Run
from tests.app import ROOT, serve
from tests.history import recorded

POOL, AT_ONCE = "pocket", 16
TARGET = ROOT / "drafters" / "pocket" / "target"
QUIET = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "COLUMNS": "160"}


class Bench:
    """A server, its history, and a folder for what clients write."""

    def __init__(self, address: str, history: Path):
        self.address, self.history, self.folder = address, history, history.parent
        self._known = 0

    def run(self, client: str, *command: str, sent: str = "", **variables: str) -> str:
        """What a client prints; it must not fail."""
        home = ROOT / ".clients" / client / "bin"
        done = subprocess.run(
            [home / command[0], *command[1:]],
            input=sent,
            cwd=self.folder,
            env={**os.environ, **QUIET, **variables, "PATH": f"{home}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"{client} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def runs(self) -> list[Run]:
        """The runs since the last time, all of which ended well."""
        while httpx.get(f"{self.address}metrics").text.count("vllm:num_requests_running 0.0") == 0:
            pass
        found = recorded(self.history)
        new, self._known = sorted(found, key=lambda run: run.id or 0)[self._known :], len(found)
        assert all(run.generation.status in ("completed", "stopped") for run in new)
        assert {run.origin.source for run in new} <= {"api"}
        return new


def drafts(runs: list[Run]) -> tuple[int, int, int]:
    """Drafts, drafted and accepted tokens."""
    rounds = [r for run in runs for r in run.generation.rounds if r.drafted]
    return len(rounds), sum(len(r.drafted) for r in rounds), sum(r.accepted for r in rounds)


def prompts(count: int, task: str | None = None) -> list[str]:
    """Of the bundled suite."""
    items = [item.prompt for item in load_suite(POOL).items if task in (None, item.task)]
    return [items[i % len(items)] for i in range(count)]


def check_openai(bench: Bench) -> str:
    """OpenAI's client: sixteen at once, half of them streamed."""
    python = {"OPENAI_BASE_URL": bench.address + "v1", "OPENAI_API_KEY": "none"}
    script = str(ROOT / "tests" / "clients" / "script.py")
    answers = json.loads(bench.run("openai", "python", script, sent=json.dumps(prompts(AT_ONCE)), **python))
    names = "num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens"
    told = tuple(sum(answer[name] for answer in answers) for name in names)
    runs = bench.runs()
    assert told == drafts(runs) and len(runs) == AT_ONCE
    assert sorted(answer["text"] for answer in answers) == sorted(run.generation.text for run in runs)
    return f"{AT_ONCE} answers, acceptance rate {told[2] / told[1]:.4f}"


def check_aiperf(bench: Bench) -> str:
    """AIPerf: its figures of single requests, and its report from the server's counters."""
    rows = [
        {
            "question_id": hashlib.md5(str(number).encode()).hexdigest(),
            "category": "math",
            "messages": [{"role": "user", "content": prompt}],
        }
        for number, prompt in enumerate(prompts(32, "math"))
    ]
    (bench.folder / "speed.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    artifacts = bench.folder / "aiperf" / "math"
    command = f"""aiperf profile --model {POOL} --url {bench.address} --endpoint-type chat --streaming
        --input-file speed.jsonl --custom-dataset-type speed-bench-math --concurrency {AT_ONCE} --request-count 32
        --tokenizer {TARGET} --use-server-token-count --extra-inputs temperature:0 --extra-inputs max_tokens:64
        --ui-type none --output-artifact-dir {artifacts}"""
    bench.run("aiperf", *command.split(), HF_HUB_OFFLINE="")  # offline it takes folders for names of repositories
    runs = bench.runs()
    report = json.loads((artifacts / "profile_export_aiperf.json").read_text())
    assert len(runs) == report["request_count"]["avg"] == 32 and not report["error_summary"]
    steps, drafted, accepted = drafts(runs)
    assert report["total_spec_decode_steps"]["avg"] == steps and report["total_draft_tokens"]["avg"] == drafted
    assert report["total_accepted_draft_tokens"]["avg"] == accepted
    close(report["spec_decode_overall_draft_acceptance_rate"]["avg"], 100 * accepted / drafted)
    close(report["spec_decode_token_weighted_acceptance_length"]["avg"], 1 + accepted / steps)
    bench.run("aiperf", "aiperf", "speed-bench-report", str(artifacts.parent), "--metric", "accept_rate")
    csv = (bench.folder / "speed_bench_report.csv").read_text().splitlines()
    close(float(csv[1].split(",")[1]), accepted / drafted, 0.005)  # two decimals
    return f"32 requests, acceptance rate {accepted / drafted:.4f}, length {1 + accepted / steps:.3f}; report: {csv[1]}"


def close(one: float, other: float, by: float = 1e-6) -> None:
    """Fail unless they are equal but for rounding."""
    assert abs(one - other) <= by, f"the client says {one}, the history {other}"


def check_guidellm(bench: Bench) -> str:
    """GuideLLM: sixteen streams at once."""
    rows = "\n".join(json.dumps({"prompt": prompt, "output_tokens_count": 48}) for prompt in prompts(48))
    (bench.folder / "guidellm.jsonl").write_text(rows + "\n")
    extras = json.dumps({"body": {"temperature": 0}})
    backend = (
        f'{{"kind": "openai_http", "target": "{bench.address.rstrip("/")}", "model": "{POOL}", "extras": {extras}}}'
    )
    bench.run(
        *("guidellm", "guidellm", "run", "--backend", backend, "--profile", f"kind=concurrent,streams={AT_ONCE}"),
        *("--data", "kind=json_file,path=guidellm.jsonl", "--constraint", "kind=max_requests,count=48"),
        *("--tokenizer", f"kind=huggingface_auto,model={TARGET}", "--output", "kind=json,path=guidellm.json"),
        "--disable-progress",
    )
    runs = bench.runs()
    report = json.loads((bench.folder / "guidellm.json").read_text())["benchmarks"][0]
    requests = report["requests"]
    assert len(requests["successful"]) == len(runs) == 48 and not requests["errored"]
    tokens = sum(request["output_metrics"]["text_tokens"] for request in requests["successful"])
    assert tokens == sum(len(run.generation.token_ids) for run in runs) == 48 * 48
    return f"48 requests, {tokens} tokens"


CHECKS: dict[str, Callable[[Bench], str]] = {
    "openai": check_openai,
    "aiperf": check_aiperf,
    "guidellm": check_guidellm,
}


def main() -> None:
    """Run the checks asked for; the status is 1 if one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=__doc__)
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=f"of {', '.join(CHECKS)}")
    parser.add_argument("--keep", type=Path, help="folder for what clients write; by default it goes")
    asked = parser.parse_args()
    failed = []
    with tempfile.TemporaryDirectory() as gone:
        folder = asked.keep or Path(gone)
        folder.mkdir(parents=True, exist_ok=True)
        with serve(POOL, folder / "runs.db") as address:
            bench = Bench(address, folder / "runs.db")
            for name in asked.clients or CHECKS:
                try:
                    print(f"{name}: {CHECKS[name](bench)}", flush=True)
                except AssertionError as error:
                    failed.append(name)
                    print(f"{name}: {error}", flush=True)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
