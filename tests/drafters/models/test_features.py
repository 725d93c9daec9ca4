"""Hidden states of the target's context, gathered from its forwards."""

import pytest
import torch

from drafters.draft import Draft
from drafters.models.target import Target
from tests import tiny


@pytest.mark.parametrize("runtime", tiny.RUNTIMES)
@pytest.mark.parametrize("prompt", [[5], [5, 3, 7, 2]])
def test_states_of_a_new_target_are_those_of_one_forward(prompt, runtime):
    model = tiny.llama(1)
    target = Target(model, tiny.RUNTIMES[runtime](model))
    target.watch([0, 2])
    target.prefill(prompt)
    context = list(prompt)
    for draft, path, own in ((Draft.chain([4, 6]), [0], 9), (Draft((3, 8, 2), (-1, -1, 1)), [1, 2], 4)):
        target.score(draft)
        target.accept(path, own)
        context += [*(draft.tokens[node] for node in path), own]
        expected = tiny.states_of(model, context, [0, 2])[:-1]
        torch.testing.assert_close(target.features(context, [0, 2]), expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(target.features(context, [2]), expected[:, 24:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("runtime", tiny.RUNTIMES)
def test_the_memory_of_one_text_serves_the_next_in_and_out_of_inference_mode(runtime):
    model = tiny.llama(1)
    target = Target(model, tiny.RUNTIMES[runtime](model))
    target.watch([2])
    with torch.inference_mode():
        target.prefill([5, 3, 7])
    target.prefill([4, 6])
    target.score(Draft.chain([9]))
    target.accept([0], 1)
    expected = tiny.states_of(model, [4, 6, 9], [2])
    torch.testing.assert_close(target.features([4, 6, 9, 1], [2]), expected, rtol=1e-4, atol=1e-4)
