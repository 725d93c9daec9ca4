"""Tables of mean accepted tokens."""

import pytest

from drafters.errors import PolicyError, SuiteError
from multidraft.bench.simulate import read_table, simulate

TABLE = 'drafter,Math,"Code, SQL"\nmath,6.5,2.5\ncode,2.0,7.0\n'


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize("first", ["", "\ufeff", "sep={}\r\n"])
def test_cells_between_commas_semicolons_or_tabs(tmp_path, mark, first):
    path = tmp_path / "mats.csv"
    path.write_text(first.format(mark) + TABLE.replace(",", mark).replace(f"{mark} SQL", ", SQL"), encoding="utf-8")
    table = read_table(path)
    assert list(table.index) == ["math", "code"] and list(table.columns) == ["Math", "Code, SQL"]
    assert table.to_numpy().tolist() == [[6.5, 2.5], [2.0, 7.0]]


def test_what_is_wrong_is_told_by_its_place(tmp_path):
    path = tmp_path / "mats.csv"
    path.write_text("Math,Code\n6.5,2.5\n2.0,7.0\n")
    with pytest.raises(SuiteError, match=r"row 2: the first column holds the drafters' names, not 6\.5"):
        read_table(path)
    path.write_text(TABLE)
    with pytest.raises(PolicyError, match=r"^policies must be a list of specs, such as .*, got 'ucb:reward=be'$"):
        simulate(read_table(path), "ucb:reward=be")
    path.write_text(f"drafter,{'M' * 200_000}\nmath,6.5\n")
    with pytest.raises(SuiteError, match=r"mats\.csv is not valid CSV \(field larger than field limit"):
        read_table(path)
    path.write_text("drafter;Math\nmath;6,5\n")
    with pytest.raises(SuiteError, match="row 2, column 'Math': '6,5' is not a value"):
        read_table(path)
