"""Stages of the training command that make something of the target's answers."""

import sys

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from drafters.retrieval.datastore import END, Datastore, tokenizer_fingerprint
from multidraft.training.answers import Answer, save_answers
from multidraft.training.pocket import __main__ as training
from tests import tiny


@pytest.fixture
def stage(monkeypatch, tmp_path):
    def run(name):
        arguments = ["training", name, "--pool", str(tmp_path / "pool"), "--work", str(tmp_path / "work")]
        monkeypatch.setattr(sys, "argv", arguments)
        training.main()
        return tmp_path / "pool"

    (tmp_path / "pool" / "target").mkdir(parents=True)
    tiny.tokenizer().save_pretrained(tmp_path / "pool" / "target")
    answers = [Answer([5, 6, n, n + 1], 2, "math", torch.zeros(2, 1), torch.ones(2, 1)) for n in (2, 5, 8)]
    save_answers(answers, tmp_path / "work" / "answers.pt")
    return run


def test_the_datastore_holds_whole_answers_up_to_its_size(stage, monkeypatch):
    monkeypatch.setattr(training, "DATASTORE_TOKENS", 4)
    file = stage("datastore") / "answers.store"
    tokenizer = AutoTokenizer.from_pretrained(file.parent / "target")
    store = Datastore.open(file, tokenizer_fingerprint(tokenizer), len(tokenizer))
    texts = [part.tolist() for part in np.split(store.tokens, np.flatnonzero(store.tokens == END) + 1) if len(part)]
    assert len(texts) == 2 and all(text in ([2, 3, END], [5, 6, END], [8, 9, END]) for text in texts)


def test_the_bundled_suites_are_written_again_as_they_are(stage, monkeypatch, tmp_path):
    bundled = training.SUITES
    monkeypatch.setattr(training, "SUITES", tmp_path)
    stage("suite")
    for name in ("pocket.jsonl", "copying.jsonl"):
        assert (tmp_path / name).read_bytes() == (bundled / name).read_bytes()
