"""What a pool learns from its traffic, and how far that can be trusted."""

import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from drafters.traffic import EXPECTED, LESSONS, SIMILAR, Traffic, acceptance_of, n_grams, suitability, tokens_of

KINDS = {"sql": "Write the SQL query for all {} sorted by {}.", "math": "Work out {} plus {} one step at a time."}
BEST = {"sql": (0.9, 0.2, 0.7), "math": (0.2, 0.9, 0.7)}


def prompts(kind, count, rng):
    words = np.array("red blue tall small fast slow old new north south west east".split())
    return [KINDS[kind].format(*rng.choice(words, 2)) + f" Case {rng.integers(1000)}." for _ in range(count)]


def taught(count, seed=0, **kwargs):
    """Traffic that has seen ``count`` prompts of each kind, by turns, with noise about what suits them."""
    rng, traffic = np.random.default_rng(seed), Traffic(3, 8, **kwargs)
    lists = [prompts(kind, count, rng) for kind in KINDS]
    told = np.clip(np.tile(list(BEST.values()), (count, 1)) + rng.normal(0, 0.05, (2 * count, 3)), 0, 0.99)
    traffic.learn(zip([prompt for pair in zip(*lists) for prompt in pair], told))
    return traffic


def shares(acceptance):
    return tokens_of(np.array(acceptance), 8) / 8


def test_tokens_and_acceptance_are_inverse():
    acceptance = np.array([0.0, 0.3, 0.62, 0.95])
    assert acceptance_of(tokens_of(acceptance, 12), 12) == pytest.approx(acceptance, abs=1e-3)
    assert tokens_of(np.array([0.5]), 3) == pytest.approx([0.875])


def test_a_drafter_is_judged_stretch_by_stretch():
    accepted = np.zeros((2, 100), dtype=int)
    accepted[0, 50:], accepted[1] = 4, 1
    one = float(acceptance_of(np.array(1.0), 4).round(3))
    assert suitability(accepted, 4) == ((0.0, one), (0.0, one), (0.995, one), (0.995, one))
    assert suitability(accepted[:, :7], 4) is None
    assert suitability(accepted[:, 50:60], 4) == ((0.995, one),)


def test_a_query_begins_with_the_texts_of_the_most_similar_prompts():
    traffic = Traffic(1, 4)
    told = [
        (f"Count the {word} apples of {n} farmers", [[n / 100]] * (n % 30 + 1)) for n, word in enumerate(["red"] * 50)
    ]
    traffic.learn([*told, ("Quite another matter", [[0.9]])])
    prior = traffic.prior("Count the red apples of 7 farmers")
    assert prior.texts[0] == ((0.07,),) * 8 and sum(map(len, prior.texts)) == SIMILAR
    assert sorted(prior.likeness, reverse=True) == list(prior.likeness) and len(prior.likeness) == len(prior.texts)
    assert ((0.9,),) not in prior.texts
    assert traffic.prior("Völlig fremd").texts == ()


def test_lessons_of_older_runs_are_one_stretch():
    traffic = Traffic(2, 4)
    traffic.learn([("an older prompt", [0.9, 0.1]), ("a newer prompt", [[0.5, 0.2], [0.1, 0.6]])])
    assert traffic.prior("an older prompt").texts == (((0.9, 0.1),), ((0.5, 0.2), (0.1, 0.6)))


def test_without_lessons_it_says_nothing():
    assert Traffic(3, 8).prior("anything") is None


def test_it_learns_who_suits_which_prompts():
    rng, traffic = np.random.default_rng(9), taught(20)
    for kind, best in BEST.items():
        for prompt in prompts(kind, 5, rng):
            found = traffic.prior(prompt)
            assert shares(found.acceptance) == pytest.approx(shares(best), abs=0.2)
            assert found.lessons == 40


def test_a_prompt_like_none_before_is_met_with_doubt():
    traffic = taught(20)
    known, unknown = traffic.prior(KINDS["sql"].format("red", "old")), traffic.prior("Übersetze, bitte: Guten Tag!")
    assert min(unknown.doubt) > 1.5 * max(known.doubt)
    # It falls back to what prompts have in common.
    assert abs(unknown.acceptance[0] - unknown.acceptance[1]) < 0.1


def test_little_experience_promises_little():
    few, many = taught(1).prior("Write the SQL query for all old sorted by new."), taught(20)
    after = many.prior("Write the SQL query for all old sorted by new.")
    assert abs(few.acceptance[0] - EXPECTED) < abs(after.acceptance[0] - EXPECTED)
    assert min(few.doubt) > max(after.doubt)


def test_doubt_is_calibrated():
    rng, traffic = np.random.default_rng(3), taught(30, seed=2)
    errors = []
    for kind, best in BEST.items():
        for prompt in prompts(kind, 40, rng):
            found = traffic.prior(prompt)
            truth = np.clip(np.array(best) + rng.normal(0, 0.05, 3), 0, 0.99)
            errors.append((shares(truth) - shares(found.acceptance)) / np.array(found.doubt))
    assert 0.6 < np.sqrt(np.mean(np.square(errors))) < 1.5


def test_a_router_is_a_voice_that_is_learnt_to_be_doubted():
    wrong = taught(20, guess=lambda prompt: [0.35, 0.8, 0.35] if "SQL" in prompt else [0.8, 0.35, 0.35])
    found = wrong.prior(KINDS["sql"].format("fast", "tall"))
    assert shares(found.acceptance) == pytest.approx(shares(BEST["sql"]), abs=0.15)
    right = Traffic(2, 8, guess=lambda prompt: [0.8, 0.35])
    right.learn([("Something else entirely", [0.8, 0.35])])
    assert right.prior("Work out 3 plus 4.").acceptance == pytest.approx([0.8, 0.35], abs=0.01)


def test_it_forgets_and_is_bounded():
    traffic = Traffic(1, 4)
    traffic.learn([(f"old {n}", [0.9]) for n in range(LESSONS)])
    before = traffic.prior("the same words").acceptance[0]
    traffic.learn([(f"new {n}", [0.1]) for n in range(LESSONS)])
    assert before > 0.8 and traffic.prior("the same words").acceptance[0] < 0.3
    assert len(traffic._lessons) == LESSONS and traffic.count == 2 * LESSONS


def test_a_prompt_is_one_lesson_however_often_it_comes():
    traffic = Traffic(2, 4)
    traffic.learn([("twice", [0.9, 0.1]), ("once", [0.5, 0.5]), ("twice", [0.1, 0.9])])
    assert list(traffic._lessons) == ["once", "twice"]
    assert traffic.prior("twice").acceptance[1] > traffic.prior("twice").acceptance[0]


def test_lessons_of_other_drafters_are_refused():
    traffic = Traffic(2, 4)
    with pytest.raises(ValueError, match="the pool has 2 drafters; the lesson is of 3"):
        traffic.learn([("o", [0.1, 0.2]), ("p", [0.1, 0.2, 0.3])])
    assert traffic.count == 0 and traffic.prior("o") is None, "of what is refused nothing is learnt"


def test_any_text_has_n_grams():
    for text in ("", " ", "a", "\ud800", "日本語", "x" * 100_000):
        words, runs = n_grams(text)
        assert len(np.unique(words)) == len(words) and len(np.unique(runs)) == len(runs)
    traffic = Traffic(1, 4)
    traffic.learn([("", [0.5])])
    assert np.isfinite(traffic.prior("\ud800").acceptance).all()


def test_a_query_takes_less_than_a_millisecond_of_the_processor():
    traffic = taught(LESSONS // 2)
    prompt = " ".join(prompts("sql", 8, np.random.default_rng(0)))
    taken = []
    for _ in range(20):
        began = time.process_time()
        traffic.prior(prompt)
        taken.append(time.process_time() - began)
    assert min(taken) < 1e-3


def test_it_learns_on_one_thread_and_leaves_the_others_as_they_were(monkeypatch):
    """Threads of BLAS that have just worked would take the cores from the text that comes next."""
    inverse, seen = np.linalg.inv, []

    def threads():
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    def watched(covariance):
        seen.append(threads())
        return inverse(covariance)

    monkeypatch.setattr(np.linalg, "inv", watched)
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        taught(4)
        assert seen == [{1}] and threads() == before


def routed(prompt):
    """A router's guess: the first drafter for sums, the second for queries, neither for anything else."""
    return [0.8 if word in prompt else 0.35 for word in ("Add", "Query")] + [0.43]


def test_what_is_learnt_counts_for_prompts_that_are_routed_alike():
    traffic = Traffic(3, 8, routed)
    traffic.learn([("Add seven apples to nine pears", [[0.95, 0.1, 0.8]])])
    assert traffic.prior("Query the table of cities") is None, "the router's guess stands"
    prior = traffic.prior("Add up whatever else there is")
    assert prior.likeness == (0.5,) and prior.texts == (((0.95, 0.1, 0.8),),), "without an n-gram in common"
    assert shares(prior.acceptance) == pytest.approx(shares([0.95, 0.1, 0.8]), abs=0.2)
    traffic.learn([(f"Query {n} of the cities", [[0.1, 0.9, 0.8]]) for n in range(3)])
    assert traffic.prior("Add up whatever else there is").texts[0] == ((0.95, 0.1, 0.8),)


def test_without_a_router_any_lesson_counts():
    traffic = Traffic(3, 8)
    traffic.learn([("Add seven apples to nine pears", [[0.95, 0.1, 0.8]])])
    assert traffic.prior("Query the table of cities").lessons == 1


def test_a_prompt_that_taught_something_itself_is_told():
    traffic = taught(3)
    known = next(iter(traffic._lessons))
    assert traffic.prior(known).repeated and not traffic.prior(f"{known} Now!").repeated
