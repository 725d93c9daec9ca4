"""The page of one recorded run: what it was asked, what it wrote by whom, its figures, its rounds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import plotly.graph_objects as go

from multidraft.bench.history import read_table
from multidraft.records import Generation, Round
from multidraft.regret import regret_by_round
from multidraft.ui import charts, tokens
from multidraft.ui.charts import base_figure
from multidraft.ui.choices import policy_title
from multidraft.ui.dashboard_tables import STATUS
from multidraft.ui.history_charts import PLAIN
from multidraft.ui.tables import number, percent, times
from multidraft.ui.theme import DRAFTER_COLOURS
from storage import queries
from storage.export import PACKED


@dataclass(frozen=True)
class RecordedRun:
    """A run as it is stored, and as the generation that it was.

    Attributes:
        row: the run's columns (``queries.run``).
        generation: with all its rounds; their texts are empty where the run was recorded by a version that did not
            keep where tokens end.
        table: the acceptance table ``(drafters, output positions)``; ``None`` of a run without one.
    """

    row: dict[str, Any]
    generation: Generation
    table: np.ndarray | None

    @property
    def coloured(self) -> bool:
        """Whether the texts of the rounds are known."""
        return any(r.text for r in self.generation.rounds)


def load_run(path: str | Path, id: int) -> RecordedRun | None:
    """The run with this number, ``None`` if there is none.

    Raises:
        StorageError: the database cannot be read.
    """
    row = queries.run(path, id)
    if row is None:
        return None
    stored = queries.rounds(path, id).to_dict("records")
    needed = json.loads(row["drafter_rounds"]) if row["drafter_rounds"] else {}
    pieces = _pieces(row, sum(r["emitted"] for r in stored))
    rounds, begin = list[Round](), 0
    for r in stored:
        rounds.append(_round(r, pieces[begin : begin + r["emitted"]]))
        begin += r["emitted"]
    generation = Generation(
        prompt=row["prompt"],
        policy=row["policy"],
        drafters=tuple(needed or _drafters(rounds)),
        prompt_tokens=row["prompt_tokens"] or 0,
        token_ids=[token for r in rounds for token in r.tokens],
        text=row["output"],
        rounds=rounds,
        status=row["status"],
        prefill_seconds=row["prefill_seconds"] or 0.0,
        error=row["error"],
    )
    table = read_table(row["acceptance"], len(needed)) if row["acceptance"] and needed else None
    return RecordedRun(row, generation, table)


def run_json(path: str | Path, id: int) -> str:
    """A run with all its rounds, its acceptance table included, as JSON.

    Raises:
        KeyError: there is no such run.
        StorageError: the database cannot be read.
    """
    run = load_run(path, id)
    if run is None:
        raise KeyError(id)
    row = {column: value for column, value in run.row.items() if column not in PACKED}
    row["drafter_rounds"] = json.loads(row["drafter_rounds"] or "null")
    row["acceptance"] = None if run.table is None else run.table.tolist()
    row["rounds"] = [{**vars(r), "emitted": r.emitted} for r in run.generation.rounds]
    return json.dumps(row, ensure_ascii=False, indent=1, default=str)


def head_html(run: RecordedRun) -> str:
    """Number and policy of the run, its figures, and the conditions under which it was made."""
    row, g = run.row, run.generation
    ended = STATUS.get(row["status"], row["status"]) + (f": {row['error']}" if row["error"] else "")
    tiles = (
        ("Speed", number(row["tokens_per_second"], 1), "tokens/s"),
        ("Speed-up", times(row["speedup"], row["output_tokens"]), "over plain decoding"),
        ("Tokens a round", number(row["mean_accepted_tokens"], 2), "plain decoding: 1"),
        ("Accepted", percent(row["acceptance_rate"]), "of drafted tokens"),
        ("Regret", number(row["regret_rounds"], 0), f"rounds more than {row['best_arm'] or 'the best drafter'}"),
        ("Prefill", number(1000 * g.prefill_seconds, 0), "ms before the first round"),
    )
    cells = "".join(
        f'<div class="md-tile"><dt>{name}</dt><dd>{value}</dd><dd class="md-unit">{escape(unit)}</dd></div>'
        for name, value, unit in tiles
    )
    facts = (
        ("Made", f"{row['created_at'][:19].replace('T', ' ')} UTC, from {row['source']}"),
        ("End", f"{ended}; {len(g.token_ids)} tokens in {len(g.rounds)} rounds"),
        ("Pool", f"{row['pool']}, card {row['card_hash'] or 'unknown'}"),
        ("Hardware", f"{row['hardware'] or 'unknown'}, {row['dtype'] or 'number type unknown'}"),
        ("Version", row["version"] or "unknown"),
        ("Settings", ", ".join([*(f"{k} {v}" for k, v in row["parameters"].items()), f"seed {row['seed']}"])),
    )
    listed = "".join(f"<dt>{name}</dt><dd>{escape(str(value))}</dd>" for name, value in facts)
    title = f"Run {row['id']}: {policy_title(row['policy'])}" + (f" on {row['task']}" if row["task"] else "")
    link = escape(urlencode({"tab": "lab", "run": row["id"]}))
    replay = f'<p class="md-caption"><a href="?{link}">Replay in the Lab</a> under other policies.</p>'
    replay = replay if run.table is not None else ""
    return (
        f'<h2 class="md-heading" tabindex="-1">{escape(title)}</h2>{replay}'
        f'<dl class="md-tiles md-run-tiles">{cells}</dl>'
        f'<dl class="md-facts md-run-facts">{listed}</dl>'
    )


def texts_html(run: RecordedRun) -> str:
    """Prompt and output, the output coloured by who proposed it where that is known, and the legend."""
    g = run.generation
    if run.coloured:
        output, note = tokens.rounds_html(g.rounds), ""
    else:
        output = escape(g.text)
        note = '<p class="md-note">Recorded by an earlier version, which did not keep where each token ends.</p>'
    return (
        f'<h3>Prompt</h3><div class="md-text" tabindex="0" dir="auto">{escape(g.prompt)}</div>'
        f'<h3>Output</h3><div class="md-text" tabindex="0" dir="auto">{output}</div>{note}'
        + tokens.legend_html(g.drafters, g.drafter_shares)
    )


def run_figures(run: RecordedRun) -> tuple[go.Figure | None, go.Figure | None, go.Figure | None]:
    """Drafters played, the policy's probabilities, and regret, by round; ``None`` for what is not known."""
    rounds, drafters = run.generation.rounds, run.generation.drafters
    weighed = any(r.probabilities is not None for r in rounds)
    return (
        charts.arms_figure(rounds, drafters) if drafters else None,
        charts.weights_figure(rounds, drafters) if weighed else None,
        regret_figure(rounds, run.table) if rounds and run.table is not None else None,
    )


def regret_figure(rounds: Sequence[Round], table: np.ndarray) -> go.Figure:
    """Regret within a run: rounds so far less those the best single drafter needs for the same tokens."""
    figure = base_figure("Regret within the run", "round", "rounds above the best drafter", height=charts.POLICY_HEIGHT)
    regret = regret_by_round([r.emitted for r in rounds], table)
    figure.add_hline(y=0, **PLAIN)
    figure.add_scatter(
        x=[r.index + 1 for r in rounds],
        y=regret.tolist(),
        mode="lines",
        line={"color": DRAFTER_COLOURS[0], "width": 2.5, "shape": "hv"},
        hovertemplate="round %{x}: %{y:+d} rounds<extra></extra>",
    )
    if regret.max() - regret.min() < 5:
        figure.update_yaxes(dtick=1)
    return figure.update_layout(showlegend=False)


def _pieces(row: dict[str, Any], tokens: int) -> list[str]:
    """The output token by token; nothing where its division is not known."""
    lengths = json.loads(row["piece_lengths"] or "[]")
    if len(lengths) != tokens or sum(lengths) != len(row["output"]):
        return []
    ends = np.cumsum(lengths).tolist()
    return [row["output"][end - length : end] for length, end in zip(lengths, ends)]


def _round(stored: dict[Any, Any], pieces: Sequence[str]) -> Round:
    values: dict[Any, Any] = {
        name: None if isinstance(value, float) and value != value else value for name, value in stored.items()
    }
    seconds = {name: values[name] or 0.0 for name in values if name.endswith("_seconds")}
    return Round(
        index=values["round_index"],
        arm=_whole(values["arm"]),
        drafter=values["drafter"],
        drafted=tuple(values["drafted_ids"]),
        accepted=values["accepted"],
        tokens=tuple(values["token_ids"]),
        own=_whole(values["own_token"]),
        text="".join(pieces),
        pieces=tuple(pieces),
        draft_length=_whole(values["draft_length"]) or 0,
        reward=values["reward"],
        block_divergence=values["block_divergence"],
        probabilities=None if values["probabilities"] is None else tuple(values["probabilities"]),
        **seconds,
    )


def _whole(value: float | None) -> int | None:
    """Columns with gaps come as floats."""
    return None if value is None else int(value)


def _drafters(rounds: Sequence[Round]) -> list[str]:
    """Names by arm, as far as the rounds tell; those never played are numbered."""
    played = {r.arm: r.drafter for r in rounds if r.arm is not None and r.drafter is not None}
    arms = max([len(r.probabilities or ()) for r in rounds] + [arm + 1 for arm in played], default=0)
    return [played.get(arm) or f"drafter {arm + 1}" for arm in range(arms)]
