"""Prompts to distil from: forms, tasks, templates, what is held out, data sets of the Hub."""

import json

import huggingface_hub
import pandas
import pytest

from drafters.errors import TrainingError
from multidraft.bench.suites import item_of
from multidraft.training.prompts import adapter, choose, dataset_files, read_tasks, read_templates, task_name


@pytest.fixture
def write(tmp_path):
    def make(name, *rows):
        path = tmp_path / name
        path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
        return str(path)

    return make


@pytest.mark.parametrize(
    ("row", "prompt"),
    [
        ({"prompt": "p", "question": "q"}, "p"),
        ({"question": "q", "answer": "a"}, "q"),
        ({"instruction": "i", "input": "", "output": "o"}, "i"),
        ({"instruction": "i", "input": "text", "output": "o"}, "i\n\ntext"),
        ({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}, "s\n\nu"),
        ({"conversations": [{"from": "human", "value": "h"}, {"from": "gpt", "value": "g"}]}, "h"),
        ({"prompt": [{"role": "user", "content": "u"}]}, "u"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, None),
        ({"messages": 5, "question": None}, None),
        ({"turns": ["one", "two"], "prompt": None}, "one"),
        ({"turns": '["one", "two"]'}, "one"),
        ({"Question ": "one", "Answer": "2"}, "one"),
        ({"prompt": "one", "Prompt": "two"}, "one"),
    ],
)
def test_rows_of_data_sets(row, prompt):
    assert getattr(item_of(adapter(None)(row), 1), "prompt", None) == prompt


def test_the_column_that_one_names_comes_first(write):
    file = write("a.csv", "prompt,body", "not this,one", "nor this,two", "nor,three")
    tasks = read_tasks([file], column="body")
    assert sorted(tasks["a"].train + tasks["a"].heldout) == ["one", "three", "two"]
    assert item_of(adapter("Body ")({"body": "this"}), 1).prompt == "this"
    assert item_of(adapter("turns")({"Prompt": "not this", "turns": ["this"]}), 1).prompt == "this"
    with pytest.raises(TrainingError, match=r"a.csv holds no prompt.*by --column nothing"):
        read_tasks([file], column="nothing")


def test_tasks_come_from_the_source_the_row_or_the_file(write):
    bench = write("bench.jsonl", *({"turns": [f"{t} {i}"], "category": t} for t in ("Math!", "code") for i in range(3)))
    plain = write("letters.txt", "one", "two")
    named = write("any.jsonl", *({"question": f"q{i}", "task": "ignored"} for i in range(2)))
    tasks = read_tasks([bench, plain, f"german={named}"])
    assert {name: len(t.train) + len(t.heldout) for name, t in tasks.items()} == {
        "math": 3,
        "code": 3,
        "letters": 2,
        "german": 2,
    }
    assert list(read_tasks([bench, plain], only=["letters", "Math"])) == ["letters", "math"]


def test_templates_and_limits(write):
    file = write("de.txt", *(f"Satz {i}" for i in range(30)))
    templates = read_templates(["de=Translate:\\n{prompt}"])
    tasks = read_tasks([file], templates=templates, limit=20, heldout=0.25)
    assert len(tasks["de"].train) == 15 and len(tasks["de"].heldout) == 5
    assert all(prompt.startswith("Translate:\nSatz ") for prompt in tasks["de"].train)


def test_what_is_held_out_stays_so_and_is_never_trained_on(write):
    few = [f"prompt {i}" for i in range(40)]
    first = read_tasks([write("a.txt", *few)])["a"]
    assert not set(first.train) & set(first.heldout) and len(first.heldout) == 4
    assert read_tasks([write("a.txt", *reversed(few), *few)])["a"] == first  # neither order nor repetition matters
    twice = read_tasks([write("a.txt", *few), write("b.txt", *few, "x", "y")])
    assert twice["a"] == first and sorted(twice["b"].train + twice["b"].heldout) == ["x", "y"]


@pytest.mark.parametrize(("text", "name"), [("Math Reasoning", "math-reasoning"), ("_x.1_", "x.1"), ("DE→EN", "de-en")])
def test_names_of_tasks(text, name):
    assert task_name(text) == name


@pytest.mark.parametrize(("text", "message"), [("数学", "no letter of a-z"), ("General", "means something else")])
def test_names_that_no_drafter_can_have(text, message):
    with pytest.raises(TrainingError, match=message):
        task_name(text)


def test_bad_sources_are_named(write, tmp_path):
    for source, message in [
        ("nowhere.txt", "there is no file nowhere.txt"),
        ("=x.txt", "should be TASK=FILE"),
        (str(tmp_path), "is a folder"),
        (write("bad.jsonl", {"text": "?"}), "needs 'prompt'.*--column"),
        (write("empty.txt"), "is empty"),
    ]:
        with pytest.raises(TrainingError, match=message):
            read_tasks([source])


def test_lines_left_out_are_told(write, capsys):
    read_tasks([write("a.jsonl", {"prompt": "a"}, "{", {"prompt": "b"}, *["[]"] * 4)])
    lines = capsys.readouterr().out.splitlines()
    assert "line 2: not valid JSON" in lines[0] and lines[-1] == "a.jsonl: 2 more left out"


@pytest.fixture
def hub(monkeypatch, write):
    """A data set of the Hub: its files, and what was fetched."""
    fetched = []

    def download(name, file, repo_type, revision):
        fetched.append((name, file, repo_type, revision))
        return write(file.replace("/", "-"), *({"question": f"{file} {i}"} for i in range(3)))

    def files(name, repo_type, revision):
        if name == "no/such":
            raise ValueError("404: no such repository.\nmore")
        return [
            "README.md",
            ".cache/x.jsonl",
            "main/train-0.jsonl",
            "main/train-1.jsonl",
            "main/test.jsonl",
            "a.parquet",
        ]

    monkeypatch.setattr(huggingface_hub, "list_repo_files", files)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return fetched


def test_a_data_set_of_the_hub(hub):
    tasks = read_tasks(["math=org/maths@abc"])
    assert len(tasks["math"].train) + len(tasks["math"].heldout) == 6
    assert hub == [("org/maths", f"main/train-{i}.jsonl", "dataset", "abc") for i in (0, 1)]
    hub.clear()
    dataset_files("org/maths:main/test*")
    assert hub == [("org/maths", "main/test.jsonl", "dataset", None)]


def test_data_sets_that_cannot_be_read(hub):
    with pytest.raises(TrainingError, match="has no file like 'x/\\*' that can be read"):
        dataset_files("org/maths:x/*")
    with pytest.raises(
        TrainingError, match=r"cannot fetch the data set no/such from the Hub: 404: no such repository\."
    ):
        dataset_files("no/such")


def test_which_files_of_a_data_set_are_taken():
    assert choose(["data/train-0.parquet", "data/test-0.parquet", "dataset_infos.json"], None) == [
        "data/train-0.parquet"
    ]
    assert choose(["b.csv", "a.csv"], None) == ["a.csv", "b.csv"]
    assert choose(["README.md"], None) == []


def test_parquet_is_read(tmp_path, write):
    file = tmp_path / "maths.parquet"
    pandas.DataFrame({"question": ["a", "b"], "answer": [1, 2]}).to_parquet(file)
    tasks = read_tasks([str(file)])
    assert sorted(tasks["maths"].train + tasks["maths"].heldout) == ["a", "b"]
    with pytest.raises(TrainingError, match=r"cannot read .*sums\.parquet"):
        read_tasks([write("sums.parquet", "?")])
