"""A student as an arm of a pool: the output stays the target's, and a query keeps the version that it began with."""

import pytest

from drafters.errors import PoolError
from drafters.learning import learner as learning
from drafters.learning.learner import Schedule
from drafters.pool import load_pool
from drafters.sampling import SamplingParams
from multidraft.bench.measure import Measurement, Request
from multidraft.engine.decoding import Decoding, generate
from multidraft.engine.lossless import greedy_differences
from multidraft.replay.regret import acceptance_table
from multidraft.replay.walk import replay
from tests import tiny

STUDENT = {"name": "student", "kind": "student", "path": "far", "share": 0.5, "rate": 5e-3, "passes": 20}
PARAMS = SamplingParams(16, draft_length=4)
PROMPTS = tiny.texts(40, 7, 4, 4)


@pytest.fixture(autouse=True)
def little(monkeypatch):
    monkeypatch.setattr(learning, "BATCH", 128)
    monkeypatch.setattr(learning, "MEASURED", 16)


@pytest.fixture
def card(tmp_path):
    return tiny.write_pool(tmp_path, drafters=[STUDENT, {"name": "again", "kind": "suffix"}])


def answered(pool, schedule):
    """The learner of the pool's student, which has answered these prompts and may train at each tick of its clock."""
    learner = pool.drafters[0].learner
    learner.clock = iter(float(10 * n) for n in range(10**6)).__next__
    learner._asked_at, learner.schedule = 0.0, schedule
    for prompt in PROMPTS:
        generate(pool, prompt, "fixed:student", PARAMS)
    return learner


def school(pool):
    """Answer these and learn from them, until there is a new version."""
    pool.stop_ids = frozenset()
    learner = answered(pool, Schedule(0.5, 8192, 20, 5e-3, 256))
    for _ in range(200):
        pool.study()
        if learner.current.version.number:
            return learner
    raise AssertionError("no version took over")


def test_a_query_keeps_the_version_that_it_began_with_and_the_next_has_the_new_one(card, tmp_path):
    pool = load_pool(card, learnt=f"{tmp_path}/learnt")
    twin = pool.twin()
    first = pool.drafters[0].version
    under_way = Decoding(twin, PROMPTS[0], "fixed:student", PARAMS)
    twin.stop_ids = frozenset()
    next(under_way)
    learner = school(pool)
    out = under_way.run()
    assert out.versions == {"student": first} and twin.drafters[0].version == first
    for each in (pool, twin):
        for prompt in PROMPTS[:4]:
            out = generate(each, prompt, "fixed:student", PARAMS)
            ids = each.encode(prompt)
            assert out.token_ids == tiny.greedy(each.target.model, ids, 16)
            assert out.versions == {"student": str(learner.current.version)} != {"student": first}
            assert not greedy_differences(each, ids, out.token_ids)
            table = acceptance_table(each, ids, out.token_ids, 4)
            assert replay(table, "fixed:arm0").rounds == len(out.rounds), "replays are of the version that drafted"
    again = load_pool(card, learnt=tmp_path / "learnt")
    assert again.drafters[0].version == str(learner.current.version) and again.card_hash == pool.card_hash
    assert "version 1-" in again.drafters[0].report()


def test_a_table_of_another_version_is_not_used_again(card):
    pool = load_pool(card)
    one = Measurement(pool, Request(PROMPTS[0], "fixed:student", PARAMS)).compute()
    same = Measurement(pool, Request(PROMPTS[0], "fixed:again", PARAMS, earlier=(one,))).compute()
    assert same.scores.acceptance is one.scores.acceptance
    school(pool)
    other = Measurement(pool, Request(PROMPTS[0], "fixed:again", PARAMS, earlier=(one,))).compute()
    assert other.scores.acceptance is not one.scores.acceptance


@pytest.mark.parametrize("where", ["card", "setting", "visitor"])
def test_it_can_be_told_not_to_learn(card, where):
    if where == "card":
        card.write_text(card.read_text().replace("share: 0.5", "share: 0"))
    pool = load_pool(card, learns=where != "setting")
    student, suffix = pool.drafters
    Decoding(pool, PROMPTS[0], "fixed:student", PARAMS, learn=where != "visitor").run()
    assert not len(student.learner.memory) and not len(student.learner.held) and pool.study() == 0.0
    assert bool(suffix.past._waiting) is (where != "visitor"), "past answers are kept by the same rule"
    assert student.report().endswith("learning is off") is (where != "visitor")


def test_another_vocabulary_is_refused(card):
    (card.parent / "far" / "tokenizer.json").write_text(
        tiny.tokenizer().backend_tokenizer.to_str().replace('"j"', '"J"').replace('"i":', '"I":')
    )
    (card.parent / "far" / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    with pytest.raises(PoolError, match=r"'student' has another vocabulary.*kind lm"):
        load_pool(card)
