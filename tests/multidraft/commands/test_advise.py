"""``advise``: a verdict on a history and on a report; one clear line on bad input."""

import json

import pytest

from multidraft.__main__ import main
from storage.connection import open_reader


def test_a_verdict_on_a_history(bench_db, capsys):
    assert main(["advise", "--db", str(bench_db), "--tasks", "math,code,sql", "--policies", "exp3spec"]) == 0
    printed = capsys.readouterr().out
    assert (
        printed.startswith("Measured. For this traffic: `")
        and "on 9 prompts" in printed
        and "| `exp3spec` |" in printed
    )
    assert "Replayed on 9 recorded texts" in printed and "| drafter | share of the tokens from its drafts" in printed


def test_the_same_as_json(bench_db, capsys):
    assert main(["advise", "--db", str(bench_db), "--newest", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["prompts"] == found["texts"] == 3 and len(found["drafters"]) == 8
    assert found["drafters"][0]["memory"] > 1 << 20


@pytest.mark.parametrize(
    ("spec", "said"), [("fixed:poems", "there is no drafter 'poems'"), ("hedge:gamma=soft", "use gamma=hard")]
)
def test_a_policy_that_is_asked_for_is_not_left_out_in_silence(bench_db, capsys, spec, said):
    assert main(["advise", "--db", str(bench_db), "--newest", "1", "--policies", spec]) == 2
    assert said in capsys.readouterr().err


def test_a_batch_or_a_draft_length_can_be_chosen(bench_db, capsys):
    with open_reader(bench_db) as connection:
        batch, length = connection.execute("SELECT batch_id, draft_length FROM runs LIMIT 1").fetchone()
    whole, *chosen = (
        (main(["advise", "--db", str(bench_db), "--newest", "1", "--json", *given]), capsys.readouterr().out)
        for given in ((), ("--batch", batch), ("--draft-length", str(length)))
    )
    assert whole[0] == 0 and chosen == [whole, whole], "there is one of each"
    for given, said in (
        (("--batch", "gone"), "is of the batch 'gone'"),
        (("--draft-length", str(length + 1)), f"has the draft length '{length + 1}'; draft lengths there: {length}"),
        (("--pool", "poket"), "has the pool 'poket'; pools there: pocket"),
    ):
        assert main(["advise", "--db", str(bench_db), *given]) == 2
        assert said in capsys.readouterr().err
    assert main(["replay", "--db", str(bench_db), "--batch", "gone"]) == 2


def test_a_verdict_on_a_report(pool_card, suite, tmp_path, capsys):
    report = tmp_path / "report.json"
    asked = ["--policies", "fixed:near,fixed:far", "--max-new-tokens", "12", "--out", str(report)]
    assert main(["bench", str(suite), "--pool", str(pool_card), *asked]) == 0
    capsys.readouterr()
    assert main(["advise", str(report)]) == 0
    printed = capsys.readouterr().out
    assert "Measured runs; each prompt counts once." in printed
    assert "| `fixed:near`" in printed and "| `fixed:far`" in printed


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON (it is nested too deeply)"),
        ('{"rows": [], "settings": 5}', "settings.draft_length is no whole number"),
        ('{"rows": [], "settings": {"draft_length": "a"}}', "settings.draft_length is no whole number"),
        ('{"policies": {}}', "create it again with bench --out"),
        ('{"rows": [{"id": 1}]}', "create it again with bench --out"),
        ('{"rows": []}', "nothing to compare"),
    ],
)
def test_reports_that_cannot_be_read(content, said, tmp_path, capsys):
    path = tmp_path / "report.json"
    path.write_text(content)
    assert main(["advise", str(path)]) == 2
    assert said in capsys.readouterr().err


def test_bad_input(bench_db, tmp_path, capsys):
    asked = ("--db", str(bench_db))
    for arguments, said in (
        (["advise", "--db", str(tmp_path / "none.db")], "there is no database"),
        (["advise", str(tmp_path / "none.json")], "cannot be read"),
        (["advise", *asked, "--newest", "0"], "--newest"),
        (["advise", "report.json", "--tasks", "math"], "a report is compared whole"),
        (["advise", *asked, "--suite", "nope"], "has the suite 'nope'; suites there: "),
        (["advise", "report.json", "--policies", "ucb"], "a report is compared whole"),
        (["advise", "report.json", "--newest", "9"], "a report is compared whole"),
        (["advise", *asked, "--policies", "nonsense"], "unknown policy"),
    ):
        assert main(arguments) == 2
        assert said in capsys.readouterr().err
