"""The verdict on a kind of traffic: what ``python -m multidraft advise`` prints, on the page."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from drafters.errors import UserError
from multidraft.bench.verdict import sentences, tables
from multidraft.replay.advice import Advice
from multidraft.service.lab import LabWork
from multidraft.ui.widgets import markup
from storage.problems import StorageError
from storage.texts import TextFilter

UPDATE_SECONDS = 0.3

_template = markup.macros("widgets/verdict.html")


def watched_verdict(work: LabWork, filter: TextFilter) -> Iterator[Markup]:
    """The verdict on the texts of a filter: how far it is, then the verdict, or why there is none. Whoever stops
    watching ends it."""
    try:
        job = work.advise(filter)
    except (UserError, StorageError) as error:
        yield markup.message_html("idle", f"No verdict: {error}.")
        return
    try:
        ended = False
        while not ended:
            yield markup.progress_html("Working out the verdict …", job.replays, job.total or 1, "Replays")
            ended = job.wait(UPDATE_SECONDS)
    finally:
        job.cancel()
    if job.error:
        yield markup.message_html("idle", f"No verdict: {job.error}.")
    elif job.result:
        yield verdict_html(job.result)


def verdict_html(advice: Advice) -> Markup:
    """Sentences, then each table, to be opened."""
    shown = [
        markup.folded(
            table.title, markup.table_html(table.columns, table.rows, figures=table.figures, label=table.title)
        )
        for table in tables(advice)
    ]
    return _template.verdict([sentence.split("`") for sentence in sentences(advice)], shown)
