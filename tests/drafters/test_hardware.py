"""What a measurement ran on."""

import errno
import re

import pytest
import torch

from drafters.hardware import describe, is_out_of_memory


def test_the_processor_and_its_cores():
    assert re.fullmatch(r".+, \d+ cores", describe("cpu"))
    assert describe(torch.device("cpu")) == describe("cpu")


@pytest.mark.parametrize(
    ("error", "is_it"),
    [
        (MemoryError(), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you"), True),
        (Exception("[ONNXRuntimeError] : 1 : FAIL : BFCArena Failed to allocate memory for requested buffer"), True),
        (OSError(errno.ENOENT, "No such file"), False),
        (RuntimeError("shapes do not fit"), False),
    ],
)
def test_out_of_memory_is_told_from_other_errors(error, is_it):
    assert is_out_of_memory(error) is is_it
