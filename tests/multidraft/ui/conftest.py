"""A workbench that the tests of a file share, since none of them runs anything on it."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from drafters.pool import Pool
from multidraft.service.workbench import Workbench
from storage.store import Store


@pytest.fixture(scope="module")
def unused(loaded_pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    folder = tmp_path_factory.mktemp("history")
    with Store(folder / "runs.db") as store, closing(Workbench(loaded_pool, store)) as workbench:
        yield workbench
