"""The differential run in small, and that it finds what is wrong."""

from dataclasses import replace

import pytest
import torch

from multidraft.engine import decoding
from tests.distributions import ALPHA
from tests.reliability.differential import Tally, enumerate_world, report, run_world

pytestmark = pytest.mark.benched


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def test_random_texts_are_those_of_plain_decoding(capsys):
    tally = Tally()
    run_world(0, 3, 30, tally)
    assert report(tally, {}, 0.0), capsys.readouterr().out
    assert tally.generations >= 30 and tally.accepted > 20 and tally.sampled and tally.batched


def broken(verify, change):
    """A verification whose own token is changed where nothing was accepted."""

    def verified(draft, logits, *others):
        verdict = verify(draft, logits, *others)
        return verdict if verdict.path or not len(draft) else replace(verdict, own=change(verdict, logits))

    return verified


def test_a_wrong_token_is_found_and_can_be_had_again(monkeypatch, capsys):
    monkeypatch.setattr(decoding, "verify", broken(decoding.verify, lambda verdict, logits: (verdict.own + 1) % 12))
    tally = Tally()
    run_world(0, 3, 10, tally)
    assert not report(tally, {}, 0.0)
    assert "--seed 0 --world 3" in capsys.readouterr().out


@pytest.mark.long
def test_outputs_of_three_tokens_are_distributed_as_all_of_them_enumerated(monkeypatch):
    assert min(enumerate_world(0, "onnx", 300, ["near", "bush"]).values()) > ALPHA
    likeliest = broken(decoding.verify, lambda verdict, logits: int(logits[0].argmax()))
    monkeypatch.setattr(decoding, "verify", likeliest)
    assert max(enumerate_world(0, "onnx", 300, ["near", "bush"]).values()) < ALPHA
