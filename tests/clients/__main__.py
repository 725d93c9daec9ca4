"""Run the clients named on the command line, or all, against a server on the pocket pool, and compare what they print
with the server's history. ``make test-clients`` makes their environments first."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from multidraft.bench.suites import load_suite
from multidraft.training.pocket.corpus import FAMILIES
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
        (self.folder / f"{client}.log").write_text(done.stdout + done.stderr)
        assert done.returncode == 0, f"{client} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def runs(self) -> list[Run]:
        """The runs since the last time, all of which ended well."""
        idle = re.compile(r"^vllm:num_requests_running{.*} 0.0$", re.MULTILINE)
        while not idle.search(httpx.get(f"{self.address}metrics").text):
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


def check_lm_eval(bench: Bench) -> str:
    """lm-eval: two tasks of held-out arithmetic, one that generates and one that compares log-likelihoods. The scores
    with drafters must be those without, text by text."""
    rng, count = random.Random(7), AT_ONCE
    examples = [FAMILIES["math"].example(rng, "heldout") for _ in range(count)]
    rows = [
        {"question": one.prompt, "answers": [one.completion, other.completion]}
        for one, other in zip(examples, examples[1:] + examples[:1])
    ]
    (bench.folder / "lm-eval.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    _lm_eval_task(
        bench,
        "generated",
        output_type="generate_until",
        doc_to_target="{{answers[0]}}",
        generation_kwargs={"until": ["\n\n\n"], "max_gen_toks": 256, "temperature": 0},
        metric_list=[{"metric": "exact_match"}],
    )
    _lm_eval_task(
        bench,
        "chosen",
        output_type="multiple_choice",
        doc_to_choice="{{answers}}",
        doc_to_target=0,
        target_delimiter="",
        metric_list=[{"metric": "acc"}],
    )
    with_drafters, without = (_lm_eval(bench, *more) for more in ((), ("--gen_kwargs", "draft_length=0")))
    assert with_drafters == without, f"scores differ: {with_drafters['results']} with drafters, {without['results']}"
    runs = bench.runs()
    policies = Counter(run.generation.policy for run in runs)
    # A log-likelihood is asked for with one token to follow, under the usual policy, in both evaluations.
    assert policies == {"rate-hedge": count + 2 * 2 * count, "autoregressive": count}
    texts = {sample["resps"][0][0] for sample in with_drafters["samples"]["generated"]}
    assert texts == {run.generation.text for run in runs if run.params.max_new_tokens > 1}
    _, drafted, accepted = drafts(runs)
    return f"{len(runs)} requests, scores {with_drafters['results']}, acceptance rate {accepted / drafted:.4f}"


def _lm_eval_task(bench: Bench, name: str, **settings: Any) -> None:
    """Describe a task on the questions in the folder; its file is JSON, which YAML contains."""
    data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(bench.folder / "lm-eval.jsonl")}}}
    about = {"task": name, **data, "test_split": "test", "doc_to_text": "{{question}}", **settings}
    (bench.folder / f"{name}.yaml").write_text(json.dumps(about))


def _lm_eval(bench: Bench, *more: str) -> dict[str, Any]:
    """The scores of both tasks, and what they come from."""
    out = bench.folder / f"lm-eval-{len(list(bench.folder.glob('lm-eval-*')))}"
    model = f"model={POOL},base_url={bench.address}v1/completions,tokenizer={TARGET},num_concurrent={AT_ONCE}"
    bench.run(
        *("lm-eval", "lm-eval", "run", "--model", "local-completions", "--model_args", model, *more),
        *("--tasks", "generated,chosen", "--include_path", str(bench.folder), "--apply_chat_template"),
        *("--log_samples", "--output_path", str(out)),
        HF_HOME=str(bench.folder / "hub"),
    )
    (results,) = out.rglob("results_*.json")
    scores = json.loads(results.read_text())["results"]
    samples = {
        name: [json.loads(line) for line in next(out.rglob(f"samples_{name}_*.jsonl")).read_text().splitlines()]
        for name in scores
    }
    told = {"generated": "exact_match,none", "chosen": "acc,none"}
    return {
        "results": {name: scores[name][key] for name, key in told.items()},
        "samples": {name: [{"doc": s["doc"], "resps": s["resps"]} for s in all] for name, all in samples.items()},
    }


def check_trackio(bench: Bench) -> str:
    """Trackio: what its own storage holds after the history was sent. Its packages come after those of this
    environment, in which the command runs."""
    (site,) = (ROOT / ".clients" / "trackio" / "lib").glob("python*/site-packages")
    asked = {"prompt": "Add 2 and 3.", "max_tokens": 20, "temperature": 0}
    httpx.post(f"{bench.address}v1/completions", json=asked, timeout=60).raise_for_status()
    bench.runs()
    send = f"""import site, sys; site.addsitedir({str(site)!r}); sys.path.insert(0, {str(ROOT)!r})
from multidraft.__main__ import main
sys.exit(main(["trackio", "--db", {str(bench.history)!r}, "--project", "tried"]))"""
    read = """import json, sys; from trackio.sqlite_storage import SQLiteStorage
traces = [t for run in SQLiteStorage.get_runs("tried") for t in SQLiteStorage.get_traces("tried", run=run)]
print(json.dumps([[t["metadata"]["run"], len(t["spans"]), t["messages"][-1]["content"]] for t in traces]))"""
    folder = {"TRACKIO_DIR": str(bench.folder / "trackio")}
    env = {**os.environ, **QUIET, **folder}
    subprocess.run([sys.executable, "-c", send], cwd=bench.folder, env=env, check=True, timeout=600)
    traces = json.loads(bench.run("trackio", "python", "-c", read, **folder).splitlines()[-1])
    runs = recorded(bench.history)
    assert sorted(traces) == sorted([run.id, len(run.generation.rounds), run.generation.text] for run in runs)
    return f"{len(traces)} traces, {sum(spans for _, spans, _ in traces)} spans"


CHECKS: dict[str, Callable[[Bench], str]] = {
    "openai": check_openai,
    "aiperf": check_aiperf,
    "guidellm": check_guidellm,
    "lm-eval": check_lm_eval,
    "trackio": check_trackio,
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
