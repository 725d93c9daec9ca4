"""What Prometheus reads."""

import json
import re
from concurrent.futures import CancelledError
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.testclient import TestClient

from drafters.sampling import SamplingParams
from multidraft.bench.measure import Request
from multidraft.bench.suites import SuiteItem
from multidraft.service.batch import BatchJob
from multidraft.service.workbench import Workbench
from multidraft.serving.metrics import Metrics
from storage.records import Generation

DASHBOARD = Path(__file__).parents[3] / "docs" / "grafana.json"


@pytest.fixture
def scrape(workbench: Workbench):
    client = TestClient(Starlette(routes=[Metrics(workbench).route()]))

    def scrape() -> dict[tuple[str, tuple[str, ...]], float]:
        """Values by name and labels, those of all apart."""
        answer = client.get("/metrics")
        assert answer.headers["Content-Type"].startswith("text/plain")
        found = {}
        for family in text_string_to_metric_families(answer.text):
            for sample in family.samples:
                assert (sample.labels.pop("model_name"), sample.labels.pop("engine")) == ("tiny", "0")
                found[sample.name, tuple(sample.labels.values())] = sample.value
        return found

    return scrape


def decoded(workbench: Workbench, policy: str, tokens: int = 24) -> Generation:
    job = workbench.submit(Request("abc abd", policy, SamplingParams(tokens, draft_length=4)))
    assert job.wait(60)
    return job.run.generation


def test_rounds_are_counted_in_all_and_by_drafter(workbench: Workbench, scrape) -> None:
    out = decoded(workbench, "round-robin")
    told, drafted = scrape(), [r for r in out.rounds if r.drafted]
    prefix = "vllm:spec_decode_num"
    assert told[f"{prefix}_drafts_total", ()] == len(drafted) > 0
    assert told[f"{prefix}_draft_tokens_total", ()] == sum(len(r.drafted) for r in drafted)
    assert told[f"{prefix}_accepted_tokens_total", ()] == sum(r.accepted for r in drafted) > 0
    for position in range(4):
        count = sum(r.accepted > position for r in drafted)
        assert told.get((f"{prefix}_accepted_tokens_per_pos_total", (str(position),)), 0) == count
    prefix = "multidraft:spec_decode_num"
    for name in {r.drafter for r in drafted}:
        own = [r for r in drafted if r.drafter == name]
        assert told[f"{prefix}_drafts_total", (name,)] == len(own)
        assert told[f"{prefix}_draft_tokens_total", (name,)] == sum(len(r.drafted) for r in own)
        assert told[f"{prefix}_accepted_tokens_total", (name,)] == sum(r.accepted for r in own)
        assert told["multidraft:round_seconds_total", (name, "draft")] > 0
        if any(r.accepted for r in own):
            assert told[f"{prefix}_accepted_tokens_per_pos_total", (name, "0")] == sum(r.accepted > 0 for r in own)
    assert sum(value for (name, _), value in told.items() if name == "multidraft:rounds_total") == len(out.rounds)
    assert told["vllm:generation_tokens_total", ()] == 24, "the baseline is not counted"
    assert told["vllm:prompt_tokens_total", ()] == out.prompt_tokens


def test_texts_their_latencies_and_regret(workbench: Workbench, scrape) -> None:
    runs = [workbench.submit(Request("abc", p, SamplingParams(9, draft_length=4))) for p in ("ucb", "autoregressive")]
    assert all(job.wait(60) for job in runs)
    told = scrape()
    assert told["vllm:request_success_total", ("length",)] == 2
    for name in ("time_to_first_token", "e2e_request_latency", "request_queue_time", "request_time_per_output_token"):
        assert told[f"vllm:{name}_seconds_count", ()] == 2 and told[f"vllm:{name}_seconds_sum", ()] > 0
    regret = runs[0].run.scores.regret_rounds
    assert told["multidraft:scored_rounds_total", ()] - told["multidraft:best_drafter_rounds_total", ()] == regret
    assert told["vllm:num_requests_running", ()] == told["vllm:num_requests_waiting", ()] == 0
    assert told["multidraft:rounds_total", ("target",)] >= 9


def test_a_text_has_ended_for_its_client_before_it_is_scored(workbench: Workbench, scrape, monkeypatch) -> None:
    told = {}

    def acceptances(*_: object) -> None:
        told.update(scrape())
        raise CancelledError

    monkeypatch.setattr(workbench.pool, "acceptances", acceptances)
    out = decoded(workbench, "round-robin")
    assert told["vllm:request_success_total", ("length",)] == told["vllm:e2e_request_latency_seconds_count", ()] == 1
    assert told["vllm:prompt_tokens_total", ()] == out.prompt_tokens
    assert told["vllm:generation_tokens_total", ()] == 24


def test_why_texts_ended_is_said_in_the_words_of_vllm(workbench: Workbench, scrape, monkeypatch, gate) -> None:
    jobs = [workbench.submit(Request("abc", "ucb", SamplingParams(9, draft_length=4))) for _ in range(2)]
    assert gate.reached.wait(30)
    jobs[0].cancel()
    with monkeypatch.context() as broken:
        broken.setattr(workbench.pool.target, "score", lambda draft: 1 / 0)
        gate.open()
        assert all(job.wait(60) for job in jobs)
    workbench.pool.stop_ids = frozenset(range(workbench.pool.target.vocab_size))
    assert workbench.submit(Request("abc", "ucb", SamplingParams(9, draft_length=4))).wait(60)
    told = scrape()
    ends = {labels[0]: count for (name, labels), count in told.items() if name == "vllm:request_success_total"}
    assert ends == {"error": 1, "stop": 1, "abort": 1}


def test_texts_that_are_cancelled_before_their_first_turn_are_counted(workbench: Workbench, scrape, gate) -> None:
    jobs = [workbench.submit(Request("abc", "ucb", SamplingParams(9, draft_length=4))) for _ in range(3)]
    assert gate.reached.wait(30)
    for job in jobs[::-1]:
        job.cancel()
    gate.open()
    assert all(job.wait(60) for job in jobs)
    told = scrape()
    assert told["vllm:request_success_total", ("abort",)] == 3
    assert told["vllm:request_queue_time_seconds_count", ()] == 1, "the others never had a turn"
    assert told["vllm:prompt_tokens_total", ()] == jobs[0].run.generation.prompt_tokens


def test_texts_of_a_batch_that_ends_before_their_first_turn_are_counted(workbench: Workbench, scrape) -> None:
    items = [SuiteItem(str(n), text) for n, text in enumerate(("abc", "abd", "bcd", "acd"))]
    batch = BatchJob(workbench, items, ["ucb"], SamplingParams(9, draft_length=4), texts_at_once=2)
    workbench.observers.append(lambda text: text.watch(lambda: text.generation.rounds and batch.cancel()))
    assert workbench.jobs.submit(batch).wait(60)
    told = scrape()
    assert told["vllm:request_success_total", ("abort",)] == 4
    assert told["vllm:request_queue_time_seconds_count", ()] == 2


def test_jobs_are_told_apart_that_run_and_wait(workbench: Workbench, scrape, gate) -> None:
    jobs = [workbench.submit(Request("abc", "ucb", SamplingParams(4, draft_length=4))) for _ in range(3)]
    assert gate.reached.wait(30)
    told = scrape()
    assert (told["vllm:num_requests_running", ()], told["vllm:num_requests_waiting", ()]) == (1, 2)
    gate.open()
    assert all(job.wait(60) for job in jobs)


def test_the_dashboard_shows_what_there_is(workbench: Workbench, scrape) -> None:
    decoded(workbench, "round-robin")
    decoded(workbench, "autoregressive")
    served = {name for name, _ in scrape() if not name.endswith("_created")}
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    asked = {name for query in queries for name in re.findall(r"(?:vllm|multidraft):\w+", query)}
    assert len(panels) > 8 and asked <= served
    assert {name for name in served if name.startswith("multidraft:spec")} <= asked | {
        "multidraft:spec_decode_num_accepted_tokens_per_pos_total"
    }


def test_texts_of_a_batch_are_followed_while_they_are_decoded(workbench: Workbench, scrape) -> None:
    items = [SuiteItem(str(n), text) for n, text in enumerate(("abc", "abd", "bcd", "acd"))]
    batch = BatchJob(workbench, items, ["ucb"], SamplingParams(9, draft_length=4), texts_at_once=2)
    assert workbench.jobs.submit(batch).wait(60)
    told = scrape()
    names = "request_queue_time", "time_to_first_token", "e2e_request_latency", "request_time_per_output_token"
    assert [told[f"vllm:{name}_seconds_count", ()] for name in names] == [4] * 4
    queued, first, whole, each = (told[f"vllm:{name}_seconds_sum", ()] for name in names)
    assert 0 < queued < first < whole and whole - first == pytest.approx(each * 8)
    assert told["vllm:generation_tokens_total", ()] == 36
