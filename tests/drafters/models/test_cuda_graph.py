"""Functions recorded as CUDA graphs."""

import logging
from contextlib import nullcontext

import pytest
import torch

from drafters.kinds.lm import LMDrafter
from drafters.models.cuda_graph import Graphs, Replayed
from drafters.models.torch_decoder import TorchDecoder
from drafters.sampling import SamplingParams
from tests import tiny

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_without_a_gpu_the_function_is_called_each_time():
    calls = []
    run = Replayed(lambda: calls.append(1) or len(calls), Graphs(torch.device("cpu")))
    assert not run.captured and [run(), run(), run()] == [1, 2, 3]


class Emulated(Graphs):
    """Recording and launching without a GPU: what is launched calls the function, and leaves the result in place.

    ``fails`` are the numbers of the recordings, and of the launches, that raise.
    """

    def __init__(self, recordings=(), launches=(), error="operation not permitted when stream is capturing"):
        super().__init__(torch.device("cpu"))
        self.available, self.fails, self.error = True, {"record": recordings, "launch": launches}, error
        self.counts = {"record": 0, "launch": 0}

    def beside(self, function):
        return function()

    def record(self, function):
        self._count("record")
        result = function()

        def launch():
            self._count("launch")
            for place, found in zip(tensors(result), tensors(function()), strict=True):
                place.copy_(found)

        return launch, result

    def _count(self, what):
        self.counts[what] += 1
        if self.counts[what] in self.fails[what]:
            raise RuntimeError(f"CUDA error: {self.error}\nmore")


def tensors(found):
    """All that a forward or a draft leaves."""
    if isinstance(found, torch.Tensor):
        return [found]
    parts = found.values() if isinstance(found, dict) else [part for part in found if part is not None]
    return [tensor for part in parts for tensor in tensors(part)]


@pytest.fixture
def graphs(monkeypatch):
    monkeypatch.setattr(Graphs, "given_up", False)


def decoded(decoder):
    """Greedy and sampled drafts, chains and a tree, with hidden states: twice and more of each shape."""
    drafter, found = LMDrafter("one", decoder, tiny.VOCAB), []
    context = tiny.prompts(1, seed=4, shortest=30, longest=30)[0]
    for params in (SamplingParams(), SamplingParams(temperature=1.0, top_k=8)):
        for end in range(8, 30, 2):
            draft = drafter.propose(context[:end], 4, params, torch.Generator().manual_seed(end), with_q=True)
            found += [torch.tensor(draft.tokens), draft.q]
    mask = torch.ones(3, 13, dtype=torch.bool).tril(10)
    for _ in range(4):
        found.append(decoder.forward(context[:10], 0, capture=(1,)))
        found.append(decoder.captured[1])
        found.append(decoder.forward([1, 2, 3], 10, positions=torch.tensor([10, 11, 11]), mask=mask))
        decoder.keep(10, [0, 2])
        found.append(decoder.forward([5], 12))
    return found


@pytest.mark.parametrize(
    ("recordings", "launches"), [((), ()), ((1,), ()), ((3,), ()), ((), (1,)), ((), (7,))], ids=str
)
def test_where_graphs_fail_decoding_goes_on_without_them(graphs, caplog, recordings, launches):
    model = tiny.llama(1)
    decoder = TorchDecoder(model, static=True)
    decoder.runs.stack._graphs = emulated = Emulated(recordings, launches)
    with caplog.at_level(logging.WARNING):
        found = decoded(decoder)
    for mine, expected in zip(found, decoded(TorchDecoder(model, static=False)), strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-5)
    fails = bool(recordings or launches)
    said = [record.getMessage() for record in caplog.records]
    assert Graphs.given_up == fails and len(said) == fails
    assert not fails or "RuntimeError: CUDA error: operation not permitted when stream is capturing" in said[0]
    if fails:
        assert emulated.counts["record"] == recordings[-1] if recordings else emulated.counts["launch"] == launches[-1]
    else:
        assert emulated.counts["launch"] > emulated.counts["record"] > 3


def test_a_graph_for_which_there_is_no_memory_ends_no_other(graphs, caplog):
    emulated = Emulated(recordings=(1,), error="can't allocate memory")
    first, second = (Replayed(lambda: torch.ones(1), emulated) for _ in range(2))
    for _ in range(3):
        assert first().item() == second().item() == 1.0
    assert not Graphs.given_up and not first.captured and second._recorded
    assert [record.getMessage()[:30] for record in caplog.records] == ["no memory for a CUDA graph; it"]


def test_an_error_of_the_function_itself_is_raised_and_blames_no_graph(graphs, caplog):
    def fail():
        raise ValueError("no such token")

    with pytest.raises(ValueError, match="no such token"):
        Replayed(fail, Emulated())()
    assert not Graphs.given_up and not caplog.records


def test_what_failed_at_first_is_not_recorded_before_it_has_run(graphs):
    emulated, calls = Emulated(), []

    def fail_at_first():
        calls.append(emulated.counts["record"])
        if len(calls) <= 2:
            raise MemoryError
        return torch.ones(1)

    run = Replayed(fail_at_first, emulated)
    with pytest.raises(MemoryError):
        run()
    run(), run()
    assert calls[:4] == [0, 0, 0, 1]  # neither twice, then as it is, then to be recorded


def test_what_is_not_recorded_runs_on_the_device_of_its_tensors(monkeypatch):
    entered = []
    monkeypatch.setattr(torch.cuda, "device", lambda device: entered.append(device) or nullcontext())
    for device in (torch.device("cuda:1"), torch.device("cpu")):
        Replayed(lambda: None, Graphs(device), captured=False)()
    assert entered == [torch.device("cuda:1"), -1]


@needs_cuda
def test_a_recorded_function_reads_its_inputs_anew():
    device, calls = torch.device("cuda"), []
    numbers = torch.zeros(3, device=device)

    def double():
        calls.append(1)
        return numbers * 2

    run = Replayed(double, Graphs(device))
    for value in range(5):
        numbers.fill_(value)
        assert run().tolist() == [2.0 * value] * 3
    assert len(calls) == 2  # as it is, then once to record it


@needs_cuda
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_recorded_forwards_and_drafts_are_those_that_were_not(dtype):
    model, context = tiny.llama(1).to("cuda", dtype), tiny.prompts(1, seed=4, shortest=30, longest=30)[0]
    recorded, plain = (LMDrafter("one", TorchDecoder(model, static=static), tiny.VOCAB) for static in (True, False))
    for params in (SamplingParams(), SamplingParams(temperature=1.0, top_k=8)):
        for _ in range(3):
            for end in range(8, 30, 2):
                drafts = [
                    drafter.propose(context[:end], 4, params, torch.Generator("cuda").manual_seed(end))
                    for drafter in (recorded, plain)
                ]
                assert dtype != torch.float32 or drafts[0].tokens == drafts[1].tokens
    programs = recorded.model.runs.stack._programs.values()
    assert any(program.run._recorded is not None for program in programs) and not Graphs.given_up
