"""The files of a batch that has ended."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from multidraft.bench import summary
from multidraft.bench.batches import summary_of_batches
from multidraft.bench.summary import Row
from multidraft.service.batch import BatchJob
from multidraft.ui.tabs.batch.recorded import RecordedBatch
from multidraft.ui.widgets.exports import offered_file
from storage.export import cell
from storage.records import status_title

FILES = {"csv": "CSV", "json": "JSON", "parquet": "Parquet"}
"""Suffixes and names."""


def written(batch: BatchJob | RecordedBatch, version: str) -> list[Path | None]:
    """One for each of ``FILES``; ``version`` is this server's."""
    name = batch.suite.name if batch.suite else "batch"
    made_by = batch.about["version"] if isinstance(batch, RecordedBatch) else version
    about = {
        "pool": batch.pool,
        "hardware": batch.hardware,
        "dtype": batch.dtype,
        "version": made_by,
        "batch": batch.id,
        "parameters": asdict(batch.params),
        "texts_at_once": batch.texts_at_once,
        "throughput": summary_of_batches(batch.figures),
        "seed": batch.seed,
        "problems": [asdict(problem) for problem in (batch.suite.problems if batch.suite else [])],
        "suite": name,
    }
    prompts = [batch.items[place].prompt for place in batch.items_of_rows]
    title = "-".join((name, batch.id[:8], str(made_by).replace("+", "-")))
    return [offered_file(f"{title}.{suffix}", lambda path: write(path, batch.rows, prompts, about)) for suffix in FILES]


def write(path: Path, rows: Sequence[Row], prompts: Sequence[str], about: Mapping[str, object]) -> None:
    """All rows with all columns, the output included, in the format of the file's suffix; in JSON also ``about`` and
    the summary. CSV has statuses in the page's words. Tables have the text of each row's prompt beside the number that
    tells it apart."""
    frame = pd.DataFrame(list(rows), columns=summary.COLUMNS).rename(columns={"prompt": "prompt_hash"})
    frame["run"] = frame["run"].astype("Int64")  # what did not run has none, and the others' are whole numbers
    frame.insert(frame.columns.get_loc("task"), "prompt", list(prompts))
    if path.suffix == ".csv":
        frame["status"] = frame["status"].map(status_title)
        frame.map(cell).to_csv(path, index=False, lineterminator="\r\n")
    elif path.suffix == ".parquet":
        types = {**dict.fromkeys(summary.NUMBERS, float), "lossless": "boolean"}  # even if all are missing
        frame.astype(types).to_parquet(path, index=False)
    else:
        path.write_text(json.dumps({**about, **summary.as_json(rows)}, ensure_ascii=False, indent=1), encoding="utf-8")
