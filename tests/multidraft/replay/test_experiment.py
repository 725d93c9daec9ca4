"""Policies replayed side by side: the best is marked only where replays are near what ran live."""

from dataclasses import replace

import pytest

from multidraft.replay.advice import PLAIN, Advice
from multidraft.replay.experiment import ORACLE, Experiment
from tests.multidraft.replay.test_advice import text

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
