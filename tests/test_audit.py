"""An audit that looked up nothing is told from one that found nothing."""

import json
import sys
from pathlib import Path

import pytest

from tests import audit

GOOD = {"name": "a", "version": "1", "vulns": []}
BAD = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1"}, {"id": "CVE-2"}]}
LEFT = {"name": "c", "skip_reason": "Dependency not found on PyPI and could not be audited: c (3)"}


@pytest.mark.parametrize(
    ("found", "status", "said"),
    [
        ([GOOD, GOOD], 0, "audited 2 libraries: 0 known"),
        ([GOOD, BAD], 1, "VULNERABLE: b 2: CVE-2\naudited 2 libraries: 2 known"),
        ([GOOD, LEFT], 2, "COULD NOT AUDIT 1 of 2 libraries, e.g. Dependency not found on PyPI"),
        ([BAD, LEFT], 1, "VULNERABLE: b 2: CVE-2\nCOULD NOT AUDIT 1 of 2"),
        ([], 2, "COULD NOT AUDIT 0 of 0"),
        (None, 2, r"COULD NOT AUDIT: pip-audit ended with status 7: no route to host"),
    ],
)
def test_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str], found, status: int, said: str) -> None:
    script = "raise SystemExit(7)" if found is None else f"print({json.dumps({'dependencies': found})!r})"
    (tmp_path / "script.py").write_text(f"import sys\nprint('no route to host', file=sys.stderr)\n{script}")
    command = [sys.executable, "-S", str(tmp_path / "script.py")]
    assert audit.main(["--", *command]) == status
    assert said in capsys.readouterr().out
    assert audit.main(["--told", "--", *command]) == (1 if status == 1 else 0)
    assert said in capsys.readouterr().out, "what could not be audited is told in any case"


def test_no_pip_audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main([str(tmp_path / "pip-audit")]) == 2
    assert "COULD NOT AUDIT: [Errno 2] No such file" in capsys.readouterr().out
