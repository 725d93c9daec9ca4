"""What a measurement ran on."""

import ctypes
import errno
import gc
import os
import re
import sys
import threading
import weakref
from types import SimpleNamespace

import psutil
import pytest
import torch

from drafters import hardware
from drafters.errors import PoolError
from drafters.hardware import (
    ARENAS,
    Trimming,
    describe,
    few_arenas,
    free_unused,
    is_out_of_memory,
    set_aside,
    usable_device,
)

glibc = pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="of glibc alone"
)


def test_the_processor_and_its_cores():
    assert re.fullmatch(r".+, (1 core|\d+ cores)", describe("cpu"))
    assert describe(torch.device("cpu")) == describe("cpu")


def test_one_core_is_not_several(monkeypatch):
    monkeypatch.setattr(hardware, "cores", lambda: 1)
    assert describe("cpu").endswith(", 1 core")


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="threads are bound to cores on Linux alone")
def test_cores_are_those_of_all_threads_though_one_is_bound_to_a_core():
    """As vLLM binds the thread in which its proposers are made."""
    found = []

    def bound():
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        found.append(describe("cpu"))

    thread = threading.Thread(target=bound)
    thread.start()
    thread.join()
    assert found == [describe("cpu")]


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


def test_a_device_that_is_not_there_says_what_to_write_instead():
    with pytest.raises(PoolError, match=r"'nowhere' of pool 'mine' cannot be used: .*; write device: auto or cpu"):
        usable_device("nowhere", "mine")


def test_what_is_set_aside_is_looked_through_only_to_free_memory():
    class Part:
        pass

    def part_of_a_circle() -> weakref.ref[Part]:
        part = Part()
        part.whole = [part]
        return weakref.ref(part)

    old = part_of_a_circle()
    gc.disable()  # or it might come first
    try:
        with set_aside():
            assert old() is None and gc.get_freeze_count()
            aside = part_of_a_circle()
            gc.freeze()
            gc.collect()
            assert aside() is not None
            free_unused()
            assert aside() is None and gc.get_freeze_count()
        assert not gc.get_freeze_count()
        free_unused()
        assert not gc.get_freeze_count(), "nobody has set anything aside"
    finally:
        gc.enable()


@glibc
def test_free_memory_between_what_stays_goes_back_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    library, size, count = ctypes.CDLL(None), 1 << 16, 1000
    library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    taken = [library.malloc(size) for _ in range(count)]
    for place in taken:
        ctypes.memset(place, 1, size)
    for place in taken[:-1]:  # what is behind the last one would go back by itself
        library.free(place)
    trim, process = Trimming(), psutil.Process()
    before = process.memory_info().rss
    trim()
    assert process.memory_info().rss > before - size * count / 2
    monkeypatch.setattr(hardware, "TRIM_SECONDS", 0)
    trim()
    assert process.memory_info().rss < before - size * count / 2
    library.free(taken[-1])


@pytest.mark.parametrize("asked", [None, "4"])
def test_free_memory_is_kept_in_few_places_unless_others_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, asked: str | None
) -> None:
    said = list[tuple[int, int]]()
    library = SimpleNamespace(mallopt=lambda what, value: said.append((what, value)))
    monkeypatch.setattr(hardware, "_c_library", lambda: library)
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    if asked:
        monkeypatch.setenv("MALLOC_ARENA_MAX", asked)
    few_arenas()
    assert said == ([] if asked else [(-8, ARENAS)])
    vars(library).clear()  # as a library that is not glibc
    few_arenas()
    Trimming()()
