"""The values of the form that start a batch once more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from drafters.errors import SuiteError
from multidraft.bench.suites import load_suite, suite_names
from multidraft.service.batch import BatchJob
from multidraft.service.workbench import Workbench
from multidraft.ui.tabs.batch.kept import KeptBatch
from storage.experiments import note
from storage.problems import StorageError


def form_of(batch: BatchJob | KeptBatch, workbench: Workbench) -> tuple[Any, ...]:
    """In the order of the fields, as far as the file is still there."""
    if isinstance(batch, KeptBatch):
        suite, file = batch.bundled, None
    else:
        name = batch.suite.name if batch.suite else None
        suite = name if batch.file is None and name in suite_names() else None
        file = batch.file if batch.file and Path(batch.file).exists() else None  # uploads are kept for a day
    params = batch.params
    draft_length = 0 if params.draft_length == workbench.pool.draft_length else params.draft_length
    settings = (params.max_new_tokens, batch.texts_at_once, draft_length, params.temperature)
    most, note = _most(file or suite, batch.prompt_count), _note(batch.id, workbench)
    # Who opted out then has not opted in by coming back; who has opted out since, stays out.
    learn = gr.skip() if batch.learn else False
    return suite, file, batch.policies, most, *settings, note, learn


def _most(source: str | None, prompts: int) -> int:
    """The field for the most prompts of a batch that ran so many of a suite: 0, which is all, where these were all."""
    try:
        return 0 if source and len(load_suite(source).items) == prompts else prompts
    except SuiteError:
        return prompts


def _note(id: str, workbench: Workbench) -> str:
    try:
        return note(workbench.store.path, id)
    except StorageError:
        return ""
