"""Rules on the shape of the code itself; which folder may import which is import-linter's (pyproject.toml)."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
LONGEST = 350
WRITTEN = {".py", ".css", ".js", ".html"}


def test_no_file_is_longer_than_350_lines():
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    found = [Path(name) for name in names] or [path.relative_to(ROOT) for path in (ROOT / "multidraft").rglob("*")]
    files = [path for path in found if path.suffix in WRITTEN and (ROOT / path).is_file()]
    assert len(files) > 100
    lengths = {str(path): len((ROOT / path).read_text().splitlines()) for path in files}
    assert not {name: n for name, n in lengths.items() if n > LONGEST}
