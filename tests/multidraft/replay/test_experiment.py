"""Policies replayed side by side: the best is marked only where replays are near what ran live. As traffic each text
begins with what those before it taught."""

from dataclasses import replace

import pytest

from drafters.traffic import Prior, stretches_of, suitability
from multidraft.bench.summary import in_parts
from multidraft.replay.advice import Advice
from multidraft.replay.experiment import ORACLE, Experiment, as_traffic
from multidraft.replay.recorded import recorded_texts, texts_with_costs
from storage.records import PLAIN
from tests.multidraft.replay.test_advice import text
from tests.runs import result_of

TEXTS = [text(number, (4, 0)) for number in range(6)]
SPECS = ("fixed:a", "fixed:b")


def experiment(measured=None):
    played = {spec: [text.replay(spec) for text in TEXTS] for spec in (*SPECS, ORACLE, PLAIN)}
    return Experiment(TEXTS, played, dict.fromkeys(SPECS), measured)


def live(decode, rounds):
    """What is measured on four of the prompts, so many times what replays say."""
    prompts = tuple(text.prompt for text in TEXTS[:4])
    own, plain = (experiment().options[spec].on(prompts) for spec in ("fixed:a", PLAIN))
    return Advice.of(plain, [replace(own, decode=own.decode * decode, rounds=own.rounds * rounds)])


def test_without_live_runs_the_fastest_is_marked():
    found = experiment()
    assert found.leader == found.fewest == "fixed:a" and found.far_off == {}


@pytest.mark.parametrize(("decode", "rounds", "off"), [(1.1, 1.1, None), (0.7, 1.0, -0.3), (1.0, 1.4, 0.4)])
def test_where_replays_are_far_from_live_runs_none_is(decode, rounds, off):
    found = experiment(live(decode, rounds))
    assert (found.leader, found.fewest) == ((None, None) if off else ("fixed:a", "fixed:a"))
    assert found.far_off == ({"fixed:a": pytest.approx(off)} if off else {})


def test_rounds_that_are_estimates_are_no_best_unless_they_ran_live():
    found = experiment()
    estimated = {spec: replace(option, estimate=True) for spec, option in found.options.items()}
    vars(found)["options"] = estimated  # a cached property
    assert found.leader is None is found.fewest
    ran = experiment(live(1.0, 1.0))
    vars(ran)["options"] = estimated
    assert ran.leader == ran.fewest == "fixed:a"


COLD, TRAFFIC = "ucb:reward=be", "ucb:reward=be,start=traffic"


@pytest.fixture(scope="module")
def texts(bench_db):
    return texts_with_costs(recorded_texts(bench_db), bench_db)[:6]


def played(texts, specs):
    return result_of(as_traffic(texts, specs))


def test_it_yields_after_each_text(texts):
    assert len(list(as_traffic(texts, [COLD]))) == len(texts)


def test_cold_is_the_replay_and_so_is_the_first_of_the_traffic(texts):
    found = played(texts, [COLD, TRAFFIC])
    for one, cold in zip(texts, found[COLD], strict=True):
        assert cold == one.replay(COLD)
    assert found[TRAFFIC][0] == found[COLD][0]
    assert [p.arms for p in found[TRAFFIC][1:]] != [p.arms for p in found[COLD][1:]]


def test_a_prompt_that_comes_again_begins_with_its_best_drafter(texts):
    one = texts[0]
    again = played([one, one], [TRAFFIC])[TRAFFIC][1]
    told = stretches_of(suitability(one.table.accepted, one.run.params.draft_length)).max(axis=0)
    assert again.arms[0] == told.argmax()


def test_what_was_recorded_as_known_does_not_count(texts):
    knowing = [one.beginning_with(Prior((0.1,) * 7 + (0.9,), (0.1,) * 8, 99)) for one in texts[:2]]
    assert knowing[0].replay(TRAFFIC).arms[0] == 7
    assert played(knowing, [TRAFFIC]) == played(texts[:2], [TRAFFIC])


def test_parts_of_a_stream():
    assert in_parts(10) == [range(10)]
    assert in_parts(60) == [range(20), range(20, 60)]
    assert in_parts(240)[-1] == range(120, 240) and in_parts(300)[-1] == range(240, 300)
