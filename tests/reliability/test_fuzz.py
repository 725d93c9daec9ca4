"""A few malformed inputs of each kind, to a server in this process."""

import logging
from pathlib import Path

import httpx
import pytest

from multidraft.service.workbench import Workbench
from multidraft.ui.app import serve
from storage.store import Store
from tests.reliability.fuzz import INPUTS, Fuzz, Report

FOUND = {
    "event": (-2, [], None),
    "API": ("nonsense", []),
    "body": ("gradio_api/call/generate", b'["a\\ud83d"]'),
    "upload": ("a.zip", b"PK"),
}
"""What once made the server fail, or write a traceback."""


@pytest.fixture
def fuzz(pool, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("gradio.networking.url_ok", lambda _: False)  # as if the machine were too busy to answer soon
    with Store(tmp_path / "runs.db") as store:
        workbench = Workbench(pool, store)
        page = serve(workbench)
        with httpx.Client(base_url=page.local_url, timeout=30) as http:
            yield Fuzz(http, tmp_path, Report())
        page.close()
        workbench.close()


def test_malformed_input(fuzz: Fuzz, caplog: pytest.LogCaptureFixture, monkeypatch, tmp_path: Path) -> None:
    report = fuzz.report
    with caplog.at_level(logging.ERROR):
        for kind in INPUTS:
            fuzz.check_many(kind, 1, 5, lambda: 0.0)
        for kind, what in FOUND.items():
            fuzz.check(kind, what)
    assert report.well and report.sent.total() == len(INPUTS) + len(FOUND), str(report)
    assert not caplog.records, caplog.text

    monkeypatch.setattr(fuzz, "send", lambda _, what: "The server failed" if what else f"{tmp_path}/a")
    fuzz.check("spec", "a")
    fuzz.check("spec", "")
    assert len(report.failed) == len(report.leaked) == 1 and not report.well, "failures and paths are noticed"
