from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from multidraft.ui import run_page
from storage.rows import RunContext
from storage.store import Store

EVIL = "<script>alert(1)</script>"
TABLE = np.array([[0, 0, 0, 0, 0, 0], [1, 0, 1, 0, 1, 0]])
"""Six tokens: the first drafter needs six rounds, the second three."""


@pytest.fixture
def record(store: Store, make_generation, make_round) -> Callable[..., Path]:
    """Stores one run of two rounds and returns the database."""

    def make(context: dict | None = None, **changes) -> Path:
        rounds = [
            make_round(0, pieces=("a", "b", EVIL), text=f"ab{EVIL}"),
            make_round(
                1, arm=None, drafter=None, drafted=(), accepted=0, pieces=("é", "", "c"), text="éc", probabilities=None
            ),
        ]
        values = {"rounds": rounds, "text": f"ab{EVIL}éc", "policy": "ucb", **changes}
        known = {"source": "play", "pool": "tiny", "card_hash": "c0ffee", "seed": 7, "hardware": "CPU"}
        known |= {"dtype": "float32", "version": "1.0", "parameters": {"draft_length": 3}, **(context or {})}
        store.add(make_generation(**values), RunContext(**known))
        assert store.flush()
        return store.path

    return make


def greedy() -> dict:
    packed = zlib.compress(TABLE.astype(np.uint8).tobytes())
    return {"drafter_rounds": {"code": 6, "math": 3}, "best_arm": "math", "regret_rounds": -1, "acceptance": packed}


def test_a_stored_run_is_the_generation_that_it_was(record) -> None:
    run = run_page.load_run(record(greedy()), 1)
    assert run is not None and run.coloured
    first, second = run.generation.rounds
    assert (first.arm, first.drafter, first.accepted, first.own) == (1, "math", 2, 9)
    assert first.pieces == ("a", "b", EVIL) and first.probabilities == (0.25, 0.75)
    assert (second.arm, second.drafter, second.pieces, second.probabilities) == (None, None, ("é", "", "c"), None)
    assert run.generation.drafters == ("code", "math")
    assert run.generation.token_ids == [5, 6, 9] * 2
    assert run.table is not None and run.table.tolist() == TABLE.tolist()


def test_texts_are_coloured_and_escaped(record) -> None:
    run = run_page.load_run(record(greedy(), prompt=EVIL, error=EVIL), 1)
    assert run is not None
    html = run_page.texts_html(run) + run_page.head_html(run)
    assert "<script" not in html and html.count("&lt;script&gt;") == 3
    assert '<span class="md-token md-arm1">a</span>' in html


def test_an_older_run_has_its_text_without_colours(record, store: Store) -> None:
    path = record()
    import sqlite3

    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE runs SET piece_lengths = NULL, output = ?", [f"plain {EVIL}"])
    run = run_page.load_run(path, 1)
    assert run is not None and not run.coloured
    html = run_page.texts_html(run)
    assert "plain &lt;script&gt;" in html and "earlier version" in html
    assert run.generation.drafters == ("drafter 1", "math")  # all that the rounds tell


def test_lengths_that_do_not_fit_the_output_colour_nothing(record) -> None:
    run = run_page.load_run(record(text="other"), 1)
    assert run is not None and not run.coloured


def test_figures_of_a_run(record) -> None:
    arms, weights, regret = run_page.run_figures(run_page.load_run(record(greedy()), 1))
    assert arms and [trace.name for trace in arms.data] == ["code", "math", "no draft"]
    assert weights and list(weights.data[1].y) == [0.75]
    assert regret and list(regret.data[0].y) == [-1, -1]  # three tokens in one round, where the best needs two


def test_a_sampled_run_has_no_regret(record) -> None:
    assert run_page.run_figures(run_page.load_run(record(), 1))[2] is None


def test_a_run_as_json(record) -> None:
    path = record(greedy())
    run = json.loads(run_page.run_json(path, 1))
    assert (run["id"], run["policy"], run["acceptance"]) == (1, "ucb", TABLE.tolist())
    assert [r["emitted"] for r in run["rounds"]] == [3, 3] and run["rounds"][0]["drafter"] == "math"
    assert "piece_lengths" not in run
    with pytest.raises(KeyError):
        run_page.run_json(path, 2)


def test_an_unknown_run(record) -> None:
    assert run_page.load_run(record(), 99) is None


def test_a_run_with_its_table_leads_to_the_lab(record) -> None:
    path = record(greedy())
    record()  # sampled: it cannot be replayed
    first, second = run_page.load_run(path, 1), run_page.load_run(path, 2)
    assert first is not None and 'href="?tab=lab&amp;run=1"' in run_page.head_html(first)
    assert second is not None and "tab=lab" not in run_page.head_html(second)


def test_plain_decoding_has_no_acceptance(record, make_round) -> None:
    plain = make_round(0, arm=None, drafter=None, drafted=(), accepted=0, probabilities=None)
    run = run_page.load_run(record(rounds=[plain], text="abc", policy="autoregressive"), 1)
    assert run is not None
    html = run_page.head_html(run)
    assert "<dt>Accepted</dt><dd>–</dd>" in html
    assert "<dt>Prefill</dt>" in html and "First token" not in html  # the first round comes after it
