"""What the Lab hands out: its tables as CSV, and how a replay is cited."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import gradio as gr
from markupsafe import Markup

from multidraft._version import version
from multidraft.bench.action import listed
from multidraft.replay.experiment import Experiment
from multidraft.service.lab import Sweep
from multidraft.ui.result_pages.conditions import bibtex, made_of
from multidraft.ui.result_pages.pages import root_of
from multidraft.ui.tabs.lab import view
from multidraft.ui.tabs.lab.texts import Asked, query_of
from multidraft.ui.widgets import markup
from multidraft.ui.widgets.exports import offered_file
from storage.export import csv_of
from storage.figures import ratio_columns


def outcomes_file(experiment: Experiment) -> Path | None:
    """The table of outcomes, with what each figure is of."""
    made = experiment.recorded[0].run.conditions
    about = {"pool": made.pool, "card": made.card_hash, "hardware": made.hardware, "dtype": made.dtype}
    lines = []
    for spec in (*experiment.policies, *view.references(experiment)):
        o, (decode, request) = experiment.outcome(spec), experiment.speedups(spec)
        line = {
            "policy": spec or view.title(spec),
            "estimate": view.estimated(spec),
            "texts": o.texts,
            "tokens": o.tokens,
            "rounds": o.rounds,
            "mean_accepted_tokens": o.mean_accepted_tokens,
            "regret_rounds": o.regret,
            "best_arm_ratio": o.best_arm_ratio,
            "replayed_tokens_per_second": o.tokens_per_second,
        }
        lines.append(line | ratio_columns("speedup", decode) | ratio_columns("request_speedup", request) | about)
    return _file("lab-replay.csv", lines)


def sweep_file(sweep: Sweep) -> Path | None:
    """The table of a sweep."""
    lines = [
        {
            "policy": sweep.policy,
            sweep.setting: value,
            "texts": o.texts,
            "mean_accepted_tokens": o.mean_accepted_tokens,
            "regret_rounds": o.regret,
            "replayed_tokens_per_second": o.tokens_per_second,
        }
        for value, o in sweep.outcomes.items()
    ]
    return _file("lab-sweep.csv", lines)


def offered(file: Path | None) -> gr.DownloadButton:
    """The update of a button that is hidden until there is a file."""
    return gr.DownloadButton(value=str(file) if file else None, visible=file is not None)


def cited_html(experiment: Experiment, asked: Asked, request: gr.Request | None) -> Markup:
    """The BibTeX of a replay, under the address that repeats it, and the page of the runs that it is of."""
    runs = [text.run for text in experiment.recorded]
    lengths = listed([str(n) for n in sorted({run.params.draft_length for run in runs})])
    texts, specs = markup.count(len(runs), "text"), list(experiment.regret)
    title = f"Replay of {markup.count(len(specs), 'policy')} on {texts}"
    settings = f"policies {', '.join(specs)}, draft length {lengths}, replayed with multidraft {version()}"
    root = root_of(request.request) if request and request.request else "http://localhost"  # which is not cited
    query = urlencode(query_of(asked, specs), quote_via=quote)
    address = f"{root}/?{query}"
    batch = asked.batch if asked.run is None else None
    place = f"lab-{hashlib.sha256(query.encode()).hexdigest()[:8]}"  # a key for each replay of the same runs
    entry = bibtex(place, title, [made_of(runs[0])], address, [settings])
    return markup.macros("tabs/lab/view.html").cited(entry, batch, bool(batch) or asked.run is not None)


def _file(name: str, lines: Sequence[Mapping[str, Any]]) -> Path | None:
    return offered_file(name, lambda file: file.write_text(csv_of(lines), encoding="utf-8", newline=""))
