"""The corpus: exact references, checks that fail wrong answers, held-out combinations that training never draws."""

import itertools
import random

import pytest

from multidraft.training.pocket.corpus import FAMILIES
from multidraft.training.pocket.data import encode_example

DRAWS = 60
SINGLE = [name for name in FAMILIES if name != "mixed"]


def draw(name, split="train", seed=0, count=DRAWS):
    rng = random.Random(seed)
    return [FAMILIES[name].example(rng, split) for _ in range(count)]


def test_there_are_six_families_and_two_in_a_row():
    assert set(FAMILIES) == {"math", "code", "sql", "translation", "summary", "json", "mixed"}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("split", ["train", "heldout"])
def test_references_pass_their_own_check(name, split):
    for example in draw(name, split):
        assert FAMILIES[name].is_correct(example, example.completion), example


@pytest.mark.parametrize("name", FAMILIES)
def test_damaged_answers_fail(name):
    """Nothing, the beginning alone, the answer to another prompt."""
    examples = draw(name)
    for example, other in itertools.pairwise(examples):
        answer = example.completion
        family = FAMILIES[name]
        assert not family.is_correct(example, "")
        assert not family.is_correct(example, answer[:12])
        if other.check != example.check or not example.check:  # two stories may end on the same number
            assert not family.is_correct(example, other.completion), (example, other.completion)


def test_a_wrong_result_or_a_wrong_function_fails():
    for example in draw("code"):
        assert not FAMILIES["code"].is_correct(example, example.completion + "1")
        assert not FAMILIES["code"].is_correct(example, example.completion.replace("return ", "return not ", 1))


@pytest.mark.parametrize("name", ["math", "json", "summary"])
def test_a_wrong_last_figure_fails(name):
    seen = 0
    for example in draw(name):
        answer = example.completion
        last = max((i for i, c in enumerate(answer) if c.isdigit()), default=None)
        if last is None:
            continue
        seen += 1
        wrong = answer[:last] + str((int(answer[last]) + 1) % 10) + answer[last + 1 :]
        assert not FAMILIES[name].is_correct(example, wrong), (example, wrong)
    assert seen > DRAWS // 2


@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_seed_draws_the_same_examples(name):
    assert draw(name, seed=3, count=5) == draw(name, seed=3, count=5)
    assert draw(name, seed=3, count=5) != draw(name, seed=4, count=5)


@pytest.mark.parametrize("name", SINGLE)
def test_no_heldout_prompt_is_ever_drawn_for_training(name):
    heldout = {example.prompt for example in draw(name, "heldout", count=300)}
    train = {example.prompt for example in draw(name, "train", count=300)}
    assert not heldout & train
    assert len(heldout) > 290 and len(train) > 290  # hardly any prompt twice


@pytest.mark.parametrize("name", SINGLE)
def test_answers_are_long_and_everything_fits_the_window(name, tokenizer):
    encoded = [encode_example(tokenizer, example) for example in draw(name)]
    lengths = [len(e.ids) - e.prompt_length for e in encoded]
    assert 60 <= sum(lengths) / len(lengths) <= 200
    assert max(len(e.ids) for e in encoded) <= 1024


@pytest.mark.parametrize(
    "answer",
    [
        "import os\nos.system('true')",
        "def f(x):\n    while True: pass\n",
        "def f(" * 500,
        "x" * 100_000,
        "\0",
        "().__class__.__bases__[0].__subclasses__()",
    ],
)
@pytest.mark.parametrize("name", FAMILIES)
def test_hostile_answers_are_wrong_and_harmless(name, answer):
    for example in draw(name, count=3):
        assert not FAMILIES[name].is_correct(example, answer)


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE {table};",
        "SELECT * FROM {table}; DROP TABLE {table};",
        "SELECT load_extension('x') FROM {table};",
        "SELECT * FROM (WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) SELECT * FROM n);",
    ],
)
def test_hostile_sql_is_wrong_and_ends(query):
    for example in draw("sql", count=5):
        table = next(iter(example.check["tables"]))
        assert not FAMILIES["sql"].is_correct(example, query.format(table=table))
