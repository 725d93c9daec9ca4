import json
from dataclasses import replace

import pytest

from multidraft.ui.widgets import lanes as stage
from storage import figures
from storage.run import Baseline
from tests.runs import make_generation, make_round, make_run

BASELINE = Baseline("answer", 6, 0.01, 0.0)


def replayed(generations, baselines=(None, None), temperature=0.0):
    """The data of lanes that wrote ``generations``."""
    values = {"temperature": temperature, "lossless": True}
    return stage.replay_data([make_run(g, baseline=b, **values) for g, b in zip(generations, baselines, strict=True)])


@pytest.fixture
def lanes():
    """A plain lane of six tokens in six rounds, and one under ucb in two."""
    plain = [
        make_round(i, arm=None, drafter=None, drafted=(), accepted=0, tokens=(token,), own=token, pieces=(piece,))
        for i, (token, piece) in enumerate(zip((5, 6, 9) * 2, "abcabc"))
    ]
    return [make_generation(rounds=plain, policy="autoregressive"), make_generation(policy="ucb", prefill_seconds=0.5)]


def test_rounds_keep_their_recorded_times_without_prefill(lanes) -> None:
    data = replayed(lanes)
    assert [r["end"] for r in data["lanes"][1]["rounds"]] == [0.01, 0.02]
    assert data["lanes"][1]["prefill"] == 0.5
    assert data["seconds"] == data["lanes"][0]["seconds"] == data["lanes"][0]["rounds"][-1]["end"] == 0.06


def test_tokens_have_the_kind_of_who_proposed_them(lanes) -> None:
    plain, ucb = replayed(lanes)["lanes"]
    assert (ucb["rounds"][0]["kind"], ucb["rounds"][0]["accepted"]) == ("md-arm0", 2)
    assert ucb["rounds"][0]["pieces"] == ("a", "b", "c")
    assert ucb["rounds"][0]["about"].startswith("Round 1: math, accepted 2 of 3")
    assert (plain["rounds"][0]["kind"], plain["rounds"][0]["accepted"]) == ("md-own", 0)


def test_the_speed_to_begin_with_is_the_fastest_that_lasts_long_enough(lanes) -> None:
    runs = [make_run(g) for g in lanes]  # of 60 ms
    begins = {lasting: stage.replay_data(runs, lasting)["speed"] for lasting in (0.0, 0.06, 0.1, 0.5, 5.0)}
    assert begins == {0.0: 1.0, 0.06: 1.0, 0.1: 0.5, 0.5: 0.1, 5.0: 0.025}


def test_lane_rounds_can_be_taken_step_by_step(lanes) -> None:
    plain, ucb = replayed(lanes)["lanes"]
    assert ucb["rounds"][0]["step"]["guesses"] == ["a", "b", "e"]
    assert "guesses" not in plain["rounds"][0]["step"] and plain["rounds"][0]["step"]["own"] == "a"


def test_places_speed_ups_and_calls_saved(lanes, monkeypatch: pytest.MonkeyPatch) -> None:
    short = replayed(lanes, [BASELINE, BASELINE])["lanes"]
    assert all(lane["speedup"] is None for lane in short), "too short"
    monkeypatch.setattr(figures, "FEWEST_TOKENS", 1)
    plain, ucb = replayed(lanes, [BASELINE, BASELINE])["lanes"]
    assert (plain["place"], ucb["place"]) == (2, 1)
    assert (plain["speedup"], ucb["speedup"]) == ("1.00×", "3.00×")
    assert plain["title"] == "No drafter (autoregressive)" and ucb["title"] == "UCB"


def test_the_same_policy_twice_shares_a_place_where_times_are_equal() -> None:
    data = replayed([make_generation(), make_generation()])
    assert [lane["place"] for lane in data["lanes"]] == [1, 1]


def test_timings_too_noisy_give_no_places() -> None:
    rounds = [make_round(index) for index in range(4)]
    lanes = [make_run(rounds=rounds, baseline=Baseline("prefix", 6, each, 0.002, 0.4)) for each in (0.01, 0.02)]
    assert stage.places(lanes) == [0, 0]


def test_only_the_places_that_timings_cannot_tell_are_left_open() -> None:
    """Beside a plain lane of 0.12 s one of 0.04 s by ± 30 % is certainly first; beside a third, those two are open."""
    baseline = Baseline("answer", 12, 0.01, 0.002, 0.3)
    slow = [make_round(index, draft_seconds=0.02, verify_seconds=0.01, policy_seconds=0.0) for index in range(4)]
    plain, ucb, exp3 = (
        make_run(policy=policy, rounds=rounds, baseline=replace(baseline, uncertainty=off))
        for policy, rounds, off in (
            ("autoregressive", slow, 0.0),
            ("ucb", [make_round(index) for index in range(4)], 0.3),
            ("exp3", [make_round(index) for index in range(4)], 0.3),
        )
    )
    assert stage.places([plain, ucb]) == [2, 1] and stage.places([ucb, plain, exp3]) == [0, 3, 0]
    assert stage.result([plain, ucb]).endswith("calls. UCB finished first, after 0.04 s of decoding.")
    assert stage.result([ucb, plain, exp3]).endswith(
        "UCB and EXP3 are faster than decoding without drafters. The machine was too busy to tell the order of UCB and "
        "EXP3; run it again."
    )


def test_who_is_ahead_is_said_in_a_sentence(lanes) -> None:
    said = replayed(lanes)["result"]
    assert said == (
        "UCB needs the fewest target calls (2 for 6 tokens). UCB finished first, after 0.02 s of decoding."
    ), "places are by time, as the lanes show them"
    rounds = [make_round(index) for index in range(4)]
    alike, busy = (
        "All lanes need equally many target calls.",
        "The machine was too busy to tell the finish order; run it again.",
    )
    for off, certain in (
        (0.4, " UCB and EXP3 are faster than decoding without drafters."),
        (0.42, " UCB is faster than decoding without drafters."),
        (1.2, ""),
    ):
        noisy = [Baseline("prefix", 6, each, 0.002, off) for each in (0.01, 0.02)]
        runs = [make_run(policy=p, rounds=rounds, baseline=b) for p, b in zip(("ucb", "exp3"), noisy, strict=True)]
        runs.append(
            make_run(policy="autoregressive", rounds=rounds, baseline=Baseline("prefix", 6, 0.0049, 0.002, 0.0))
        )
        assert stage.result(runs) == f"{alike}{certain} {busy}", "autoregressive decoding is not compared with itself"
    sampled = replayed([lanes[0], make_generation(policy="ucb", rounds=rounds)], temperature=1.0)["result"]
    assert sampled == "UCB needs the fewest target calls for its tokens (3.00 tokens per call)."


def test_lanes_of_one_policy_are_told_apart_and_named_once() -> None:
    rounds, speeds = [make_round(index) for index in range(4)], (20.0, 4000.0)
    ours, ucb = "rate-hedge", "ucb"

    def said(*lanes: tuple[str, float]) -> str:
        noisy = [(policy, Baseline("prefix", 1, 1 / speed, 0.002, 0.4)) for policy, speed in lanes]
        return stage.result([make_run(policy=policy, rounds=rounds, baseline=baseline) for policy, baseline in noisy])

    for speed, side in zip(speeds, ("faster", "slower"), strict=True):
        assert f" All lanes are {side} than decoding without drafters." in said(
            (ours, speed), (ours, speed), (ucb, speed)
        )
        assert f" Both lanes are {side} than decoding without drafters." in said((ours, speed), (ucb, speed))
    both = said((ours, 4000.0), (ours, 4000.0), (ucb, 250.0))
    assert " RateHedge (ours, lanes 1 and 2) are slower than decoding without drafters." in both
    one = said((ucb, 250.0), (ucb, 4000.0), (ours, 250.0))
    assert " UCB (lane 2) is slower than decoding without drafters." in one


def test_the_speed_up_is_against_what_was_measured_or_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "FEWEST_TOKENS", 1)
    two = [make_generation(), make_generation()]
    assert replayed(two, [BASELINE, None])["lanes"][0]["speedup"] == "3.00×"
    assert replayed(two)["lanes"][0]["speedup"] is None


def test_identical_greedy_outputs_are_said_to_be(lanes) -> None:
    verdict = replayed(lanes)["verdict"]
    assert verdict == {"kind": "same", "text": "Both outputs are identical, token by token (6 tokens)."}


def test_outputs_that_differ_are_said_to_differ_and_where(lanes) -> None:
    lanes[1].token_ids = [5, 6, 9, 5, 7, 9]
    sure = replayed(lanes)["verdict"]
    assert sure["kind"] == "differ" and "NOT identical: they diverge at token 5" in sure["text"]
    assert "within rounding" in sure["text"] and "Please report" not in sure["text"]
    for lossless in ([True, False], [True, None], [None, None]):
        doubtful = stage.verdict([make_run(g, lossless=each) for g, each in zip(lanes, lossless)])
        assert doubtful["kind"] == "differ" and "Please report" in doubtful["text"]


def test_an_output_that_is_shorter_differs_at_its_end(lanes) -> None:
    lanes[1].token_ids = [5, 6]
    assert "diverge at token 3" in replayed(lanes)["verdict"]["text"]


def test_sampled_outputs_are_never_called_identical(lanes) -> None:
    verdict = replayed(lanes, temperature=1.0)["verdict"]
    assert verdict["kind"] == "sampled" and "same distribution" in verdict["text"]
    assert "identical" not in verdict["text"]


def test_a_lane_without_rounds_does_no_harm(lanes) -> None:
    data = replayed([lanes[0], make_generation(rounds=[])])
    assert data["lanes"][1]["rounds"] == []


def test_all_of_it_is_json_and_texts_are_left_as_they_are() -> None:
    pieces = ("<script>alert(1)</script>", "שלום", "👩‍🔬")
    lane = make_generation(rounds=[make_round(pieces=pieces, text="".join(pieces))])
    data = json.loads(json.dumps(replayed([lane, lane])))
    assert data["lanes"][0]["rounds"][0]["pieces"] == list(pieces)


def test_lanes_still_to_be_measured() -> None:
    data = stage.pending(["autoregressive", "ucb:beta=0.1"], ["measuring", "waiting"])
    assert not data["ready"] and json.dumps(data)
    assert [lane["state"] for lane in data["lanes"]] == ["measuring", "waiting"]
    assert data["lanes"][1]["title"] == "UCB (beta=0.1)"
