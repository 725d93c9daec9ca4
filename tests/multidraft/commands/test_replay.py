"""``replay``: policies on the texts of a benchmark; one clear line on bad input."""

import json
import shutil
import sqlite3

import numpy as np
import pytest

from drafters import card as card_module
from drafters.hardware import describe
from drafters.pool import Pool
from drafters.router import FEATURES, Router
from multidraft.__main__ import main
from tests import tiny


@pytest.fixture(scope="module")
def history(pool_card, suite, tmp_path_factory):
    """A history of a benchmark: the file, and its report."""
    folder = tmp_path_factory.mktemp("history")
    db, out = folder / "history.db", folder / "out.json"
    arguments = ["bench", str(suite), "--pool", str(pool_card), "--policies", "ucb:reward=be,normal-hedge,fixed:near"]
    assert main([*arguments, "--max-new-tokens", "40", "--db", str(db), "--out", str(out)]) == 0
    return db, json.loads(out.read_text())["policies"]


def test_replay_tells_what_the_benchmark_measured(history, capsys):
    """Deterministic policies by exact rounds; the seed of the record is not needed for them."""
    db, report = history
    assert main(["replay", "--db", str(db), "--policies", "ucb,fixed:near,rate-hedge,ucb:reward=be", "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert "replayed with another reward: ucb as ucb:reward=be\n" in err
    rows = {row["policy"]: row for row in found["policies"]}
    assert len(rows) == len(found["policies"])  # each once
    assert found["runs"] == 3 and set(rows) == {"ucb:reward=be", "fixed:near", "rate-hedge"}
    for spec in ("ucb:reward=be", "fixed:near"):
        assert rows[spec]["mean_accepted_tokens"] == pytest.approx(report[spec]["mean_accepted_tokens"])
        assert rows[spec]["regret_rounds"] == pytest.approx(report[spec]["regret_rounds"])
    assert all(row["tokens_per_second"] > 0 for row in rows.values())


def test_replay_of_one_run_as_a_table(history, capsys):
    db, _ = history
    with sqlite3.connect(db) as connection:
        (run,) = connection.execute("SELECT id FROM runs WHERE policy = 'normal-hedge' LIMIT 1").fetchone()
    assert main(["replay", "--db", str(db), "--run", str(run)]) == 0
    out = capsys.readouterr().out
    assert (
        "1 recorded text, 40 tokens" in out
        and "| rate-hedge ≈ * |" in out
        and "≈ This policy decides by time or by the previous query" in out
    )
    for given, said in (
        (["999"], "run 999 cannot be replayed"),
        ([str(run), "--policies", "ucb", "--tasks", "none"], "has the task 'none'"),
    ):
        assert main(["replay", "--db", str(db), "--run", *given]) == 2
        assert said in capsys.readouterr().err


def test_replay_is_of_one_pool_on_one_machine(history, tmp_path, capsys, monkeypatch):
    """The figures of several would be of none; the newest by default."""
    db = shutil.copy(history[0], tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()  # the name of a pool is none of a folder
    with sqlite3.connect(db) as connection:
        newest = "prompt_hash = (SELECT prompt_hash FROM runs ORDER BY id DESC LIMIT 1)"
        connection.execute(f"UPDATE runs SET pool = 'other', card_hash = 'other' WHERE {newest}")
        (run,) = connection.execute("SELECT max(id) FROM runs").fetchone()
    assert main(["replay", "--db", db, "--run", str(run), "--pool", "tiny"]) == 2
    assert f"run {run} is not among the runs that the other filters choose" in capsys.readouterr().err
    for given, texts, left in (([], 1, 2), (["--pool", "other"], 1, 0), (["--pool", "tiny"], 2, 0)):
        assert main(["replay", "--db", db, "--policies", "ucb", "--json", *given]) == 0
        out, err = capsys.readouterr()
        assert json.loads(out)["runs"] == texts
        assert (
            f"texts of other on {describe('cpu')}; left out: {left} texts of other pools or machines" in err
        ) == bool(left)


def test_replay_without_a_history(tmp_path, capsys):
    assert main(["replay", "--db", str(tmp_path / "none.db")]) == 2
    assert "there is no database" in capsys.readouterr().err


def test_replay_of_texts_that_were_decoded_beside_others_tells_rounds_and_no_rates(history, tmp_path, capsys):
    db = shutil.copy(history[0], tmp_path)
    with sqlite3.connect(db) as connection:
        connection.execute("UPDATE runs SET streams = 2, tokens_per_second = NULL")
    assert main(["replay", "--db", db, "--policies", "ucb"]) == 0
    out = capsys.readouterr().out
    assert "in hindsight: – tokens/s" in out and out.splitlines()[-1].endswith("| – |")


def test_replay_asks_the_router_of_the_pool_that_wrote_the_texts(pool_folder, suite, tmp_path, capsys, monkeypatch):
    """By its name if it is bundled, without its models; where there is none it says that policies begin cold."""
    Router(["far"], np.zeros((1, FEATURES), np.float32), np.array([9.0], np.float32)).save(pool_folder / "router")
    card = tiny.change_card(pool_folder / "card.yaml", router="router")
    db, asked = str(tmp_path / "routed.db"), "router,normal-hedge"
    arguments = ["bench", str(suite), "--pool", str(card), "--max-new-tokens", "40", "--db", db]
    assert main([*arguments, "--policies", asked, "--out", str(tmp_path / "out.json")]) == 0
    report = json.loads((tmp_path / "out.json").read_text())["policies"]
    capsys.readouterr()
    monkeypatch.setattr(Pool, "__init__", None)  # nothing is loaded
    assert main(["replay", "--db", db, "--policies", asked]) == 2
    assert "needs a router" in capsys.readouterr().err
    assert main(["replay", "--db", db, "--policies", "normal-hedge,ucb"]) == 0
    table = capsys.readouterr().out
    assert "| normal-hedge * |" in table and "No router is known for 3 of the 3 texts" in table
    for more in (["--pool", str(card)], []):
        assert main(["replay", "--db", db, "--policies", asked, "--json", *more]) == 0
        out, err = capsys.readouterr()
        rows = {row["policy"]: row for row in json.loads(out)["policies"]}
        assert not err and rows["router"]["regret_rounds"] == pytest.approx(report["router"]["regret_rounds"])
        hedge = report["normal-hedge"]["mean_accepted_tokens"]
        assert rows["normal-hedge"]["mean_accepted_tokens"] == pytest.approx(hedge)
        monkeypatch.setattr(card_module, "POOLS", pool_folder)
        shutil.copy(card, pool_folder / "tiny.yaml")
