"""Drafters of one's own: what goes wrong in their files is told with the line."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafters.errors import PoolError
from drafters.pool import Pool, load_pool

GOOD = """
from __future__ import annotations
from dataclasses import dataclass
from drafters.proposing import PointMassDrafter
from drafters.draft import Draft

@dataclass
class Kept:
    token: int

class Same(PointMassDrafter):
    def __init__(self, name, target, tokenizer, token=5):
        self.token = Kept(token).token

    def propose(self, context, length, params, generator, *, with_q=False):
        return Draft.chain([self.token] * length)
"""


def loaded(folder: Path, pool_card: Path, code: str | None, **entry: Any) -> Pool:
    shutil.copytree(pool_card.parent, folder, dirs_exist_ok=True)
    if code is not None:
        (folder / "own.py").write_text(code)
    card = yaml.safe_load(pool_card.read_text())
    mine = {"name": "mine", "kind": "custom", "path": "own.py", "factory": "Same", **entry}
    card["drafters"] = [{key: value for key, value in mine.items() if value is not None}]
    (folder / "card.yaml").write_text(yaml.safe_dump(card))
    return load_pool(folder / "card.yaml")


def test_options_reach_it_and_its_code_is_part_of_the_hash(tmp_path, pool_card):
    pools = [
        loaded(tmp_path / "a", pool_card, GOOD, options={"token": 7}),
        loaded(tmp_path / "b", pool_card, GOOD + "# changed", options={"token": 7}),
        loaded(tmp_path / "c", pool_card, GOOD),
    ]
    (drafter,) = pools[0].drafters
    assert (drafter.name, drafter.kind, drafter.token) == ("mine", "custom", 7)
    assert pools[2].drafters[0].token == 5
    assert len({pool.card_hash for pool in pools}) == 3


@pytest.mark.parametrize(
    ("code", "entry", "said"),
    [
        (None, {}, "there is no file .*own.py"),
        ("x = 1\ny = = 2\n", {}, "own.py cannot be run: invalid syntax in line 2 of own.py"),
        ("\n\nimport nothing_of_this_name\n", {}, "No module named 'nothing_of_this_name' in line 3"),
        ("raise SystemExit(3)\n", {}, "SystemExit: 3 in line 1"),
        (GOOD, {"factory": "Other"}, "factory: .*own.py has no class or function 'Other'; it has Kept, Same$"),
        ("import math\n", {"factory": "math"}, "own.py has no class or function 'math'; it has none of its own"),
        (GOOD, {"options": {"tokens": 1}}, "Same(name, target, tokenizer, tokens=1) of .*own.py failed: TypeError"),
        ("def Same(name, target, tokenizer):\n    return 1 / 0\n", {}, "failed: ZeroDivisionError: .* in line 2"),
        ("def Same(*all):\n    raise SystemExit('bye')\n", {}, "failed: SystemExit: bye in line 2"),
        ("def Same(*all):\n    return 3\n", {}, "Same of .*own.py made 'int', which is no drafters.base.Drafter"),
        (GOOD, {"factory": None}, "drafters.0.factory: a drafter of kind custom needs factory: .*drafter .mine."),
        (GOOD, {"path": "own.txt"}, "needs the path of a .py file and a factory in it"),
        (GOOD, {"kind": "pld", "path": None}, "factory is for drafters of kind custom, not pld"),
    ],
)
def test_what_is_wrong_is_told(tmp_path, pool_card, code, entry, said):
    said = said.replace("(name, target, tokenizer, tokens=1)", r"\(name, target, tokenizer, tokens=1\)")
    with pytest.raises(PoolError, match=said):
        loaded(tmp_path / "pool", pool_card, code, **entry)
