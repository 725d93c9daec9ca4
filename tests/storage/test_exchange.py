"""Runs written for other tools, and read from their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from drafters.errors import UserError
from storage import aggregates, queries, ranking
from storage import store as store_module
from storage.exchange import FORMS, export_form
from storage.export import EXPORTS
from storage.filters import ALL, Filter
from storage.imports import import_file
from storage.problems import StorageError
from storage.run import Run
from storage.store import Store
from tests.runs import make_run

ANSWER: dict[str, Any] = {
    "question_id": 81,
    "category": "writing",
    "answer_id": "x",
    "model_id": "vicuna-7b-v1.3-eagle3",
    "choices": [
        {
            "index": 0,
            "turns": ["A trip", "Shorter"],
            "decoding_steps": [3, 2],
            "new_tokens": [9, 4],
            "wall_time": [0.5, 0.25],
            "accept_lengths": [4, 4, 1, 3, 1],
        }
    ],
    "tstamp": 1700000000.5,
}
ACCEPTANCE: dict[str, Any] = {
    "Request_AL": {"0": {"0": 3.0}, "1": {"0": 2.0}},
    "Average_AL": 2.5,
    "Acceptance_Length_Histogram": {"1": 2, "3": 4},
    "Conditional_Acceptance_Rate": {"1": 1.0, "3": 0.67},
}
MEAN = {"min": "1.0", "max": "9.0", "mean": "6.5000", "std": "1.0", "quantiles": {"0.5": "6.0"}}
TIMING: dict[str, Any] = {"Output TPS": 20.0, "E2E Request Time": MEAN, "Number of Output Tokens": MEAN}
RECORD: dict[str, Any] = {
    "metadata": {
        "session_num": 3,
        "conversation_id": "c3",
        "turn_index": 0,
        "request_start_ns": 1700000000000000000,
        "request_end_ns": 1700000002000000000,
        "worker_id": "w",
        "record_processor_id": "r",
        "benchmark_phase": "profiling",
    },
    "metrics": {
        "request_latency": {"value": 2000.0, "unit": "ms"},
        "input_sequence_length": {"value": 12, "unit": "tokens"},
        "output_sequence_length": {"value": 20, "unit": "tokens"},
        "spec_decode_draft_tokens": {"value": 30, "unit": "tokens"},
        "spec_decode_accepted_draft_tokens": {"value": 15, "unit": "tokens"},
        "http_req_chunks": {"value": [1, 2], "unit": "count"},
    },
    "error": None,
}
ENDED_BY_A_DRAFT = {
    **RECORD,
    "metrics": RECORD["metrics"]
    | {
        "output_sequence_length": {"value": 18, "unit": "tokens"},
        "spec_decode_steps": {"value": 4, "unit": "count"},
    },
}
SUMMARY: dict[str, Any] = {
    "schema_version": "1.4",
    "aiperf_version": "0.13.0",
    "request_count": {"unit": "requests", "avg": 4.0},
    "request_latency": {"unit": "ms", "avg": 500.0, "p50": 400.0},
    "total_osl": {"unit": "tokens", "avg": 40.0},
    "total_draft_tokens": {"unit": "tokens", "avg": 60.0},
    "total_accepted_draft_tokens": {"unit": "tokens", "avg": 30.0},
    "input_config": {"endpoint": {}},
}


def lines(*objects: Any) -> str:
    return "".join(json.dumps(each) + "\n" for each in objects)


def imported(store: Store, folder: Path, file_name: str, content: str, name: str = "") -> list[Run]:
    file = folder / file_name
    file.write_text(content)
    before = queries.count(store.path) if store.flush() else 0
    count = import_file(file, store, name)
    runs = [queries.run(store.path, id) for id in range(before + 1, before + count + 1)]
    return [run for run in runs if run]


@pytest.mark.parametrize(
    ("name", "content", "source", "policy", "figures"),
    [
        ("answers.jsonl", lines(ANSWER), "spec-bench", "vicuna-7b-v1.3-eagle3", (13, 5, None, None, 0.75)),
        ("acceptance_rate.json", json.dumps([ACCEPTANCE]), "specdec_bench", "specdec_bench", (14, 6, None, None, None)),
        ("timing.json", json.dumps([TIMING]), "specdec_bench", "specdec_bench", (6, 0, None, None, 6.5)),
        ("profile_export.jsonl", lines(RECORD), "aiperf", "aiperf", (20, 5, 30, 15, 2.0)),
        ("profile_export.jsonl", lines(ENDED_BY_A_DRAFT), "aiperf", "aiperf", (18, 4, 30, 15, 2.0)),
        ("profile_export_aiperf.json", json.dumps(SUMMARY), "aiperf", "aiperf", (40, 10, 60, 30, 2.0)),
        (
            "profile_export_aiperf.json",
            json.dumps({**SUMMARY, "total_spec_decode_steps": {"unit": "count", "avg": 12.0}}),
            "aiperf",
            "aiperf",
            (40, 12, 60, 30, 2.0),
        ),
    ],
)
def test_each_file_becomes_runs_with_the_figures_it_tells(
    store: Store, tmp_path: Path, name: str, content: str, source: str, policy: str, figures: tuple[Any, ...]
) -> None:
    (run,) = imported(store, tmp_path, name, content)
    assert run.reported and tuple(vars(run.reported).values()) == figures
    assert (run.origin.source, run.generation.policy, run.generation.rounds) == (source, policy, [])
    values = run.to_json()
    tokens, rounds = figures[:2]
    assert values["output_tokens"] == tokens and values["request_seconds"] == figures[-1]
    assert values["mean_accepted_tokens"] == (tokens / rounds if rounds else None)
    unknown = ("temperature", "seed", "tokens_per_second", "decode_seconds", "verify_seconds", "hardware", "card_hash")
    assert all(values[key] is None for key in unknown)
    assert Run.from_json(values).to_json() == values


def test_what_a_file_says_beside_its_figures_is_kept(store: Store, tmp_path: Path) -> None:
    (run,) = imported(store, tmp_path, "a.jsonl", lines(ANSWER))
    assert run.origin.task == "writing" and run.generation.text == "A trip\n\nShorter"
    assert (run.origin.suite or "").startswith("a.jsonl #") and run.origin.batch_id is None
    assert run.created_at.timestamp() == ANSWER["tstamp"] - 0.75, "which it ended at"
    assert run.generation.prompt == "Question 81"
    (run,) = imported(store, tmp_path, "b.jsonl", lines(RECORD), name="SGLang, EAGLE-3")
    assert run.generation.policy == "SGLang, EAGLE-3" and run.generation.prompt_tokens == 12
    assert run.to_json()["acceptance_rate"] == 0.5


def test_half_a_character_in_a_prompt_is_kept_as_unknown(store: Store, tmp_path: Path) -> None:
    (run,) = imported(store, tmp_path, "a.jsonl", lines({**ANSWER, "question_id": "81 \ud83d"}))
    assert run.generation.prompt == "Question 81 \N{REPLACEMENT CHARACTER}"


def test_imported_runs_stay_out_of_figures_that_need_rounds(store: Store, tmp_path: Path) -> None:
    more = [{**ANSWER, "question_id": number} for number in range(5)]
    imported(store, tmp_path, "a.jsonl", lines(*more))
    (line,) = ranking.policy_summary(store.path).to_dict("records")
    assert line["runs"] == 5 and line["mean_accepted_tokens"] == pytest.approx(13 / 5)
    assert line["mean_accepted_tokens_low"] == line["mean_accepted_tokens_high"]
    for figure in ("speedup", "request_speedup", "acceptance_rate", "regret_rounds", "best_arm_ratio"):
        assert line[f"{figure}_runs"] == 0
    for query in (
        aggregates.time_by_phase,
        aggregates.latency,
        aggregates.regret_over_time,
        aggregates.drafter_by_task,
    ):
        assert query(store.path).empty
    assert aggregates.filters(store.path)["source"] == ["spec-bench"]
    assert aggregates.filters(store.path)["hardware"] == []


@pytest.mark.parametrize("form", FORMS)
def test_what_is_written_can_be_read_with_the_same_figures(filled: Path, tmp_path: Path, form: str) -> None:
    archive = tmp_path / "runs.zip"
    assert EXPORTS[f"{form}.zip"](filled, Filter(policy=("ucb",), pool="pocket", task=("math",)), archive) == 2
    with ZipFile(archive) as opened:
        names = opened.namelist()
        opened.extractall(tmp_path)
    expected = {"spec-bench": (9, 3, 0.033), "aiperf": (9, 3, 0.033), "specdec_bench": (12, 4, None)}[form]
    with Store(tmp_path / "others.db") as store:
        assert import_file(tmp_path / names[0], store) == (1 if form == "specdec_bench" else 2)
        run = queries.run(store.path, 1)
        assert run and run.reported
        # What the tools call acceptance lengths leaves the last step out.
        assert (run.reported.output_tokens, run.reported.round_count) == expected[:2]
        assert run.reported.request_seconds == (pytest.approx(expected[2]) if expected[2] else None)
        if form == "specdec_bench":
            content = json.loads((tmp_path / names[0]).read_text())[0]
            assert content["Average_AL"] == 3 and content["Category_AL"] == {"math": 3}
            assert content["Joint_Acceptance_Rate"] == content["Conditional_Acceptance_Rate"] == {"3": 1}
            assert import_file(tmp_path / names[1], store) == 1
            timing = json.loads((tmp_path / names[1]).read_text())[0]
            assert timing["Output TPS"] == pytest.approx(9 / 0.033)
            assert timing["TTFT Time"]["mean"] == "0.0130"


def test_rounds_without_drafts_are_written_for_aiperf(store: Store, tmp_path: Path) -> None:
    from tests.runs import make_round, make_run

    plain = [make_round(n, arm=None, drafter=None, drafted=(), accepted=0, tokens=(7,), own=7) for n in range(3)]
    store.add(make_run(rounds=plain))
    assert store.flush()
    EXPORTS["aiperf.zip"](store.path, Filter(), tmp_path / "runs.zip")
    with ZipFile(tmp_path / "runs.zip") as written:
        (name,) = written.namelist()
        metrics = json.loads(written.read(name))["metrics"]
        content = written.read(name).decode()
    assert not {"spec_decode_acceptance_length", "spec_decode_draft_acceptance_rate"} & metrics.keys()
    (run,) = imported(store, tmp_path, "profile_export.jsonl", content)
    assert run.reported and (run.reported.output_tokens, run.reported.round_count) == (3, 3)


def test_conditional_acceptance_is_that_of_one_more_token(store: Store, path: Path, tmp_path: Path) -> None:
    from tests.runs import make_round, make_run

    def emitting(index: int, count: int) -> Any:
        tokens = tuple(range(count))
        return make_round(index, tokens=tokens, accepted=count - 1, pieces=("a",) * count, text="a" * count)

    store.add(make_run(rounds=[emitting(i, n) for i, n in enumerate([1, 3, 1, 2, 3, 2])]))
    assert store.flush()
    EXPORTS["specdec_bench.zip"](path, Filter(), tmp_path / "runs.zip")
    with ZipFile(tmp_path / "runs.zip") as opened:
        found = json.loads(opened.read("pocket-ucb-beta=0.1/acceptance_rate.json"))[0]
    assert found["Acceptance_Length_Histogram"] == {"1": 1, "2": 1, "3": 2}, (
        "the prefill and the last step are left out"
    )
    assert found["Joint_Acceptance_Rate"] == {"1": 1.0, "2": 0.75, "3": 0.5}
    assert found["Conditional_Acceptance_Rate"] == pytest.approx({"1": 1.0, "2": 0.75, "3": 2 / 3})


def test_runs_without_rounds_are_not_written(store: Store, tmp_path: Path) -> None:
    imported(store, tmp_path, "a.jsonl", lines(ANSWER))
    with pytest.raises(UserError, match="nothing to export"):
        EXPORTS["aiperf.zip"](store.path, Filter(), tmp_path / "runs.zip")
    assert not (tmp_path / "runs.zip").exists()


BAD = [
    ("a.jsonl", "{\n", "a.jsonl, line 1: not valid JSON"),
    ("a.json", "[1]", "a.json, entry 1: none of the files that can be read"),
    ("a.jsonl", '{"prompt": "x"}', "a.jsonl, line 1: none of the files"),
    ("r.json", '{"Requests": {}}', "its fields are Requests, but none of .*, Acceptance_Length_Histogram, "),
    ("r.json", '{"Request_AL": {}}', "r.json: Acceptance_Length_Histogram is missing; nothing was imported"),
    *(
        ("r.json", json.dumps([{**ACCEPTANCE, field: value}]), f"r.json, entry 1: {said}")
        for field, value, said in [
            ("Request_AL", {"0": {"0": "zwei"}}, "Request_AL.0.0: input should be a valid number, .* got 'zwei'"),
            ("Request_AL", {"0": {"0": float("nan")}}, "Request_AL.0.0: input should be a finite number"),
            ("Average_AL", -1, "Average_AL: input should be greater than or equal to 0, got -1"),
            ("Conditional_Acceptance_Rate", "oops", "Conditional_Acceptance_Rate: input should be .*, got 'oops'"),
            ("Joint_Acceptance_Rate", {"1": 1.5}, "Joint_Acceptance_Rate.1: input should be less than"),
            ("Acceptance_Length_Histogram", {"0": 5}, "Acceptance_Length_Histogram.0: input should be greater than"),
            ("Acceptance_Length_Histogram", {"two": 5}, "Acceptance_Length_Histogram.two: input should be a valid int"),
        ]
    ),
    ("r.zip", "", "r.zip is an archive: unpack it and import the files in it; name"),
    (
        "a.jsonl",
        lines(ANSWER, {**ANSWER, "choices": [{"accept_lengths": [-1]}]}),
        "line 2: choices.0.turns is missing",
    ),
    ("a.jsonl", lines({**ANSWER, "choices": [{**ANSWER["choices"][0], "new_tokens": [-1]}]}), "choices.0.new_tokens.0"),
    ("a.jsonl", lines({**ANSWER, "tstamp": 1e300}), "a.jsonl, line 1: "),
    ("p.jsonl", lines({**RECORD, "metrics": {}}), "metrics.output_sequence_length is missing"),
    ("p.jsonl", lines({**RECORD, "error": {"type": "Timeout"}}), "p.jsonl holds no finished request"),
    ("a.jsonl", lines({**ANSWER, "choices": [{**ANSWER["choices"][0], "new_tokens": [2**63]}]}), "less than or equal"),
    ("a.jsonl", lines({**ANSWER, "choices": [{**ANSWER["choices"][0], "new_tokens": [2**61] * 3}]}), "add up to more"),
    ("t.json", json.dumps([{**TIMING, "Output TPS": "fast"}]), "t.json, entry 1: Output TPS: input should be"),
    ("e.jsonl", "", "e.jsonl holds no finished request"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD)
def test_a_bad_file_is_refused_as_a_whole(store: Store, tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(UserError, match=message.replace("[", r"\[")):
        imported(store, tmp_path, name, content)
    assert store.flush() and not queries.count(store.path)


def test_files_that_cannot_be_read(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        import_file(tmp_path / "missing.json", store)
    (tmp_path / "picture.json").write_bytes(b"\xff\xd8\xff")
    with pytest.raises(UserError, match="not UTF-8"):
        import_file(tmp_path / "picture.json", store)
    monkeypatch.setattr("storage.imports.MAX_BYTES", 10)
    with pytest.raises(UserError, match="split the file"):
        imported(store, tmp_path, "a.jsonl", lines(ANSWER))


def test_a_file_is_imported_once(store: Store, tmp_path: Path) -> None:
    imported(store, tmp_path, "a.jsonl", lines(ANSWER))
    with pytest.raises(UserError, match="imported before"):
        imported(store, tmp_path, "copy.jsonl", lines(ANSWER))
    with pytest.raises(UserError, match=r"the history has it as a.jsonl #\w+, by 'vicuna-7b-v1.3-eagle3'"):
        import_file(tmp_path / "copy.jsonl", store, "another name")
    assert queries.count(store.path) == 1


def test_a_failure_midway_imports_nothing(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row_of, rows = store_module.run_row, []

    def broken(values: Any) -> Any:
        rows.append(row_of(values))
        return rows[-1] if len(rows) <= 700 else 1 / 0

    monkeypatch.setattr(store_module, "run_row", broken)
    with pytest.raises(StorageError, match="could not be stored"):
        imported(store, tmp_path, "a.jsonl", lines(*[ANSWER] * 800))
    assert queries.count(store.path) == 0


def test_a_history_that_cannot_be_written(path: Path, tmp_path: Path) -> None:
    path.mkdir()
    file = tmp_path / "a.jsonl"
    file.write_text(lines(ANSWER))
    with Store(path, busy_seconds=0.05, retry_seconds=0.05) as store, pytest.raises(StorageError, match="is a folder"):
        import_file(file, store)


def test_texts_decoded_beside_others_and_sampled_ones_stand_apart(store: Store, tmp_path: Path) -> None:
    store.add(make_run(seed=1), make_run(seed=2, streams=2), make_run(seed=3, temperature=0.8))
    assert store.flush()
    for form, count in (("spec-bench", 2), ("aiperf", 2), ("specdec_bench", 3)):
        file = tmp_path / f"{form}.zip"
        assert export_form(form, store.path, ALL, file) == count
        apart = {"temperature-0.8" in name for name in ZipFile(file).namelist()}
        assert apart == {True, False}
    with ZipFile(tmp_path / "aiperf.zip") as written:
        (greedy,) = (name for name in written.namelist() if "temperature" not in name)
        (line,) = map(json.loads, written.read(greedy).splitlines())
    run = queries.run(store.path, 1)
    assert run and line["metadata"]["request_start_ns"] / 1e9 == pytest.approx(run.created_at.timestamp())
