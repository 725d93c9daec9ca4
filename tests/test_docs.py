"""What the documents show works as it stands there."""

import ast
import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

import multidraft as md
from drafters.card import Card, card_schema, load_card
from drafters.errors import PoolError
from drafters.kinds import KINDS
from drafters.pool import load_pool
from multidraft.__main__ import COMMANDS, main
from multidraft._version import __version__
from multidraft.policies import base
from multidraft.ui.result_pages.conditions import AUTHOR
from multidraft.ui.tabs.dashboard import charts, views
from multidraft.ui.tabs.pool.tab import Known, pools_html
from storage.store import Store
from tests import tiny
from tests.runs import make_run

ROOT = Path(__file__).parent.parent
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


def test_the_first_use_from_python(capsys):
    exec("\n".join(blocks("README.md", "python")), {})
    out = capsys.readouterr().out
    assert "tokens/s" in out and "'" in out and "oracle" in out


def test_the_model_of_transformers(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    (code,) = (code for code in blocks("docs/serving.md", "python") if "Speculate" in code)
    exec(code, {})
    text, rounds = capsys.readouterr().out.strip().split("\n")
    assert "paint a picture" in text and int(rounds.split()[0]) < len(text.split())


def test_the_policy_of_ones_own(pool, monkeypatch):
    (code,) = blocks("docs/policies.md", "python")
    monkeypatch.setitem(base.POLICIES, "epsilon-greedy", None)  # so that it is forgotten afterwards
    del base.POLICIES["epsilon-greedy"]
    exec(code, {})
    assert "epsilon-greedy" in md.policy_names()
    params = md.SamplingParams(max_new_tokens=30, draft_length=4)
    outs = [
        md.generate(pool, "a badge", policy=spec, params=params)
        for spec in ("epsilon-greedy:epsilon=0.5", "autoregressive")
    ]
    assert outs[0].token_ids == outs[1].token_ids


def with_drafter(folder, entry):
    """The card of a folder, to which an entry from the documentation is added."""
    card = folder / "card.yaml"
    return tiny.change_card(card, drafters=[*yaml.safe_load(card.read_text())["drafters"], yaml.safe_load(entry)])


def test_the_drafter_of_ones_own(pool_folder):
    code, _ = blocks("docs/pools.md", "python")
    (pool_folder / "echo.py").write_text(code)
    (entry,) = re.findall(r"`- (\{name: echo.*?\}\})`", (ROOT / "docs/pools.md").read_text())
    pool = tiny.load(with_drafter(pool_folder, entry))
    params = md.SamplingParams(max_new_tokens=40, draft_length=4)
    plain = md.generate(pool, "a badge", "autoregressive", params)
    for spec in ("fixed:echo", "normal-hedge", "rate-hedge", "draft-all"):
        out = md.generate(pool, "a badge", spec, params)
        assert out.token_ids == plain.token_ids
    out = md.generate(pool, "a badge", "fixed:echo", params)
    assert any(r.accepted for r in out.rounds)
    table = md.acceptance_table(pool, pool.encode("a badge"), out.token_ids, 4)
    names = [drafter.name for drafter in pool.drafters]
    replayed = md.replay(table, "fixed:echo", draft_length=4, drafters=names)
    assert replayed.emitted == [r.emitted for r in out.rounds]


def test_a_new_kind_of_drafter_is_one_file(pool_folder, tmp_path, monkeypatch, capsys):
    _, code = blocks("docs/pools.md", "python")
    monkeypatch.setitem(KINDS, "bigram", None)  # so that it is forgotten afterwards
    (tmp_path / "bigram.py").write_text(code)
    spec = spec_from_file_location("bigram", tmp_path / "bigram.py")
    spec.loader.exec_module(module_from_spec(spec))
    np.save(pool_folder / "pairs.npy", np.arange(1, 1 + tiny.VOCAB) % tiny.VOCAB)
    (entry,) = re.findall(r"`- (\{name: pairs.*?\})`", (ROOT / "docs/pools.md").read_text())

    pool = tiny.load(with_drafter(pool_folder, entry))
    params = md.SamplingParams(max_new_tokens=20, draft_length=4)
    outs = [md.generate(pool, "a badge", spec, params) for spec in ("autoregressive", "fixed:pairs")]
    assert outs[0].token_ids == outs[1].token_ids
    assert pool.drafters[-1].digest

    assert main(["pool", str(pool_folder), "--estimate", "--device", "cpu"]) == 0
    assert "| pairs | bigram | " in capsys.readouterr().out
    known = Known(str(pool_folder), load_card(pool_folder / "card.yaml")[0])
    assert "1 × bigram table" in pools_html([known], pool.card, may_load=True)
    assert "BigramEntry" in card_schema()["$defs"]

    with pytest.raises(PoolError, match=r"drafters\.5\.longst: no such setting; did you mean longest\? .*'pairs'"):
        load_pool(with_drafter(pool_folder, entry.replace("longest", "longst")))


def test_every_kind_is_in_the_documents():
    table = re.findall(r"^\| (`.*?) \|", (ROOT / "docs/pools.md").read_text(), re.MULTILINE)
    named = {name for cell in table for name in re.findall(r"`([\w-]+)`", cell)}
    assert set(KINDS) <= named


def test_the_chart_of_ones_own(monkeypatch):
    chart, *_ = blocks("docs/architecture.md", "python")
    monkeypatch.setattr(views, "CHARTS", [])
    exec(chart, dict(vars(charts)))
    (added,) = views.CHARTS
    rows = pd.DataFrame({"policy": ["ucb", "exp3"], "output_tokens": [12, 7]})
    assert list(added.figure(rows, ["ucb"]).data[0].x) == [12, 7] and added.id == "output-tokens"


def test_the_subcommand_of_ones_own(tmp_path, monkeypatch, capsys):
    _, code, *_ = blocks("docs/architecture.md", "python")
    exec(code, vars(runs := ModuleType("runs")))
    monkeypatch.setitem(sys.modules, "multidraft.commands.runs", runs)
    (entry,) = re.findall(r'`"runs": (\(.+\))`', (ROOT / "docs/architecture.md").read_text())
    monkeypatch.setitem(COMMANDS, "runs", ast.literal_eval(entry))
    with Store(tmp_path / "runs.db") as store:
        store.add(make_run())
    assert main(["runs", "--db", str(tmp_path / "runs.db")]) == 0
    assert capsys.readouterr().out == "1\n"


def test_parts_by_themselves(tmp_path, monkeypatch, capsys):
    *_, history, text = blocks("docs/architecture.md", "python")
    monkeypatch.chdir(tmp_path)
    with Store("runs.db") as store:
        store.add(make_run(policy="exp3"))
    exec(history, {})
    assert "exp3 None ['math', 'math']" in capsys.readouterr().out  # six tokens are too few for a speed-up
    exec(text, {})
    assert re.match(r"perplexity \d+\.\d \{'math': ", capsys.readouterr().out)


def test_the_sample_table_is_that_of_the_results(capsys):
    table = pd.read_csv(ROOT / "docs/mats.csv", index_col="drafter")
    results = (ROOT / "docs/results.md").read_text().split("| drafter | json |")[1].split("\n\n")[0].splitlines()
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in results[2:]]
    shown = [[name, *(f"{mat:.2f}" for mat in mats)] for name, *mats in table.itertuples()]
    assert shown == [row[:-1] for row in rows]
    assert main(["simulate", str(ROOT / "docs/mats.csv"), "--tokens", "50", "--seeds", "2", "--policies", "ucb"]) == 0
    assert "| policy | json |" in capsys.readouterr().out


def test_the_first_card_of_ones_own(tmp_path):
    card, _ = blocks("docs/pools.md", "yaml")
    (tmp_path / "my-pool.yaml").write_text(card)
    (tmp_path / "drafters").symlink_to(ROOT / "drafters")
    pool, pocket = load_pool(tmp_path / "my-pool.yaml"), load_pool("pocket")
    assert pool.description and pool.conversational is False and pool.examples == pocket.examples
    assert pool.fits(pool.examples[0][1]) and not pool.fits("Who was the first man on the moon?")
    params = md.SamplingParams(max_new_tokens=20)
    outs = [md.generate(each, pool.examples[0][1], params=params) for each in (pool, pocket)]
    assert outs[0].token_ids == outs[1].token_ids


def test_the_card():
    _, card = blocks("docs/pools.md", "yaml")
    assert [d.name for d in Card.model_validate(yaml.safe_load(card)).drafters] == [
        "small",
        "long",
        "lookup",
        "again",
        "manuals",
    ]


def test_every_command_of_the_documents_parses(capsys):
    """Commands are parsed with ``--help`` in place of running them; every option must be known there."""
    from multidraft.__main__ import main

    seen = 0
    for path in DOCS:
        for line in re.findall(r"^python -m multidraft (.*)$", path.read_text(), re.MULTILINE):
            command, *rest = line.split("  ")[0].split("#")[0].split()
            with pytest.raises(SystemExit) as stop:
                main([command, "--help"])
            shown = capsys.readouterr().out
            assert stop.value.code == 0
            for option in (word for word in rest if word.startswith("--")):
                assert option.split("=")[0] in shown, (path.name, line)
            seen += 1
    assert seen >= 5


@pytest.mark.parametrize("path", DOCS, ids=lambda p: p.name)
def test_links_and_pictures_exist(path):
    for link, heading in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", path.read_text()):
        if not link.startswith("http"):
            file = path.parent / link if link else path
            assert file.exists(), link
            assert not heading or heading in headings(file), f"{link}#{heading}"


def headings(file):
    """The names under which Markdown's headings are linked to."""
    found = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_every_column_and_key_of_a_benchmark_is_in_the_documents():
    from datetime import UTC, datetime
    from types import SimpleNamespace

    from multidraft.bench.report import Asked, make_report
    from multidraft.bench.table import COLUMNS

    text = (ROOT / "docs" / "results.md").read_text()
    asked = Asked("suite", (), ("ucb",), md.SamplingParams(), datetime.now(UTC))
    pool = SimpleNamespace(name="tiny", card_hash="0123", dtype="float32", device=torch.device("cpu"))
    report = make_report(pool, asked, [])
    named = [*COLUMNS, *report, *report["settings"], *report["runs"]]
    assert [name for name in named if f"`{name}`" not in text] == []


def test_every_policy_is_in_the_documents():
    text = (ROOT / "docs" / "policies.md").read_text()
    assert [name for name in md.policy_names() if f"`{name}" not in text] == []


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0" and citation["version"] == __version__
    assert citation["license"] == "Apache-2.0" and citation["authors"] == [{"name": AUTHOR}]
