"""What adding something takes: one new file each for a policy and a card.

A kind of drafter likewise: ``tests/test_docs.py`` adds the one that the documents show.
"""

import json
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest
import yaml

import multidraft as md
from multidraft import policies
from multidraft.__main__ import main

POLICY = '''
"""Win-stay, lose-shift: the last drafter again if it emitted at least as much as the mean of all rounds."""

from multidraft.policies.base import Feedback, Policy, register


@register
class WinStay(Policy):
    """Plays the last arm again after a good round, the next one after a bad one."""

    name = "win-stay"
    title = "Win-stay"
    explanation = "A drafter that did well guesses again; after a bad round it is the next one's turn."
    source = "Robbins 1952"

    def reset(self) -> None:
        self.arm, self.rounds, self.emitted = 0, 0, 0

    def select(self) -> int:
        return self.arm

    def update(self, feedback: Feedback) -> None:
        self.rounds += 1
        self.emitted += feedback.emitted
        if feedback.emitted < self.emitted / self.rounds:
            self.arm = (self.arm + 1) % self.arm_count
'''


@pytest.fixture
def win_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A policy in a file of its own in a folder of policies, found as those of the package are."""
    (tmp_path / "win_stay_of_a_test.py").write_text(POLICY)
    monkeypatch.setattr(policies, "__path__", [str(tmp_path)])
    known = dict(policies.POLICIES)
    for module in iter_modules(policies.__path__):
        import_module(f"{policies.__name__}.{module.name}")
    added = set(policies.POLICIES) - set(known)
    yield from added
    for name in added:
        del policies.POLICIES[name]


def test_a_policy_is_one_file(win_stay: str, pool, pool_card: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert win_stay == "win-stay" in md.policy_names()
    params = md.SamplingParams(max_new_tokens=30, draft_length=4)
    outs = [md.generate(pool, "a badge", spec, params) for spec in (win_stay, "autoregressive")]
    assert outs[0].token_ids == outs[1].token_ids and len({r.arm for r in outs[0].rounds}) > 1
    table = md.acceptance_table(pool, pool.encode("a badge"), outs[0].token_ids, draft_length=4)
    assert sum(md.replay(table, win_stay, draft_length=4).emitted) >= 30
    assert main(["policies"]) == 0
    assert "| win-stay | Win-stay |" in capsys.readouterr().out
    assert main(["generate", "a badge", "--pool", str(pool_card), "--policy", win_stay, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["policy"] == win_stay


def test_a_card_is_one_file(pool_card: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = yaml.safe_load(pool_card.read_text())
    drafters = [{"name": "copy", "kind": "pld"}, {"name": "tree", "kind": "suffix"}]
    content |= {"name": "copies", "title": "Two that copy", "drafters": drafters}
    content["target"]["path"] = str(pool_card.parent / content["target"]["path"])
    card = tmp_path / "copies.yaml"
    card.write_text(yaml.safe_dump(content))
    assert main(["pool", str(card)]) == 0
    printed = capsys.readouterr().out
    assert "Two that copy (copies" in printed and "| copy | pld |" in printed and "| tree | suffix |" in printed
    assert main(["generate", "a badge", "--pool", str(card), "--policy", "fixed:tree"]) == 0
    assert "tokens/s" in capsys.readouterr().err
