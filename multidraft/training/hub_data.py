"""Files of prompts from a data set on the Hugging Face Hub, by ``huggingface_hub`` alone."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import huggingface_hub

from drafters.errors import TrainingError, first_line

READABLE = (".jsonl", ".ndjson", ".json", ".csv", ".parquet")
FORM = re.compile(r"(?P<id>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+?))?(:(?P<files>.+))?")
"""``OWNER/NAME``, and if need be ``@REVISION`` and which ``:FILES``: a path, or a pattern such as ``main/train*``."""


def dataset_files(source: str) -> list[Path]:
    """Fetch the files of prompts of a data set, or those that ``source`` (see :data:`FORM`) names.

    Without a pattern they are those whose path says ``train``, or all, of the first kind of :data:`READABLE` there is.

    Raises:
        TrainingError: no such data set, no network, or no file that can be read.
    """
    form = FORM.fullmatch(source)
    if form is None:
        raise TrainingError(f"{source!r} is neither a file nor a data set of the Hub (OWNER/NAME)")
    name, revision, pattern = form["id"], form["revision"], form["files"]
    try:
        every = huggingface_hub.list_repo_files(name, repo_type="dataset", revision=revision)
        chosen = choose(every, pattern)
        if not chosen:
            shown = ", ".join(sorted(every)[:8]) or "nothing"
            raise TrainingError(
                f"the data set {name} has no file {f'like {pattern!r}' if pattern else 'of prompts'} that can be read "
                f"({', '.join(READABLE)}); it holds {shown}. Say which by {name}:FILES, or download and convert it"
            )
        fetched = [huggingface_hub.hf_hub_download(name, f, repo_type="dataset", revision=revision) for f in chosen]
    except TrainingError:
        raise
    except Exception as error:
        raise TrainingError(
            f"cannot fetch the data set {name} from the Hub: {first_line(error)}. If it is a file that you mean, there "
            "is none of that name; else check name and network (and, for a gated one, that you are logged in)"
        ) from error
    return [Path(file) for file in fetched]


def choose(files: list[str], pattern: str | None) -> list[str]:
    """Which ``files`` of a data set hold its prompts; see :func:`dataset_files`."""
    visible = [f for f in sorted(files) if not any(part.startswith(".") for part in PurePosixPath(f).parts)]
    if pattern:
        return [f for f in visible if fnmatch(f, pattern) and f.lower().endswith(READABLE)]
    for kind in READABLE:
        found = [f for f in visible if f.lower().endswith(kind) and PurePosixPath(f).name != "dataset_infos.json"]
        if found:
            return [f for f in found if "train" in f.lower()] or found
    return []
