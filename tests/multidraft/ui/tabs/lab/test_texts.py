"""What is chosen in the Lab, as the address has it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import numpy as np

from drafters.base import Acceptances
from multidraft.service.lab import LabWork
from multidraft.ui import example
from multidraft.ui.example import FIRST
from multidraft.ui.tabs.lab.texts import ALL_SUITES, Asked, TextChoice, restored
from storage.store import Store
from tests.multidraft.ui.tabs.visits import visit
from tests.runs import make_run

TABLE = Acceptances(*np.zeros((3, 2, 6), dtype=int))


def choice_of(path: Path) -> TextChoice:
    workbench = SimpleNamespace(store=SimpleNamespace(path=path), recorded_costs=None)
    choice = TextChoice(LabWork(workbench))
    with gr.Blocks():
        choice.empty, choice.inside = gr.HTML(), gr.Column()
        choice.build()
    return choice


def test_the_address_has_what_was_chosen_and_nonsense_in_it_is_passed_over() -> None:
    def of(query: str) -> Any:
        return restored(visit(query))

    query = "lab_suite=sums&lab_task=a&lab_task=b&lab_batch=c&lab_newest=7&lab_policy=ucb:beta=0.1"
    bench, suite, tasks, batch, newest, policies = of(f"lab_bench=x&{query}")
    assert bench.value == "x" and suite.value == "sums" and tasks.value == ["a", "b"] and batch.value == "c"
    assert newest == 7 and policies == ["ucb:beta=0.1"]
    assert of("lab_newest=-1&suite=x") == of("") == (gr.skip(),) * 6


def test_prompts_draft_lengths_and_what_is_left_out_are_told(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as store:
        for prompt, length in (("a", 12), ("b", 12), ("a", 4)):
            store.add(make_run(prompt=prompt, draft_length=length, acceptance=TABLE))
    bench = "c0ffee\nCPU\nfloat32"
    said = choice_of(path).describe(bench, ALL_SUITES, [], "", 50, None)
    assert "3 texts of 2 prompts, 18 tokens, recorded with draft lengths 4 and 12; each text counts once" in said
    assert "left out" not in said
    said = choice_of(path).describe(bench, ALL_SUITES, [], "", 1, None)
    assert "recorded with draft length 4; " in said and "2 older texts left out: raise Newest texts" in said


def test_the_texts_may_be_those_of_one_batch(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as store:
        for batch in ("a", "b", None):
            store.add(make_run(prompt=f"of {batch}", batch_id=batch, source="batch", acceptance=TABLE))
        store.add(make_run(prompt="x", batch_id="c", source="batch", hardware="GPU", acceptance=TABLE))
    choice = choice_of(path)
    shown = choice.refresh(None, ALL_SUITES, [], "a", 50, None)  # as an address names it
    bench, batches = (shown[choice.fields[place]] for place in (0, 3))
    assert {id for _, id in batches.choices} == {"", "a", "b"} and bench.value == "c0ffee\nCPU\nfloat32"
    assert "value" not in batches.constructor_args
    assert "1 text of 1 prompt" in choice.describe(bench.value, ALL_SUITES, [], "a", 50, None)
    assert choice.refresh(bench.value, ALL_SUITES, [], "c", 50, None)[choice.fields[3]].value == "", "other hardware"


def test_examples_are_replayed_where_the_history_has_nothing_and_where_they_are_asked_for(
    tmp_path: Path, monkeypatch
) -> None:
    own, examples = tmp_path / "runs.db", tmp_path / "example.db"
    monkeypatch.setattr(example, "path", lambda: examples)
    with Store(examples) as store:
        store.add(make_run(id=FIRST, batch_id="e", source="bench", acceptance=TABLE))
    with Store(own) as store:
        store.add(make_run(policy="autoregressive", batch_id="plain", source="bench"))
        assert store.flush()
        choice = choice_of(own)
        key = choice.refresh(None, ALL_SUITES, [], "", 50, None)[choice.fields[0]].value
        assert choice.work(Asked(key, ALL_SUITES, [], "", 50, None)).path == examples
        assert "Recorded examples, not this server" in choice.describe(key, ALL_SUITES, [], "", 50, None)
        store.add(make_run(batch_id="b", source="bench", acceptance=TABLE))
    bench = choice.refresh(None, ALL_SUITES, [], "", 50, None)[choice.fields[0]]
    assert [label.startswith("Recorded examples: ") for label, _ in bench.choices] == [False, True]
    assert choice.work(Asked(bench.value, ALL_SUITES, [], "", 50, None)).path == own
    for batch, run in (("e", None), ("", FIRST)):
        asked = Asked(
            choice.refresh(None, ALL_SUITES, [], batch, 50, run)[choice.fields[0]].value, "", [], batch, 50, run
        )
        assert asked.bench == key and choice.work(asked).path == examples
    said = choice.describe(bench.value, ALL_SUITES, [], "plain", 50, None)
    assert "None of its runs can be replayed" in said and "without drafters" in said


def test_other_pools_and_several_versions_are_told(tmp_path: Path) -> None:
    with Store(path := tmp_path / "runs.db") as store:
        for prompt, changes in (("a", {"card_hash": "older"}), ("b", {"version": "1.1"}), ("c", {})):
            store.add(make_run(prompt=prompt, acceptance=TABLE, batch_id=prompt, source="bench", **changes))
    choice = choice_of(path)
    shown = choice.refresh(None, ALL_SUITES, [], "", 50, None)
    assert [label.endswith(("1.0", "1.1")) for label, id in shown[choice.fields[3]].choices if id] == [True, True]
    said = choice.describe(shown[choice.fields[0]].value, ALL_SUITES, [], "", 50, None)
    assert "other pools or machines too (1)" in said and "versions 1.0 and 1.1; choose" in said
