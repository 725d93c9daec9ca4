"""Pools from the Hub, which a server on this machine stands in for: progress, and what is said when it fails."""

from __future__ import annotations

import errno
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import huggingface_hub
import pytest
import torch
import yaml
from huggingface_hub.errors import DisabledRepoError, HfHubHTTPError, HFValidationError

from drafters.checkpoints import hub as drafters_hub
from drafters.checkpoints import loading
from drafters.checkpoints.hub import HubDownError, problem
from drafters.errors import PoolError
from drafters.pool import load_pool
from drafters.progress import Step
from drafters.source import Source
from multidraft.__main__ import main
from tests.hub import FakeHub


@pytest.fixture
def hub(pool_card: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A Hub with the tiny pool's models as ``tiny/target`` and ``tiny/near``, and an empty local cache."""
    for name in ("target", "near"):
        shutil.copytree(pool_card.parent / name, tmp_path / "hub" / "tiny" / name)
    with FakeHub(tmp_path / "hub").serving() as served:
        at_hub(served.address, tmp_path / "cache", monkeypatch)
        yield served


def at_hub(address: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the library take ``address`` for the Hub and ``cache`` for its cache, as the environment would have."""
    constants = huggingface_hub.constants
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(drafters_hub, "_folders", {})
    hasty = SimpleNamespace(sleep=lambda seconds: None, time=time.time, monotonic=time.monotonic)
    monkeypatch.setattr("huggingface_hub.utils._http.time", hasty)  # between its tries


def card(folder: Path, target: dict[str, Any] | None = None, **drafter: Any) -> Path:
    """A card with a target and a drafter from the Hub, and prompt lookup."""
    content = {
        "name": "from-hub",
        "title": "A pool from the Hub",
        "target": target or {"id": "tiny/target"},
        "drafters": [{"name": "near", "kind": "lm", **(drafter or {"id": "tiny/near"})}, {"name": "l", "kind": "pld"}],
        "device": "cpu",
        "draft_length": 4,
    }
    path = folder / "card.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_models_come_from_the_hub_with_progress_and_then_from_the_cache(hub: FakeHub, tmp_path: Path) -> None:
    steps: list[Step] = []
    pool = load_pool(card(tmp_path), progress=steps.append)
    assert [drafter.name for drafter in pool.drafters] == ["near", "l"]
    begun = list(dict.fromkeys((step.number, step.doing, step.what) for step in steps))
    assert begun == [
        (1, "fetching", "the target, tiny/target"),
        (2, "fetching", "drafter 'near', tiny/near"),
        (3, "loading", "the target"),
        (4, "loading", "drafter 'near'"),
        (5, "loading", "drafter 'l'"),
    ]
    assert {step.of for step in steps} == {5}
    arrived = [step for step in steps if step.number == 1]
    assert arrived[-1].done_bytes == arrived[-1].total_bytes > 10_000
    assert all(0 <= step.done_bytes <= step.total_bytes for step in steps)
    assert [s.done_bytes for s in arrived] == sorted(s.done_bytes for s in arrived)
    hub.asked.clear()
    assert load_pool(card(tmp_path)).card_hash == pool.card_hash
    assert not [path for path in hub.asked if "safetensors" in path]


def test_what_is_in_the_cache_needs_no_network(hub: FakeHub, tmp_path: Path) -> None:
    load_pool(card(tmp_path))
    drafters_hub._folders.clear()
    hub.broken = True
    assert load_pool(card(tmp_path)).name == "from-hub"


def test_nothing_is_loaded_before_all_is_there(hub: FakeHub, tmp_path: Path) -> None:
    steps: list[Step] = []
    with pytest.raises(PoolError, match="tiny/nobody does not exist or is private"):
        load_pool(card(tmp_path, id="tiny/nobody"), progress=steps.append)
    assert {step.doing for step in steps} == {"fetching"}


def test_a_gated_repository(hub: FakeHub, tmp_path: Path) -> None:
    hub.gated.add("tiny/target")
    with pytest.raises(PoolError) as caught:
        load_pool(card(tmp_path))
    said = str(caught.value)
    assert "tiny/target is gated" in said and f"{hub.address}/tiny/target" in said and "HF_TOKEN" in said


def test_a_revision_that_is_not_there(hub: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(PoolError, match=r"tiny/target has no revision 'v9'.*leave it out of the card"):
        load_pool(card(tmp_path, {"id": "tiny/target", "revision": "v9"}))


def test_a_name_that_is_none(hub: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(PoolError, match=r"'a b/c/d' is not the name of a Hub repository, such as Qwen/"):
        load_pool(card(tmp_path, {"id": "a b/c/d"}))


def test_no_network(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_hub("http://127.0.0.1:9", tmp_path / "cache", monkeypatch)
    with pytest.raises(HubDownError, match=r"tiny/target is not in the local cache, and .* cannot be reached"):
        load_pool(card(tmp_path))


def test_a_name_that_cannot_be_resolved_is_not_tried_again_and_again(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_pool(card(tmp_path))
    drafters_hub._folders.clear()

    def unknown(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(drafters_hub, "getproxies", dict)
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: pytest.fail("it waits"))
    commit = {"id": "tiny/target", "revision": "f" * 40}
    with pytest.raises(HubDownError, match=r"tiny/target is not in the local cache, and .* cannot be reached"):
        load_pool(card(tmp_path, commit))
    assert load_pool(card(tmp_path)).name == "from-hub", "what the cache holds will do"


def test_the_library_s_lines_about_its_tries_are_not_shown(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    at_hub("http://127.0.0.1:9", tmp_path / "cache", monkeypatch)
    path = card(tmp_path, {"id": "tiny/target", "revision": "f" * 40})
    assert main(["generate", "abc", "--pool", str(path)]) == 2
    lines = capfd.readouterr().err.replace("\r", "\n").splitlines()
    said = [line for line in lines if line and not line.startswith("fetching the target")]
    assert len(said) == 1 and "cannot be reached: check the network" in said[0]


def test_offline_mode(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(PoolError, match=r"not in the local cache, and HF_HUB_OFFLINE forbids") as raised:
        load_pool(card(tmp_path))
    assert not isinstance(raised.value, HubDownError), "waiting would not help"


def test_a_hub_that_is_down(hub: FakeHub, tmp_path: Path) -> None:
    hub.broken = True
    with pytest.raises(HubDownError, match=r"tiny/target answered 503; try again later"):
        load_pool(card(tmp_path))


def is_passing(error: Exception) -> bool:
    return isinstance(problem(error, Source(id="tiny/target")), HubDownError)


@pytest.mark.parametrize(
    ("status", "passing"), [(500, True), (503, True), (429, True), (400, False), (403, False), (416, False)]
)
def test_which_answers_may_pass(status: int, passing: bool) -> None:
    response = httpx2.Response(status, request=httpx2.Request("GET", "https://hub"))
    assert is_passing(HfHubHTTPError("", response=response)) is passing


def test_a_connection_that_breaks_may_hold_next_time() -> None:
    assert is_passing(httpx2.ReadError("the connection was reset"))
    assert is_passing(RuntimeError("Task error: CAS Client Error: Request middleware error: error sending request"))
    assert not is_passing(OSError(errno.ENOSPC, "no room")) and not is_passing(ValueError("a bug"))
    assert not is_passing(httpx2.UnsupportedProtocol("HF_ENDPOINT without https://"))


def test_a_repository_without_safetensors(hub: FakeHub, tmp_path: Path) -> None:
    weights = hub.root / "tiny" / "target" / "model.safetensors"
    weights.rename(weights.with_name("pytorch_model.bin"))
    with pytest.raises(PoolError, match=r"tiny/target holds no \.safetensors weights.*can run code"):
        load_pool(card(tmp_path))


def test_broken_weights_are_told_by_the_repository_s_name(hub: FakeHub, tmp_path: Path) -> None:
    (hub.root / "tiny" / "near" / "model.safetensors").write_bytes(b"")
    with pytest.raises(PoolError, match="cannot load drafter 'near' from tiny/near"):
        load_pool(card(tmp_path))


REFUSAL: Any = SimpleNamespace(status_code=403, headers={}, request=None)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), r"does not fit on the disk of .*set HF_HOME"),
        (HFValidationError("x"), "is not the name of a Hub repository"),
        (DisabledRepoError("x", response=REFUSAL), "has been disabled"),
        (ValueError("something\nelse."), "cannot be fetched: something$"),
        (ValueError(), "cannot be fetched: ValueError$"),
    ],
)
def test_rare_errors_have_a_line_each(error: Exception, said: str) -> None:
    with pytest.raises(PoolError, match=said):
        raise problem(error, Source(id="tiny/target"))


def test_a_report_that_raises_ends_the_fetching(hub: FakeHub, tmp_path: Path) -> None:
    def enough(step: Step) -> None:
        if step.done_bytes:
            raise PoolError("enough")

    with pytest.raises(PoolError, match=r"^enough$"):
        load_pool(card(tmp_path), progress=enough)


def test_bytes_are_told_while_they_arrive(hub: FakeHub, tmp_path: Path) -> None:
    hub.flow.clear()
    partly, steps = threading.Event(), list[Step]()

    def note(step: Step) -> None:
        steps.append(step)
        if 0 < step.done_bytes < step.total_bytes:
            partly.set()

    loader = threading.Thread(target=load_pool, args=(card(tmp_path),), kwargs={"progress": note})
    loader.start()
    assert partly.wait(30)
    hub.flow.set()
    loader.join(60)
    assert steps[-1].number == steps[-1].of == 5


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory: you tried …"),
    ],
)
@pytest.mark.parametrize("part", ["the target", "drafter 'near'"])
def test_memory_that_runs_out(pool_card: Path, error: Exception, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(model: object) -> None:
        calls.append(model)
        if len(calls) == (1 if part == "the target" else 2):
            raise error

    calls: list[object] = []
    monkeypatch.setattr(loading, "_probe", full)
    with pytest.raises(PoolError) as caught:
        load_pool(pool_card)
    said = str(caught.value)
    assert "pool 'tiny' does not fit into the memory that is free on cpu" in said and part in said
    assert "nf4" in said and "\n" not in said
