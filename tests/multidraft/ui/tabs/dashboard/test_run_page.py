import json
from collections.abc import Callable

import numpy as np
import plotly.graph_objects as go
import pytest

from drafters.base import Acceptances
from multidraft.ui.tabs.dashboard import run_page
from storage import queries
from storage.run import Run
from storage.store import Store
from tests.runs import make_round, make_run

EVIL = "<script>alert(1)</script>"
TABLE = np.array([[0, 0, 0, 0, 0, 0], [1, 0, 1, 0, 1, 0]])
"""Six tokens: the first drafter needs six rounds, the second three."""


@pytest.fixture
def record(store: Store) -> Callable[..., Run]:
    """Stores one run of two rounds and reads it back."""

    def make(**changes) -> Run:
        pieces = ("é", "", "c")
        rounds = [
            make_round(0, pieces=("a", "b", EVIL), text=f"ab{EVIL}"),
            make_round(1, arm=None, drafter=None, drafted=(), accepted=0, pieces=pieces, text="éc", probabilities=None),
        ]
        store.add(make_run(**{"rounds": rounds, "text": f"ab{EVIL}éc", "policy": "ucb", **changes}))
        assert store.flush()
        run = queries.run(store.path, queries.count(store.path))
        assert run is not None
        return run

    return make


GREEDY = {
    "drafter_rounds": {"code": 6, "math": 3},
    "best_drafter": "math",
    "regret_rounds": -1,
    "acceptance": Acceptances(TABLE, TABLE, TABLE),
}


def test_texts_are_coloured_and_escaped(record) -> None:
    run = record(**GREEDY, prompt=EVIL, error=EVIL)
    html = run_page.texts_html(run) + run_page.head_html(run)
    assert "<script" not in html and html.count("&lt;script&gt;") >= 3
    assert '<span class="md-token md-arm0">a</span>' in html and " UTC, from Play<" in html


def test_figures_of_a_run(record) -> None:
    arms, weights, regret = run_page.run_figures(record(**GREEDY))
    assert [trace["name"] for trace in json.loads(arms.plot)["data"]] == ["code", "math", "no draft"]
    assert json.loads(weights.plot)["data"][1]["y"] == [0.75]
    assert regret and list(regret.data[0].y) == [-1, -1]  # three tokens in one round, where the best needs two
    axes = regret.layout.xaxis, regret.layout.yaxis, go.Figure(json.loads(weights.plot)).layout.xaxis
    assert [axis.dtick for axis in axes] == [1, 1, 1], "there are no half rounds"


def test_a_sampled_run_has_no_regret(record) -> None:
    run = record(temperature=1.0, best_drafter="math")  # the one with the least expected loss
    assert run_page.run_figures(run)[2] is None
    html = run_page.head_html(run)
    assert "known for greedy runs only" in html and "rounds beyond" not in html
    assert "rounds beyond math" in run_page.head_html(record(**GREEDY, temperature=0.0))


def test_a_run_with_its_table_leads_to_the_lab(record) -> None:
    first, second = record(**GREEDY), record()  # sampled: it cannot be replayed
    assert 'href="?tab=lab&amp;run=1"' in run_page.head_html(first)
    assert "tab=lab" not in run_page.head_html(second)


def test_plain_decoding_has_no_acceptance(record) -> None:
    plain = make_round(0, arm=None, drafter=None, drafted=(), accepted=0, probabilities=None)
    run = record(rounds=[plain], text="abc", policy="autoregressive")
    html = run_page.head_html(run)
    assert "<dt>Acceptance rate</dt><dd>–</dd>" in html
    assert "<dt>Prefill</dt>" in html and "First token" not in html  # the first round comes after it
