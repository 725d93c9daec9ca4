"""What ``demo`` does before it serves the page."""

from collections.abc import Iterator

import pandas as pd
import pyarrow as pa
import pytest

from multidraft.commands import demo


@pytest.fixture(autouse=True)
def usual(monkeypatch: pytest.MonkeyPatch) -> Iterator[pa.MemoryPool]:
    """Arrow's own choice, which it is again for other tests."""
    monkeypatch.setattr(demo, "few_arenas", lambda: None)
    usual = pa.default_memory_pool()
    yield usual
    pa.set_memory_pool(usual)


def test_texts_of_data_frames_are_where_free_memory_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    demo.share_free_memory()
    shared = pa.default_memory_pool()
    before = shared.bytes_allocated()
    texts = pd.Series([f"text {i}" for i in range(1000)], dtype="string[pyarrow]").str.upper()
    assert shared.backend_name == "system" and shared.bytes_allocated() > before and len(texts) == 1000


def test_what_the_environment_asks_for_stays(monkeypatch: pytest.MonkeyPatch, usual: pa.MemoryPool) -> None:
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", usual.backend_name)
    demo.share_free_memory()
    assert pa.default_memory_pool().backend_name == usual.backend_name
