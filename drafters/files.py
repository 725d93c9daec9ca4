"""Files that are run as modules, and files that are replaced by whole ones."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType


def run_file(path: Path, known_as: str) -> ModuleType:
    """Run a ``.py`` file as the module ``known_as``, which is known while it runs and, unless it fails, after that.

    Raises:
        Exception: whatever the file raises.
        SystemExit: likewise, if it ends itself.
    """
    spec = spec_from_file_location(known_as, path)
    assert spec and spec.loader, f"{path} is no .py file"
    module = module_from_spec(spec)
    sys.modules[known_as] = module  # dataclasses and pickle look it up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[known_as]
        raise
    return module


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside ``path`` to write, which is put in its place then: an interruption leaves the old one, or none.
    Of a link it is the place of the file that it names; a device or a pipe is written itself."""
    path = path.resolve()
    if path.exists() and not path.is_file():
        yield path
        return
    part = path.with_name(f"{path.name}.part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
