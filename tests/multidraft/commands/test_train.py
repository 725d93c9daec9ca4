"""``train`` as a whole, at a small scale: from prompts to a pool that drafts better than before."""

import errno
import json
import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml

import multidraft as md
import multidraft.commands.train as train_command
import multidraft.training.answers as answers
import multidraft.training.plan as plan_module
import multidraft.training.publish as publish
from multidraft.__main__ import main
from multidraft.bench.inspect import accepted_by_task
from multidraft.bench.suites import SuiteItem
from tests import tiny
from tests.multidraft.training.targets import write_prompts, write_start, write_target

QUICK = "--temperatures 0 0.7 --max-new-tokens 24 --batch-tokens 512 --heldout 0.2 --evaluate 2".split()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    write_target(folder / "target")
    write_target(folder / "deep", layers=6)
    write_start(folder / "start")
    return folder


@pytest.fixture(scope="module")
def data(made):
    return write_prompts(made)


def train(made, data, out, *more, target="target"):
    return main(["train", "--target", str(made / target), "--data", *data, "--out", str(out), *QUICK, *more])


def start_from(made):
    return ["--drafter", str(made / "start"), "--lr", "0.01"]


def accepted(folder: Path) -> dict[str, dict[str, float]]:
    """Tokens a round on the held-out prompt of each task that the card shows, and on others never trained on."""
    pool = md.load_pool(folder)
    items = [SuiteItem(task, prompt, task) for task, prompt in pool.examples]
    items += [SuiteItem("x", f"abc{text}", "letters") for text in tiny.texts(4, seed=77, shortest=6)]
    items += [SuiteItem("x", f"ihg{text}", "words") for text in tiny.texts(4, seed=78, shortest=6)]
    return accepted_by_task(pool, items, md.SamplingParams(max_new_tokens=24, draft_length=6))


def test_small_language_models_from_prompts_to_a_pool(made, data, tmp_path, capsys):
    assert train(made, data, tmp_path / "before", *start_from(made), "--epochs", "0.01") == 0
    shown = capsys.readouterr().out
    assert "hint: no drafter has more tokens accepted than before its training. Train longer" in shown
    assert "batch 1 of 4, " in shown and "batch 4 of 4, " in shown
    out = tmp_path / "a pool"
    shutil.copytree(tmp_path / "before" / "work" / "answers", out / "work" / "answers")
    assert train(made, data, out, *start_from(made), "--epochs", "8") == 0
    shown = capsys.readouterr().out
    assert "hint:" not in shown
    assert re.search(r"-- general: .*\n +0\.0 min  step +1 ", shown)
    assert "| letters |" in shown and f"demo --pool '{out}'" in shown

    pool = md.load_pool(out)
    assert [(d.name, d.kind) for d in pool.drafters] == [("general", "lm"), ("letters", "lm"), ("words", "lm")]
    assert pool.router is not None and set(pool.router.drafters) == {"letters", "words"}
    assert pool.router.probabilities("abcdefab")["letters"] == pool.route("abcdefab")[1]
    assert [task for task, _ in pool.examples] == ["letters", "words"]

    before, after = accepted(tmp_path / "before"), accepted(out)
    for task in ("letters", "words"):
        assert after[task][task] > before[task][task] + 1

    card = (out / "README.md").read_text()
    assert yaml.safe_load(card.split("---")[1]) == {
        "library_name": "multidraft",
        "tags": ["speculative-decoding", "lm"],
    }
    assert "| letters | 12 | 4 | 24 |" in card and "general" in card and "temperatures\n0, 0.7" in card
    assert "starts from `start`, the specialists start from it" in card
    rows = {line.split("|")[1].strip(): line.split("|")[2:4] for line in card.splitlines() if line.startswith("| ")}
    gain = [float(rows["general"][i].strip(" *")) - float(rows["before.training"][i]) for i in (0, 1)]
    assert min(gain) > 1


def test_heads_from_prompts_to_a_pool(made, data, tmp_path):
    few = ["--kind", "eagle", "--tasks", "words", "--lr", "0.005", "--work", str(tmp_path / "work")]
    assert train(made, data, tmp_path / "before", *few, "--epochs", "0.01", target="deep") == 0
    assert train(made, data, tmp_path / "out", *few, "--epochs", "25", target="deep") == 0
    pool = md.load_pool(tmp_path / "out")
    assert [(d.name, d.kind) for d in pool.drafters] == [("words", "eagle")] and pool.router is None
    assert sorted(p.name for p in (tmp_path / "out" / "words").iterdir()) == ["config.json", "model.safetensors"]
    before, after = accepted(tmp_path / "before"), accepted(tmp_path / "out")
    assert after["words"]["words"] > before["words"]["words"] + 0.2


def test_new_weights_and_specialist_heads(made, data, tmp_path):
    """The other ways to start; both kinds from the same answers."""
    short = ["--epochs", "0.5", "--limit", "6", "--work", str(tmp_path / "work")]
    assert train(made, data, tmp_path / "new", "--new", "1x16", *short, target="deep") == 0
    answers = {p: p.stat().st_mtime_ns for p in (tmp_path / "work" / "answers").iterdir()}
    assert train(made, data, tmp_path / "heads", "--kind", "eagle", *short, target="deep") == 0
    assert answers == {p: p.stat().st_mtime_ns for p in (tmp_path / "work" / "answers").iterdir()}
    assert md.load_pool(tmp_path / "new").drafters[1].parameter_count < 10_000
    assert [d.kind for d in md.load_pool(tmp_path / "heads").drafters] == ["eagle"] * 3


def test_interrupted_it_goes_on_where_it_was(made, data, tmp_path, monkeypatch, capsys):
    def stop_after(calls, module, name):
        original, left = getattr(module, name), [calls]

        def stopping(*arguments):
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            return original(*arguments)

        monkeypatch.setattr(module, name, stopping)

    def run(out, epochs="2"):
        return train(made, data, tmp_path / out, *start_from(made), "--epochs", epochs, "--batch", "5")

    stop_after(3, answers, "save_answers")
    assert run("out") == 130
    monkeypatch.undo()
    folder = tmp_path / "out" / "work" / "answers"
    assert len(list(folder.glob("*.pt"))) == 3 and not list(folder.glob("*.part"))

    stop_after(5, answers, "autocast")
    assert run("out") == 130
    monkeypatch.undo()
    assert torch.load(tmp_path / "out" / "work" / "lm" / "general.pt", weights_only=True)["step"] == 5
    capsys.readouterr()
    assert run("out") == 0
    shown = capsys.readouterr().out
    assert "12 of 12 batches of answers are there already" in shown and "resumed at step 5" in shown

    assert run("whole", "0.01") == 0  # never interrupted: the same answers
    for file in sorted(folder.glob("*.pt")):
        left, right = (answers.load_answers(f) for f in (file, tmp_path / "whole" / "work" / "answers" / file.name))
        assert [(a.ids, a.prompt_length) for a in left] == [(a.ids, a.prompt_length) for a in right]


def test_other_settings_are_named_and_nothing_is_lost(made, data, tmp_path, capsys):
    assert train(made, data, tmp_path / "out", *start_from(made), "--epochs", "0.1") == 0
    assert train(made, data, tmp_path / "out", *start_from(made), "--epochs", "0.1", "--max-new-tokens", "20") == 2
    assert "other settings (max_new_tokens was 24, is now 20)" in capsys.readouterr().err
    assert train(made, data, tmp_path / "out", "--new", "1x16", "--epochs", "0.1") == 2
    shown = capsys.readouterr().err
    assert "lm holds work done with other settings (drafter was" in shown and "lr was 0.01, is now 0.002" in shown
    assert len(list((tmp_path / "out" / "work" / "answers").glob("*.pt"))) == 4
    shutil.rmtree(tmp_path / "out" / "work" / "answers")  # nor are checkpoints taken for those of new answers
    more = ["--epochs", "0.1", "--max-new-tokens", "20"]
    assert train(made, data, tmp_path / "out", *start_from(made), *more) == 2
    assert "lm holds work done with other settings (checksum of the answers' settings" in capsys.readouterr().err


def test_a_dry_run_says_what_would_be_done(made, data, tmp_path, capsys):
    assert train(made, data, tmp_path / "out", "--new", "2x64", "--limit", "10", "--minutes", "3", "--dry-run") == 0
    shown = capsys.readouterr().out
    rows = [line.split() for line in shown.splitlines()]
    assert ["letters", "8", "2"] in rows and ["words", "8", "2"] in rows
    assert "answers: 32 at temperatures 0, 0.7; at most 768 tokens" in shown
    assert "drafters: general, letters, words; of kind lm" in shown
    assert "at most 3 min or 20 epochs each, 9 min in all" in shown
    assert "of training alone. Answering the prompts comes before it" in shown
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("shape", "larger"), [("1x16", False), ("4x256", True)])
def test_a_drafter_larger_than_the_target_is_warned_of(made, data, tmp_path, capsys, shape, larger):
    assert train(made, data, tmp_path / "out", "--new", shape, "--dry-run") == 0
    assert ("warning: a drafter has more parameters than the target (" in capsys.readouterr().out) is larger


@pytest.mark.parametrize(
    ("matrix", "nothing"),
    [
        ({"sql": {"general": 1.004, "sql": 1.0}}, True),
        ({"sql": {"general": 1.0, "sql": 1.01}}, False),
        ({}, False),  # all held-out prompts were too long
        ({"sql": {"sql": 2.101, "before.training": 2.1}, "math": {"sql": 1.3, "before.training": 1.4}}, True),
        ({"sql": {"sql": 2.1, "before.training": 2.1}, "math": {"sql": 1.5, "before.training": 1.4}}, False),
    ],
)
def test_whether_training_has_brought_anything(matrix, nothing):
    assert publish.learnt_nothing(matrix) is nothing


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--tasks", "poems"], "unknown task 'poems'; the data has: letters, words"),
        (["--template", "poems={prompt}"], "unknown task 'poems'"),
        (["--template", "words=nothing"], "should be TASK=TEXT, with {prompt}"),
        (["--limit", "1"], "task 'letters' has 1 prompt; two are needed"),
        (["--kind", "eagle", "--new", "2x64"], "are for --kind lm"),
        (["--new", "wide"], "should be LAYERSxWIDTH"),
        (["--new", "²x768"], "should be LAYERSxWIDTH"),
        (["--new", "1x16", "--drafter", "x/y"], "give either --drafter"),
        (["--epochs", "0"], "--epochs must be greater than 0"),
        (["--feature-memory", "0"], "--feature-memory must be greater than 0"),
        (["--seed", "-1"], "the seed must be a whole number from 0"),
        (["--heldout", "1"], "between 0 and 1"),
        (["--temperatures", "-1"], "must not be negative"),
        (["--draft-length", "99"], "between 1 and 64"),
        (["--private"], "give --push too"),
        (["--push", "me/pool"], "--push needs a target given by its name on the Hub"),
        (["--max-new-tokens", "60"], "no prompt of 'letters' leaves room for an answer"),
        (["--drafter", "./nowhere"], "there is no folder ./nowhere"),
    ],
)
def test_what_cannot_be_done_is_said(made, data, tmp_path, capsys, more, message):
    assert train(made, data, tmp_path / "out", *more) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1


def test_unfit_models_and_machines(made, data, tmp_path, capsys, monkeypatch):
    write_start(tmp_path / "other", vocab=11)
    assert train(made, data, tmp_path / "a", "--drafter", str(tmp_path / "other")) == 2
    assert "has another vocabulary than the target (11 tokens, 12)" in capsys.readouterr().err

    tiny.llama(1).save_pretrained(tmp_path / "base")
    tiny.tokenizer().save_pretrained(tmp_path / "base")
    base = ["train", "--target", str(tmp_path / "base"), "--data", *data, "--out", str(tmp_path / "b")]
    assert main(base) == 2 and "has no chat template" in capsys.readouterr().err
    assert main([*base, "--plain", "--new", "1x16", "--dry-run"]) == 0

    assert main(["train", "--target", str(tmp_path), "--data", *data, "--out", str(tmp_path / "c"), "--plain"]) == 2
    assert "cannot load the tokenizer" in capsys.readouterr().err
    monkeypatch.setattr(plan_module, "total_memory", lambda device: 1000)
    assert train(made, data, tmp_path / "d", "--new", "1x16") == 2
    assert "cpu has 0.0 GB of memory; the target takes" in capsys.readouterr().err


def test_folders_that_cannot_be_written(made, data, tmp_path, capsys, monkeypatch):
    (tmp_path / "file").write_text("")
    assert train(made, data, tmp_path / "file" / "out", "--new", "1x16") == 2
    assert "cannot write" in capsys.readouterr().err

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    assert train(made, data, tmp_path / "out", "--new", "1x16") == 2
    shown = capsys.readouterr().err
    assert "No space left on device" in shown and "make room" in shown and "give the same command again" in shown
    assert [p.name for p in (tmp_path / "out" / "work" / "answers").iterdir()] == ["settings.json"]


def test_too_little_memory_for_a_batch(made, data, tmp_path, capsys, monkeypatch):
    """Answers are made by halves, down to one; a step of training has to be made smaller by hand."""
    original, most, asked = answers.answer_batch, [5], []

    def limited(target, tokenizer, prompts, *more):
        asked.append(len(prompts))
        if len(prompts) > most[0]:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(target, tokenizer, prompts, *more)

    def exhausted(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(answers, "answer_batch", limited)
    monkeypatch.setattr(answers, "autocast", exhausted)
    assert train(made, data, tmp_path / "out", "--new", "1x16") == 2
    assert asked == [12, 6, 3, 3, 6, 3, 3] * 4
    error = capsys.readouterr().err
    assert "too little memory to train 'general' on 512 tokens a step: lower --batch-tokens" in error
    most[0] = 0
    assert train(made, data, tmp_path / "none", "--new", "1x16") == 2
    assert "too little memory for one answer of 24 tokens to a prompt of" in capsys.readouterr().err
    monkeypatch.undo()
    assert train(made, data, tmp_path / "out", "--new", "1x16", "--batch-tokens", "64", "--epochs", "0.1") == 0
    assert [len(md.load_pool(tmp_path / "out").drafters)] == [3]


def test_when_it_is_done_it_is_pushed(made, data, tmp_path, capsys, monkeypatch):
    calls = []
    monkeypatch.setattr(train_command, "check_login", lambda: calls.append(sorted(p.name for p in tmp_path.iterdir())))
    monkeypatch.setattr(train_command, "check_push", lambda *_: None)  # the target is local
    monkeypatch.setattr(train_command, "push", lambda *arguments: calls.append(arguments) or "https://there")
    few = ["--tasks", "words", "--new", "1x16", "--epochs", "0.1", "--push", "me/pool", "--private"]
    assert train(made, data, tmp_path / "out", *few) == 0
    assert calls == [["out"], (tmp_path / "out", "me/pool", True)]
    assert capsys.readouterr().out.endswith("pushed to https://there\n")


def test_damaged_answers_are_named(made, data, tmp_path, capsys):
    few = ["--new", "1x16", "--epochs", "0.1", "--tasks", "words"]
    assert train(made, data, tmp_path / "out", *few) == 0
    file = next((tmp_path / "out" / "work" / "answers").glob("*.pt"))
    file.write_bytes(b"?")
    (tmp_path / "out" / "work" / "lm" / "settings.json").write_text(json.dumps({}))
    assert train(made, data, tmp_path / "out", *few) == 2
    assert f"cannot read {file}" in capsys.readouterr().err
