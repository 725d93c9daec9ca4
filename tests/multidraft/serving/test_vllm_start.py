import sys
from types import SimpleNamespace

import pytest
import torch

from multidraft.serving.vllm_start import mend_sampling, repeated


@pytest.mark.parametrize("wrong", [True, False])
def test_what_vllm_makes_of_temperatures_on_a_cpu_is_put_right_where_it_is_wrong(monkeypatch, wrong):
    nothing = lambda values, ends, tokens, *_: torch.full((tokens,), 0.25)  # noqa: E731
    constrain = lambda logits, ends, metadata: logits / logits.max()  # noqa: E731
    expand = nothing if wrong else repeated
    sampler = SimpleNamespace(expand_batch_to_tokens=expand, apply_sampling_constraints=constrain)
    monkeypatch.setitem(sys.modules, "vllm.v1.sample.rejection_sampler", sampler)
    assert mend_sampling() == wrong and sampler.expand_batch_to_tokens is repeated
    assert not mend_sampling()
    assert sampler.apply_sampling_constraints(torch.tensor([[2.0, 4.0]]), None, None).tolist() == [[0.5, 1.0]]
    if wrong:
        assert sampler.apply_sampling_constraints(torch.empty(0, 2), None, None).shape == (0, 2)


def test_values_of_requests_are_repeated_for_their_drafted_tokens():
    found = repeated(torch.tensor([7, 4, 1], dtype=torch.int32), torch.tensor([2, 2, 5]), 5)
    assert found.tolist() == [7, 7, 1, 1, 1] and found.dtype == torch.int32
    assert repeated(torch.tensor([0.0, 0.7]), torch.tensor([1, 2]), 2, 0, 1).tolist() == pytest.approx([1.0, 0.7])
