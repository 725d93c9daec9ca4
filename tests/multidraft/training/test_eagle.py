"""Training of EAGLE-3 heads: each step of the training is the step that the head will make when it drafts."""

import pytest
import torch
from torch.nn import functional

from drafters.checkpoints.eagle import read_head
from drafters.learning.distil import Encoded
from drafters.models.eagle_head import EagleHead
from drafters.models.trainable_head import TrainableHead
from multidraft.training.eagle import common_tokens, save_head
from tests import tiny

IDS = torch.tensor([0, 1, 3, 4, 5, 7, 8, 9, 10])


@pytest.fixture(scope="module")
def target():
    return tiny.llama(1, layers=6)


def test_each_step_is_the_one_it_will_make_when_it_drafts(target, tmp_path):
    """Against the head as it is loaded to draft, fed the same tokens one by one from each place of a text."""
    torch.manual_seed(3)
    head = TrainableHead(target, IDS)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter) / parameter.shape[-1] ** 0.5)
            parameter.copy_(parameter.to(torch.bfloat16))  # as it will be saved
    save_head(head, tmp_path)
    shape, tensors = read_head(tmp_path, target)
    assert shape.layers == head.layers == (2, 3, 3) and shape.vocab_size == len(IDS)
    drafting = EagleHead(shape, tensors, target)
    assert torch.equal(drafting.to_target, IDS)

    texts = torch.tensor(tiny.prompts(2, seed=8, shortest=14, longest=14))
    features = tiny.states_of(target, texts, head.layers)[:, :-1]
    embedded = functional.embedding(texts[:, 1:], target.get_input_embeddings().weight)
    wanted = torch.zeros(2, 13, dtype=torch.bool)
    wanted[0, 7:] = wanted[1, 9:12] = True
    with torch.no_grad():
        steps = list(head(features, embedded, wanted, 4))
    for step, logits in enumerate(steps):
        assert logits.shape == (9, len(IDS))
        for row, (text, pair) in enumerate(wanted.nonzero().tolist()):
            known = pair - step  # the last pair with a hidden state of the target's
            ids = texts[text, 1 : known + 2]
            made = drafting.step(ids, drafting.fuse(features[text, : known + 1]), 0)
            for ahead in range(step):
                token = texts[text, known + 2 + ahead : known + 3 + ahead]
                made = drafting.step(token, made.hidden[-1:], known + 1 + ahead)
            torch.testing.assert_close(logits[row], made.logits[-1], rtol=1e-3, atol=1e-3)


def test_what_stands_before_the_answers_changes_nothing_but_the_cost(target):
    torch.manual_seed(4)
    head = TrainableHead(target, IDS)
    texts = torch.tensor(tiny.prompts(1, seed=9, shortest=12, longest=12))
    features = tiny.states_of(target, texts, head.layers)[:, :-1]
    embedded = functional.embedding(texts[:, 1:], target.get_input_embeddings().weight)
    some, all_pairs = torch.zeros(1, 11, dtype=torch.bool), torch.ones(1, 11, dtype=torch.bool)
    some[0, 8:] = True
    with torch.no_grad():
        few, many = list(head(features, embedded, some, 3)), list(head(features, embedded, all_pairs, 3))
    for a, b in zip(few, many, strict=True):
        torch.testing.assert_close(a, b[8:])


def test_common_tokens():
    texts = [Encoded([9, 9, 9, 1, 2, 2, 3], 3), Encoded([9, 5, 2, 3], 1)]
    assert common_tokens(texts, 3, [0]).tolist() == [0, 2, 3]
    assert common_tokens(texts, 9, [0]).tolist() == [0, 1, 2, 3, 5]
