"""The verdict on a kind of traffic: what ``python -m multidraft advise`` prints, on the page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from markupsafe import Markup

from drafters.errors import UserError, without_folders
from multidraft.bench.action import left_out, untried
from multidraft.bench.measured_verdict import of_rows
from multidraft.bench.summary import Row
from multidraft.bench.verdict import verdict
from multidraft.bench.verdict_tables import tables
from multidraft.policies.titles import policy_title
from multidraft.replay.advice import Advice
from multidraft.service.lab import ReplayJob, Verdicts
from multidraft.ui.widgets import markup
from storage.problems import StorageError

T = TypeVar("T")

UPDATE_SECONDS = 0.3

_template = markup.macros("widgets/verdict.html")


def watched_batch(
    verdicts: Verdicts, id: str, rows: Sequence[Row], draft_length: int, may_load: bool
) -> Iterator[Markup]:
    """The verdict on a batch, with a button, as of :func:`watched`; where its texts cannot be replayed, what its runs
    say by themselves. It goes on for others who ask."""
    shown = partial(verdict_html, run_more=True, may_load=may_load)
    none, measured = "No advice on drafters and draft length", partial(_measured, rows, draft_length)
    yield from watched(lambda: verdicts.job(id), shown, "Working out the verdict …", none, measured)


def _measured(rows: Sequence[Row], draft_length: int) -> Markup:
    """The verdict on measured runs; empty where they tell nothing."""
    try:
        return verdict_html(of_rows(rows, draft_length))
    except UserError:
        return Markup()


def watched(
    begin: Callable[[], ReplayJob[T]],
    shown: Callable[[T], Markup],
    doing: str,
    none: str,
    instead: Callable[[], Markup] = Markup,
) -> Iterator[Markup]:
    """How far a job is that begins now, ``doing`` so; then its result as ``shown``, or what stands ``instead`` and why
    there is ``none``. Whoever stops watching ends the job, unless it is shared."""
    try:
        job = begin()
    except (UserError, StorageError) as error:
        yield instead() + markup.message_html("idle", without_folders(f"{none}: {error}."))
        return
    try:
        ended = job.done
        while not ended:
            yield markup.progress_html(doing, job.replays, job.total or 1, "Replays")
            ended = job.wait(UPDATE_SECONDS)
    finally:
        job.leave()
    if job.result:
        yield shown(job.result)
    else:
        yield instead() + markup.message_html("idle", without_folders(f"{none}: {job.error or 'it was stopped'}."))


def verdict_html(advice: Advice, *, run_more: bool = False, may_load: bool = False) -> Markup:
    """What to do, then the reasons and each table, to be opened; policies by their titles. With ``run_more`` a button
    for what is to be run on the same prompts too, which the page has to hear; with ``may_load`` a link to where the
    pool is loaded without drafters that can go."""
    shown = [
        markup.folded(
            titled(table.title),
            markup.table_html(
                list(map(titled, table.columns)),
                [(titled(row[0]), *map(markup.ratio_html, row[1:])) for row in table.rows],
                figures=table.figures,
                kind="md-advice",
                label=titled(table.title),
            ),
        )
        for table in tables(advice)
    ]
    more = untried(advice) if run_more else None
    said = ([sentence.split("`") for sentence in part] for part in verdict(advice))
    pool = advice.text.conditions.pool if may_load and advice.text else ""
    return _template.verdict(*said, shown, more, left_out(advice), pool)


def titled(text: str) -> str:
    """A text whose policies, in backticks, go by their titles."""
    return re.sub("`([^`]+)`", lambda named: policy_title(named[1]), text)
