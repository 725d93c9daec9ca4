"""What every test of the engine shares: one thread, repeatable examples, a small pool."""

import os
import shutil

import pytest
import torch
from hypothesis import HealthCheck, settings

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # its kernels run on the CPU, slowly; read when it is imported

from drafters.benched import Benched
from drafters.pool import Pool, load_pool
from tests import tiny

torch.set_num_threads(1)


settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def no_drafter_fails(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """A text goes on without a drafter that fails, so a test would pass over it: those that expect it are marked."""
    failed, add = list[Exception](), Benched.add

    def noted(benched: Benched, arm: int, error: Exception) -> None:
        failed.append(error)
        add(benched, arm, error)

    monkeypatch.setattr(Benched, "add", noted)
    yield
    if failed and "benched" not in request.keywords:
        raise failed[0]


@pytest.fixture(scope="session")
def pool_card(tmp_path_factory: pytest.TempPathFactory):
    """Card of a pool on disk: a two-layer Llama, three Llama drafters (two of one shape), prompt lookup."""
    return tiny.write_pool(tmp_path_factory.mktemp("pool"))


@pytest.fixture
def pool_folder(pool_card, tmp_path):
    """A copy of the pool's folder, to change and to break."""
    return shutil.copytree(pool_card.parent, tmp_path / "pool")


@pytest.fixture(scope="session")
def loaded_pool(pool_card) -> Pool:
    return load_pool(pool_card)


@pytest.fixture
def pool(loaded_pool: Pool):
    """The pool of ``pool_card`` without stop tokens, so that outputs have their full length, and without experience:
    what it learns in a test is lost after it."""
    stop_ids = loaded_pool.stop_ids
    loaded_pool.stop_ids = frozenset()
    loaded_pool.traffic, loaded_pool.previous = None, {}
    yield loaded_pool
    loaded_pool.stop_ids = stop_ids
    loaded_pool.traffic, loaded_pool.previous = None, {}


@pytest.fixture(scope="session")
def kinds_card(tmp_path_factory: pytest.TempPathFactory):
    """Card of a pool on disk with every kind of drafter; see :mod:`tests.kinds`."""
    from tests import kinds  # it needs more of transformers than most tests do

    return kinds.write_pool(tmp_path_factory.mktemp("kinds"))
