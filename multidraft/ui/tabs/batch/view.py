"""What the page shows of a batch: its suite, where it stands, its results, one prompt in detail; and its files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import nlargest
from typing import Any

from markupsafe import Markup

from drafters.errors import ContextWindowError
from drafters.pool import Pool
from multidraft.bench import summary, verdict
from multidraft.bench.batches import summary_of_batches
from multidraft.bench.measured_verdict import leader
from multidraft.bench.suites import Suite
from multidraft.bench.summary import Figures, Row
from multidraft.policies.titles import policy_title
from multidraft.service import unfamiliar
from multidraft.service.batch import BatchJob
from multidraft.ui.tabs.batch.recorded import RecordedBatch
from multidraft.ui.widgets import markup, tokens
from multidraft.ui.widgets.markup import count, macros, message_html, number, progress_html, times
from storage.figures import FEWEST_TO_TELL
from storage.records import status_title
from storage.unfinished import planned

ALL_TASKS, ALL_PROMPTS = "all tasks", "all prompts"

SHOWN_TASKS = 20
"""Tasks of a suite that are counted one by one where it is read."""

MAT = markup.tip("MAT", markup.MAT)

FIGURES = 5
"""Columns of figures at the right of the table of results."""

_template = macros("tabs/batch/batch.html")

HINT = markup.caption_html("Open a prompt above to compare its outputs, token by token.")

VERDICT_TO_COME = message_html(
    "idle md-awaited",
    "When all runs have ended, the verdict appears here: which policy, draft length and drafters suit such prompts.",
)

GONE = message_html("error", "There is no such batch here, or it is older than this server keeps.")


def suite_html(suite: Suite) -> Markup:
    """What was read of a suite: prompts by task, and the lines that could not be read, by number."""
    tasks = Counter(item.task or summary.NO_TASK for item in suite.items)
    named = list(tasks) != [summary.NO_TASK]
    shown, more = list(tasks.items())[:SHOWN_TASKS] if named else [], len(tasks) - SHOWN_TASKS
    different = len({item.prompt for item in suite.items})
    repeated = f", {different:,} of them distinct (each counts once)" if different < len(suite.items) else ""
    prompts = count(len(suite.items), "prompt") + repeated
    return _template.suite(prompts, shown, more, suite.problems, suite.more_problems)


def unfamiliar_html(suite: Suite, pool: Pool) -> Markup:
    """A word of warning where prompts are of no task that the pool knows (``service.unfamiliar``)."""
    said = unfamiliar.warning(
        lambda _, prompt: pool.fits(prompt), pool.card_hash, (item.prompt for item in suite.items)
    )
    if not said or pool.router is None:
        return Markup()
    tasks = pool.router.drafters
    return message_html("odd", f"{pool.title} knows {count(len(tasks), 'task')}: {', '.join(tasks)}. {said}")


def long_html(suite: Suite, pool: Pool) -> Markup:
    """A word of warning where prompts do not fit the context window: of the longest ``unfamiliar.MOST_JUDGED``, as
    more would take long to look at."""
    longest = nlargest(unfamiliar.MOST_JUDGED, (item.prompt for item in suite.items), key=len)
    if not (long := sum(_fills_window(prompt, pool) for prompt in longest)):
        return Markup()
    least, have = "At least " * (long == unfamiliar.MOST_JUDGED), "has" if long == 1 else "have"
    window = f"more tokens than the context window ({pool.target.window:,}) holds beside an answer"
    return message_html("odd", f"{least}{count(long, 'prompt')} {have} {window} and will not be run.")


def _fills_window(prompt: str, pool: Pool) -> bool:
    if 4 * len(prompt) < pool.target.window:  # a character is at most four tokens, its bytes
        return False
    try:
        return len(pool.encode(prompt)) >= pool.target.window
    except ContextWindowError:
        return True


def status_html(run: BatchJob) -> Markup:
    """Where a batch stands, or how it ended."""
    if run.done:
        return _end_html(run)
    doing, now = f"Batch running on pool {run.pool}", f": {run.runs_done:,} of {run.total:,} runs done"
    if run.cancelled.is_set():
        doing = f"Batch on pool {run.pool} stopping after the round in progress"
    else:
        left = run.seconds_left
        now += f", {duration(left)} left" if left is not None else ", time left unknown"
        if at_work := run.now:
            item, policy = at_work
            what = item.task or item.id if run.texts_at_once == 1 else f"{run.texts_at_once} texts at once"
            now += f"; now {what}, {policy_title(policy)} …"
    return progress_html(doing, run.runs_done, run.total, "Progress of the batch", now)


def recorded_html(batch: RecordedBatch) -> Markup:
    """How a batch of the history ended, as far as that is known there."""
    about = batch.about
    runs = f"{about['finished']} of {count(about['runs'], 'run')} finished, {about['created_at'][:10]}"
    suite = f"suite {about['suite']}" if about["suite"] else count(about["prompts"], "prompt")
    gone = " Its throughput is not kept." if batch.texts_at_once > 1 else ""
    ended = f" {markup.sentence(about['ending'])}" if about["ending"] else ""
    kind = "cancelled" if ended else "idle"
    return message_html(kind, f"From the history: {runs}, {suite} on pool {batch.pool}.{ended}{gone}")


def unfinished_html(asked: Mapping[str, Any], done: int, waits: bool) -> Markup:
    """Where a batch stands that waits for its pool, or that another server is at; ``asked`` as of ``RecordedBatch``."""
    pool, runs = asked["conditions"]["pool"], f"{done:,} of {count(planned(asked), 'run')} done"
    if not waits:
        return message_html("idle", f"Under way on another server of this history: {runs}. Reload the page for more.")
    return message_html(
        "cancelled",
        f"Interrupted by a restart of the server: {runs}. The batch goes on, under this address, once pool {pool} is "
        "in use again, unchanged; reload the page then.",
    )


def takes_html(prompts: int, policies: int, seconds: float, limit: int | None) -> Markup:
    """How much a batch would be, and how long it would take, 0 seconds being unknown: by the newest one with the same
    limit of tokens (``None``) or another ``limit``, or by autoregressive decoding (0)."""
    runs = f"{count(prompts, 'prompt')} under {count(policies, 'policy')}"
    if not seconds:
        return markup.caption_html(f"{runs}.")
    if limit is None:
        by = ", by the newest batch on this machine"
    elif limit:
        by = f" at most on a quiet machine, by the newest batch on it, of {limit:,} new tokens at most"
    else:
        by = " at most on a quiet machine, by autoregressive decoding up to max new tokens"
    return markup.caption_html(f"{runs}: {duration(seconds)}{by}.")


def duration(seconds: float) -> str:
    """An estimate in words, no finer than it deserves."""
    if seconds < 90:
        return f"about {max(5, 5 * round(seconds / 5))} s"
    if seconds < 90 * 60:
        return f"about {round(seconds / 60)} min"
    return f"about {seconds / 3600:.1f} h"


def _end_html(run: BatchJob) -> Markup:
    counts = {
        "too long": sum(row.status == summary.TOO_LONG for row in run.rows),
        "with an error": sum(row.status == "error" for row in run.rows),
    }
    if run.error:
        report = "" if run.cancelled.is_set() else " Please report it."
        return message_html("error", markup.sentence(run.ending) + report)
    how, kind = ("Stopped", "cancelled") if run.cancelled.is_set() else ("Done", "done")
    parts = [f"{how}: {run.runs_done} of {run.total} runs", *(f"{n} {what}" for what, n in counts.items() if n)]
    if run.unkept:
        parts.append(f"{run.unkept} not in the history yet (see the Dashboard tab)")
    if run.suite and (problems := run.suite.problems):
        lines = ", ".join(str(problem.line) for problem in problems)
        more = f" and {run.suite.more_problems:,} more" if run.suite.more_problems else ""
        parts.append(f"left out of the file: line{'s' * (len(problems) > 1)} {lines}{more}")
    most = count(run.params.max_new_tokens, "token")
    at_once = f", {run.texts_at_once} texts at once" if run.texts_at_once > 1 else ""
    about = f"{count(len(run.items), 'prompt')}, {count(len(run.policies), 'policy')}, at most {most} each{at_once}."
    suite = f"Suite “{run.suite.name}”" if run.suite else "Batch"
    below = Markup(' <a href="#batch-verdict">Verdict ↓</a>') if run.rows else ""
    return message_html(kind, f"{', '.join(parts)}. {suite} on pool {run.pool}: {about}", below)


def rows_start() -> Markup:
    """Head of the table of results, to which rows are appended."""
    decode = markup.tip("Decode speed-up", "Over autoregressive decoding of the same prompt, decoding only")
    request = markup.tip("Request speed-up", "The same of the whole request, prefill and routing included")
    columns = ("Prompt", "Task", "Policy", "Status", "Remark", "Tokens", MAT, "Tokens/s", decode, request)
    return markup.table_start(columns, FIGURES, "md-rows", "Runs of the batch")


def rows_html(batch: BatchJob | RecordedBatch, start: int, end: int) -> Markup:
    """Some lines of the table of results."""
    places = batch.items_of_rows[start:end]
    return Markup().join(
        row_html(row, place, batch.items[place].prompt)
        for row, place in zip(batch.rows[start:end], places, strict=True)
    )


def row_html(row: Row, item: int, prompt: str) -> Markup:
    """One line of the table of results; its button shows how the prompt begins and opens it, ``item`` of the batch."""
    tokens = row.tokens if row.finished else None
    figures = [
        str(row.tokens),
        number(row.mean_accepted_tokens, 2),
        number(row.tokens_per_second, 1),
        times(row.speedup, tokens, row.speedup_uncertainty),
        times(row.request_speedup, tokens, row.speedup_uncertainty),
    ]
    remark = _template.remark(markup.sentence(row.error)) if row.error else ""
    texts = [_template.opener(item, row.id, prompt), row.task, policy_title(row.policy), _ended(row), remark]
    return markup.row_html([*texts, *figures], FIGURES)


def _ended(row: Row) -> Markup:
    """How a run ended, in a word."""
    return _template.status(status_title(row.status), row.finished)


def throughput_html(run: BatchJob) -> Markup:
    """What the batches of several texts at once made under each policy, and that single runs have no speeds."""
    if run.texts_at_once == 1:
        return Markup()
    beside = f"Rounds were taken beside those of up to {run.texts_at_once - 1} other texts, " + (
        "with which they shared forwards"
        if run.shares_forwards
        else "with which they share no forwards on this pool's runtime: texts took turns"
    )
    lines = [
        {
            "Policy": policy_title(line["policy"]),
            "Tokens/s": number(line["tokens_per_second"], 1),
            "Over no drafter": number(line["over_batch"], 2, "×"),
            MAT: number(line["tokens"] / line["rounds"], 2),
            "Texts": line["texts"],
            "Tokens": line["tokens"],
            "Seconds": number(line["seconds"], 1),
        }
        for line in summary_of_batches(run.figures)
    ]
    about = (
        f"{beside}. So speeds of single runs are not shown, but the throughput: new tokens of all texts in a second, "
        f"reading prompts and waiting for the last text included; × compares with No drafter, {run.texts_at_once} "
        "texts at once too, where that is among the policies."
    )
    if missing := len(run.policies) - len(run.figures):
        about += f" Of {count(missing, 'policy')} there is none, since not all texts came to their end."
    label = f"Throughput of {run.texts_at_once} texts at once"
    return markup.caption_html(about) + (markup.table_of(lines, figures=6, label=label) if lines else Markup())


def summary_html(rows: Sequence[Row], policies: Sequence[str], measured_on: str) -> Markup:
    """Tasks by policies, and all figures of each."""
    matrix = matrix_html(rows, policies)
    what = (
        "Decode speed-up over autoregressive decoding (ratio of totals over the prompts that all policies ran, each "
        "once) with its 95 % interval; ★ marks a policy whose whole requests are faster than every other's (95 %, "
        f"compared prompt by prompt, on {FEWEST_TO_TELL} prompts at least). ± is how far timings may put it off, where "
        "prompts are too few for an interval; where timings are too noisy for one figure, only the range is given."
        if matrix
        else ""
    )
    label = "All figures by task and policy"
    whole = markup.table_of(
        [_figures(*of, found) for of, found in summary.summarise(rows).items()], figures=7, label=label
    )
    about = f"{measured_on}. {what} {markup.left_out(summary.short_rows(rows))}"
    return markup.caption_html(about) + matrix + markup.folded(label, whole)


def _figures(task: str, policy: str, found: Figures) -> dict[str, Any]:
    return {
        "Task": task,
        "Policy": policy_title(policy),
        "Runs": found.runs,
        "Finished": found.finished,
        "Too long": found.too_long,
        "Tokens/s": number(found.tokens_per_second, 1),
        "Decode speed-up": verdict.times(found.speedup),
        "Request speed-up": verdict.times(found.request_speedup),
        MAT: number(found.mean_accepted_tokens, 2),
    }


def matrix_html(rows: Sequence[Row], policies: Sequence[str]) -> Markup:
    """Speed-up of decoding by task and policy, the best of each task marked; the last line over all tasks, which alone
    has an interval where there are few prompts. Nothing where no run has one."""
    if all(row.speedup is None for row in rows):
        return Markup()
    tasks = sorted({row.task for row in rows})
    of_task: dict[str, Sequence[Row]] = {task: [row for row in rows if row.task == task] for task in tasks}
    if len(of_task) > 1:
        of_task[ALL_TASKS] = rows
    elif list(of_task) == [summary.NO_TASK]:
        of_task = {ALL_PROMPTS: rows}
    *_, whole = of_task.values()
    return markup.table_html(
        ("Task", *map(policy_title, policies)),
        (
            [task, *_cells(summary.overall(own, FEWEST_TO_TELL if own is not whole else 0), policies, leader(own))]
            for task, own in of_task.items()
        ),
        figures=len(policies),
        kind="md-matrix",
        label="Speed-up by task and policy",
    )


def _cells(found: Mapping[str, Figures], policies: Sequence[str], best: str | None) -> list[str]:
    cells = []
    for policy in policies:
        ratio = found[policy].speedup if policy in found else None
        cells.append(markup.ratio_html(verdict.times(ratio), policy == best))
    return cells


def detail_html(run: BatchJob | RecordedBatch, item: int) -> Markup:
    """One prompt under all its policies: figures, error, and the output in the drafters' colours."""
    prompt = run.items[item]
    places = [index for index, place in enumerate(run.items_of_rows) if place == item]
    cards = [_card_html(run, index, run.rows[index]) for index in places]
    title = f"Prompt {prompt.id}, {prompt.task or summary.NO_TASK}"
    return _template.detail(title, prompt.prompt, cards, tokens.legend_html(run.drafters))


def _card_html(run: BatchJob | RecordedBatch, index: int, row: Row) -> Markup:
    facts = (
        (count(row.tokens, "token"), ""),
        (number(row.mean_accepted_tokens, 2), MAT),
        (number(row.tokens_per_second, 1), "tokens/s"),
        ("decode speed-up", times(row.speedup, row.tokens if row.finished else None, row.speedup_uncertainty)),
    )
    output = tokens.OUTPUT_START + tokens.rounds_html(run.rounds(index), run.drafters) + Markup("</div>")
    return _template.card(
        policy_title(row.policy),
        _ended(row),
        facts if row.tokens else (),
        markup.sentence(row.error) if row.error else "",
        output,
    )
