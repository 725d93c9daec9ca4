"""Policies that misbehave: whoever plays them says which, what and where."""

import math
import re

import numpy as np
import pytest

from drafters.errors import PolicyError
from drafters.sampling import SamplingParams
from multidraft.engine.decoding import Decoding, generate
from multidraft.policies import POLICIES, Policy, make_policy
from multidraft.policies.faults import chosen_length
from multidraft.replay.walk import replay
from tests import tiny
from tests.engine_cases import GREEDY

PROMPT = tiny.prompts(1, seed=6)[0]
TABLE = np.full((4, 30), 2)


class Stubborn(Policy):
    """Does in its third round what it is told to."""

    name, title, explanation, source = "stubborn", "", "", ""
    choice, length, readers, span = 1, 3, range(4), None
    uses_gamma = True

    def select(self):
        self.t += 1
        return self.outcome() if self.t == 3 else 1

    def outcome(self):
        return self.choice

    def candidates(self):
        return self.readers

    def wants_evaluation(self, emitted):
        return self.t == 3

    @property
    def evaluation_span(self):
        return self.span

    def draft_length(self, limit):
        return self.length if self.t == 3 else 2


def stubborn(**attributes):
    return type("Made", (Stubborn,), attributes)(["a", "b", "c", "d"])


@pytest.fixture(params=["live", "replayed"])
def play(request, pool):
    if request.param == "live":
        return lambda policy: generate(pool, PROMPT, policy, GREEDY)
    return lambda policy: replay(TABLE, policy, draft_length=4)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"choice": 99}, "policy 'stubborn' chose drafter 99; there are 0 to 3, -1 for none, and -2 for all at once"),
        (
            {"choice": np.int64(4)},
            "policy 'stubborn' chose drafter 4; there are 0 to 3, -1 for none, and -2 for all at once",
        ),
        ({"choice": -7}, "policy 'stubborn' chose drafter -7; there are 0 to 3, -1 for none, and -2 for all at once"),
        (
            {"choice": "math"},
            "policy 'stubborn' chose drafter 'math'; there are 0 to 3, -1 for none, and -2 for all at once",
        ),
        ({"choice": 1.0}, "policy 'stubborn' chose drafter 1.0; there are 0 to 3, -1 for none, and -2 for all at once"),
        (
            {"choice": None},
            "policy 'stubborn' chose drafter None; there are 0 to 3, -1 for none, and -2 for all at once",
        ),
        (
            {"choice": True},
            "policy 'stubborn' chose drafter True; there are 0 to 3, -1 for none, and -2 for all at once",
        ),
        ({"length": -1}, "policy 'stubborn' chose the draft length -1; it must be a number from 0 on"),
        ({"length": "long"}, "policy 'stubborn' chose the draft length 'long'; it must be a number from 0 on"),
        ({"readers": [0, 4]}, "policy 'stubborn' gave [0, 4] as candidates; they must be among 0 to 3"),
        ({"readers": ["a"]}, "policy 'stubborn' gave ['a'] as candidates; they must be among 0 to 3"),
        ({"readers": None}, "policy 'stubborn' gave None as candidates; they must be among 0 to 3"),
        ({"span": -3}, "policy 'stubborn' gave -3 as evaluation_span; it must be a number from 1 on or None"),
        ({"span": "few"}, "policy 'stubborn' gave 'few' as evaluation_span; it must be a number from 1 on or None"),
    ],
)
def test_what_is_no_choice(play, attributes, message):
    with pytest.raises(PolicyError) as caught:
        play(stubborn(**attributes))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (
            {"chances": [0.5, math.nan]},
            "policy 'stubborn' gave nan as one of the probabilities; it must be a finite number",
        ),
        ({"chances": ["a"]}, "policy 'stubborn' gave 'a' as one of the probabilities; it must be a finite number"),
        ({"chances": 0.5}, "policy 'stubborn' gave 0.5 as probabilities; they must be a list of numbers"),
        (
            {"chances": [None]},
            "policy 'stubborn' gave None as one of the probabilities; it must be a finite number",
        ),
        ({"reward": "high"}, "policy 'stubborn' gave 'high' as last_reward; it must be a finite number"),
        ({"reward": math.inf}, "policy 'stubborn' gave inf as last_reward; it must be a finite number"),
    ],
)
def test_what_no_record_can_hold(pool, attributes, message):
    class Telling(Stubborn):
        chances, reward = None, None

        def begin(self, context=None):
            super().begin(context)
            self.last_reward = self.reward

        def probabilities(self):
            return self.chances

    with pytest.raises(PolicyError) as caught:
        generate(pool, PROMPT, type("Made", (Telling,), attributes)(["a", "b", "c", "d"]), GREEDY)
    assert str(caught.value) == message
    told = type("Made", (Telling,), {"chances": np.full(4, 0.25)})(["a", "b", "c", "d"])
    assert generate(pool, PROMPT, told, GREEDY).rounds[0].probabilities == (0.25,) * 4


def test_numpy_numbers_are_choices(pool):
    out = generate(pool, PROMPT, stubborn(choice=np.int64(2), length=np.int32(3)), GREEDY)
    assert out.token_ids == generate(pool, PROMPT, "autoregressive", GREEDY).token_ids
    assert [type(r.arm) for r in out.rounds[:3]] == [int] * 3 and out.rounds[2].draft_length == 3


def failing(self):
    return np.ones(2)[self.t]


def test_what_it_raises_is_told_with_its_place(play):
    with pytest.raises(PolicyError) as caught:
        play(stubborn(outcome=failing))
    message = str(caught.value)
    line = failing.__code__.co_firstlineno + 1
    assert message.startswith("policy 'stubborn' raised IndexError: index 3 is out of bounds")
    assert message.endswith(f"(tests/multidraft/policies/test_faults.py, line {line})")
    assert isinstance(caught.value.__cause__, IndexError)


def exiting(self):
    raise SystemExit(3)


def test_an_exit_is_told_like_an_error(play, monkeypatch):
    for fault in ({"outcome": exiting}, {"reset": exiting}):
        with pytest.raises(PolicyError, match=r"^policy '\w+' raised SystemExit: 3 \(tests/multidraft/.*, line \d+\)$"):
            monkeypatch.setitem(POLICIES, "leaving", type("Leaving", (Stubborn,), fault))
            play(make_policy("leaving", list("abcd")))


def test_a_place_outside_of_the_folder_is_told_in_full(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PolicyError, match=re.escape(f"({__file__}, line ")):
        replay(TABLE, stubborn(outcome=failing), draft_length=4)


@pytest.mark.parametrize("error", [PolicyError("no drafter is good enough"), KeyboardInterrupt()])
def test_what_says_itself_what_is_wrong_and_what_is_no_fault_pass(error):
    def stop(self):
        raise error

    with pytest.raises(type(error)) as caught:
        replay(TABLE, stubborn(outcome=stop), draft_length=4)
    assert caught.value is error


@pytest.mark.parametrize(("choice", "length"), [(0, 0), (1, 1), (np.int64(4), 4), (9, 4)])
def test_a_length_is_cut_to_what_there_is_room_for(choice, length):
    assert chosen_length("p", choice, 4) == length


def test_what_was_decoded_until_then_is_kept(pool):
    decoding = Decoding(pool, PROMPT, stubborn(choice=99), GREEDY)
    with pytest.raises(PolicyError) as caught:
        decoding.run()
    out = decoding.generation
    assert (out.status, out.error, len(out.rounds)) == ("error", str(caught.value), 2)
    plain = generate(pool, PROMPT, "autoregressive", SamplingParams(len(out.token_ids), draft_length=4))
    assert out.token_ids == plain.token_ids


def test_an_error_elsewhere_is_not_the_policy_s(pool, monkeypatch):
    def broken(*arguments, **settings):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(pool.target, "score", broken)
    decoding = Decoding(pool, PROMPT, "fixed:near", GREEDY)
    with pytest.raises(RuntimeError, match="out of memory"):
        decoding.run()
    assert decoding.generation.error == "RuntimeError: out of memory"


def test_what_cannot_be_made(monkeypatch):
    class Unready(Stubborn):
        def __init__(self, arms, seed=0):
            super().__init__(arms, seed)
            self.share = 1 / 0

    monkeypatch.setitem(POLICIES, "unready", Unready)
    with pytest.raises(PolicyError, match=r"'unready' raised ZeroDivisionError: .*test_faults.py, line \d+\)"):
        make_policy("unready", 2)
