"""The verdict in words: what is certain, what is open, and no star without significance."""

import json
from dataclasses import replace

import numpy as np
import pytest

from drafters.errors import UserError
from multidraft.bench.measured_verdict import of_rows
from multidraft.bench.summary import Row, overall
from multidraft.bench.verdict import sentences, verdict
from multidraft.bench.verdict_json import as_json
from multidraft.bench.verdict_tables import tables
from multidraft.replay.advice import Advice
from multidraft.replay.contribution import Share
from multidraft.replay.options import Option
from storage.figures import Ratio

NOISE = np.array([0.9, 1.1, 0.95, 1.05, 1.0, 1.02, 0.98, 1.0])


def option(spec, factor, length=6, noise=1.0, prompts=8):
    seconds = 10.0 * factor * (np.ones(prompts) if isinstance(noise, float) else noise)
    tokens = np.full(prompts, 30.0)
    return Option(spec, length, seconds, seconds, tokens, tokens / 3)


PLAIN = option("autoregressive", 1.0, 0)


def test_a_certain_winner_with_what_it_saves_and_needs():
    shares = (
        Share("math", True, 0.31, Ratio(1.12, 1.05, 1.2, 8), 1 << 20),
        Share("code", True, 0.2, Ratio(1.01, 0.97, 1.06, 8)),
        Share("old", False, 0.0, None, 2 << 20),
    )
    options = [option("rate-hedge", 0.5, noise=NOISE), option("fixed:math", 0.8)]
    found = Advice.of(PLAIN, options, shares=shares, removed=(("old",), None), lengths={3: Ratio(0.9, 0.8, 0.95, 8)})
    said = "\n".join(sentences(found))
    assert "For this traffic: `rate-hedge`, draft length up to 6: decoding is 2.00× (1.9" in said
    assert "it saves 67 % of the target's calls (3.00 tokens per round)" in said
    assert "on 8 prompts" in said and "50 % less device time" in said
    assert (
        "Under the other policy whole requests are slower, at the 95 % level: `fixed:math` (request speed-up 1.25×)"
        in said
    )
    assert (
        "keep `math` (its accepted drafts are 31 % of the tokens; without it requests take 1.12× (1.05–1.20) as" in said
    )
    assert (
        "Under `rate-hedge`, remove `old`: it never drafts; 2.0 MiB of memory (weights and cache) are free then."
        in said
    )
    assert "Not settled by these prompts whether this drafter pays: `code`." in said
    assert "6 tokens under `rate-hedge`, by replays: faster, at the 95 % level, than those of up to 3." in said
    assert "by replays: keep `math`; leave out `old`, which frees 2.0 MiB of memory; not settled: `code`." in said
    policies, drafters, _ = tables(found)
    assert policies.rows[0][0] == "`rate-hedge` ★" and drafters.rows[2][-1] == "can go"


def test_a_fixed_drafter_says_nothing_of_those_it_never_plays():
    shares = (Share("math", True, 0.31, None, 1 << 20), Share("old", False, 0.0, None, 2 << 20))
    found = Advice.of(PLAIN, [option("fixed:math", 0.5, noise=NOISE)], shares=shares, removed=(("old",), None))
    said = "\n".join(sentences(found))
    assert "remove" not in said and "`fixed:math` plays no other drafter, which says nothing of them" in said
    assert len(tables(found)) == 1


def test_what_is_level_has_no_star_and_says_how_many_prompts_would_settle_it():
    options = [option("ucb", 0.5, noise=NOISE), option("fixed:math", 0.505, noise=NOISE[::-1])]
    found = Advice.of(PLAIN, options)
    _, end, *_ = (said := sentences(found))
    assert not found.certain and "★" not in "".join(cell for row in tables(found)[0].rows for cell in row)
    assert "Under `fixed:math` (request speed-up 1.98×, 1.8" in "\n".join(said)
    more = sentences(Advice.of(PLAIN, [*options, option("exp3", 0.6)]))
    assert (
        "Under `exp3` (request speed-up 1.67×) they are slower, at the 95 % level (paired by prompt; the "
        "intervals in the table do not show this)."
    ) in more
    assert end.startswith(
        "What to do: run `ucb`, draft length up to 6. It leads, but not significantly: `fixed:math` could"
    )
    assert "could be at most 7 % faster (95 % confidence)" in end
    assert "more prompts would settle `ucb` against `fixed:math` (95 % level, 80 % power)." in end
    assert end.endswith("Where memory is short, run `fixed:math`: it needs a single drafter.")
    near = Advice.of(PLAIN, [option("ucb", 0.5), option("fixed:math", 0.5004, noise=0.03 * (NOISE - 1.0) + 1.0)])
    assert "at most 1 % faster" in sentences(near)[1], "not 0 %"


def test_of_two_that_no_number_of_prompts_would_tell_apart_the_simpler_one_is_to_be_run():
    noisy = np.array([0.5, 1.5, 0.7, 1.3, 1.0, 1.0, 1.2, 0.8])
    found = Advice.of(PLAIN, [option("ucb", 0.5, noise=noisy), option("fixed:math", 0.5001, noise=noisy[::-1])])
    _, end, *_ = sentences(found)
    assert end.startswith("What to do: run `fixed:math`, draft length up to 6: more than 1,000 prompts would be needed")
    assert end.endswith("so either will do, and it needs a single drafter.")


@pytest.mark.parametrize(
    ("factor", "prompts", "said", "do"),
    [
        (1.25, 8, "Don't speculate on this traffic: with the fastest policy, `ucb`", "decode without drafters (`auto"),
        (
            0.98,
            8,
            "No speed-up of whole requests is certain on this traffic",
            "run `ucb`, draft length up to 6 for now: it is the fastest so far, and requests take at most 2 % longer "
            "than without drafters (`autoregressive`). About 47 more prompts would settle `ucb` against `auto",
        ),
        (1.02, 8, "No speed-up of whole requests is certain", "decode without drafters (`autoregressive`) for now: no"),
        (
            0.5,
            2,
            "2 prompts are too few to say which policy is faster; at least 6 are needed. The fastest so far is `ucb`",
            "run `ucb`, draft length up to 6 for now: it is the fastest so far. At least 4 more prompts are needed",
        ),
        (0.5, 1, "1 prompt is too few", "run 6 prompts or more as a batch: one does not tell which policy"),
    ],
)
def test_where_nothing_is_certain_there_is_something_to_do(factor, prompts, said, do):
    plain = option("autoregressive", 1.0, 0, prompts=prompts)
    found = Advice.of(plain, [option("ucb", factor, noise=NOISE[:prompts])])
    first, end, basis = sentences(found)
    assert said in first and "95 %" in basis and end.startswith(f"What to do: {do}")


def test_what_was_measured_leads_and_replays_add_what_was_not_run():
    live = Advice.of(PLAIN, [option("rate-hedge", 0.5, noise=NOISE), option("ucb", 0.8)])
    played = [option("rate-hedge", 0.9), option("ucb", 0.95), option("fixed:math", 0.7, 3)]
    known = {"texts": 9, "measured": live, "errors": {"rate-hedge": 0.11, "ucb": -0.02}}
    known["request_errors"] = {"rate-hedge": 0.15, "ucb": 0.04}
    first, end, starts, rivals, beyond, *_, basis = sentences(found := Advice.of(PLAIN, played, **known))
    assert first.startswith("Measured. For this traffic: `rate-hedge`") and "2.00× (1.9" in first and "`ucb`" in rivals
    assert "`rate-hedge` from what past queries taught, else from the router's guess; `ucb` cold." in starts
    assert beyond.startswith(
        "Replayed on 9 recorded texts: of what was not run, `fixed:math` with drafts of up to 3 tok"
    )
    assert "off from those measured by -2 % to +11 % in decoding and +4 % to +15 % in whole requests (`rate-h" in beyond
    assert basis.startswith("Replays take") and end.endswith(
        "Replays put `fixed:math` first, which was not run: run it on these prompts too."
    )
    table = tables(found)[0]
    assert table.title == "Policies, replayed" and "★" not in table.rows[0][0], "another one was measured to be first"
    assert [line[-2][:5] for line in table.rows] == ["–", "2.00×", "1.25×"]
    alone = sentences(Advice.of(PLAIN, played, texts=9))
    assert alone[0].startswith("Replayed on 9 recorded texts. For this traffic: `fixed:math`")


@pytest.mark.parametrize(
    ("longer", "said", "do"),
    [
        (Ratio(0.98, 0.95, 1.01, 8), "is not significantly faster than with up to 12", "no more prompts are needed"),
        (Ratio(0.9, 0.85, 0.95, 8), "is faster, at the 95 % level, than with up to 12", "up to 6 tokens: run these"),
    ],
)
def test_another_draft_length_is_recommended_only_where_it_is_certainly_faster(longer, said, do):
    live = Advice.of(PLAIN, [option("rate-hedge", 0.5, 12, noise=NOISE), option("ucb", 0.8, 12)])
    played = [option("rate-hedge", 0.5, 6), option("ucb", 0.8, 12)]
    found = Advice.of(PLAIN, played, texts=8, measured=live, errors={"rate-hedge": 0.1}, lengths={12: longer})
    told = sentences(found)
    assert f"`rate-hedge` with drafts of up to 6 tokens {said}, and nothing else" in "\n".join(told)
    assert "Drafts of up to 6 tokens under `rate-hedge`, by replays: " in "\n".join(told)
    assert told[1].startswith("What to do: run `rate-hedge`, draft length up to 12: ") and do in told[1]


def test_drafters_and_lengths_are_told_of_the_policy_that_was_measured_to_be_first():
    live = Advice.of(PLAIN, [option("fixed:math", 0.5, noise=NOISE), option("ucb", 0.8)])
    shares = (Share("math", True, 0.3, Ratio(0.9, 0.85, 0.95, 8)), Share("code", True, 0.3, Ratio(1.2, 1.1, 1.3, 8)))
    known = {
        "shares": shares,
        "removed": (("math",), Ratio(0.9, 0.85, 0.95, 8)),
        "lengths": {3: Ratio(0.9, 0.8, 0.95, 8)},
    }
    options = [option("ucb", 0.4), option("fixed:math", 0.5)]
    found = Advice.of(PLAIN, options, about=options[1], texts=8, measured=live, **known)
    said = "\n".join(sentences(found))
    assert (
        "Drafts of up to 6 tokens under `fixed:math`, by replays: faster, at" in said
        and "By replays under `fixed:math`, keep `code` (" in said
    )
    assert "`fixed:math` plays no other drafter" in said
    assert [table.title for table in tables(found)] == ["Policies, replayed", "Draft lengths of `fixed:math`, replayed"]
    assert tables(found)[1].rows == [("3", "0.90× (0.80–0.95)"), ("6 (measured)", "1.00×")]
    assert "Replayed on 8 recorded texts: no other policy or draft length was tried." in said, "both were measured"


def test_a_single_drafter_that_replays_cannot_tell_from_the_winner_is_to_be_run_too():
    live = Advice.of(PLAIN, [option("rate-hedge", 0.5, noise=NOISE), option("ucb", 0.8)])
    shares = (Share("math", True, 0.3, None, 10), Share("code", True, 0.3, None, 2**20))
    for seconds, told in ((0.505, True), (0.6, False)):
        played = [option("rate-hedge", 0.5, noise=NOISE), option("fixed:math", seconds, noise=NOISE[::-1])]
        do = sentences(Advice.of(PLAIN, played, texts=8, measured=live, shares=shares))[1]
        hint = (
            "By replays a single drafter is not significantly slower (1.0 MiB less memory): run `fixed:math` on these"
        )
        assert (hint in do) is told, do
    ran = Advice.of(PLAIN, [*live.options, option("fixed:math", 0.6)])
    assert "single drafter" not in sentences(Advice.of(PLAIN, played, texts=8, measured=ran))[1], "it was"


def test_of_few_prompts_no_single_drafter_is_suggested_that_is_slower_by_its_interval():
    plain, best = option("autoregressive", 1.0, 0, prompts=5), option("rate-hedge", 0.5, prompts=5)
    for seconds, told in ((0.5, True), (0.9, False)):
        played, live = [best, option("fixed:math", seconds, prompts=5)], Advice.of(plain, [best])
        assert ("run `fixed:math`" in sentences(Advice.of(plain, played, texts=5, measured=live))[1]) is told


def test_who_leads_in_decoding_alone_is_told_where_it_is_another():
    def split(spec, decode, request):
        return replace(option(spec, request), decode=option(spec, decode).decode)

    said = "\n".join(sentences(Advice.of(PLAIN, [split("ucb", 0.4, 0.6), split("fixed:math", 0.5, 0.5)])))
    assert "In decoding alone `ucb` is ahead (2.50× against 2.00×); it loses that before" in said
    assert "In decoding alone" not in "\n".join(sentences(Advice.of(PLAIN, [option("ucb", 0.5), option("exp3", 0.6)])))


def test_how_far_the_rounds_of_policies_by_the_clock_are_off_stands_beside_their_speedups():
    def with_rounds(rounds, **more):
        return replace(option("rate-hedge", 0.5), rounds=np.full(8, rounds), prompts=tuple(range(8)), **more)

    live = Advice.of(PLAIN, [with_rounds(10.0)])
    known = {"texts": 8, "measured": live, "errors": {"rate-hedge": 0.03}}
    found = Advice.of(PLAIN, [with_rounds(8.0, estimate=True)], **known)
    said = "\n".join(sentences(found))
    assert "(`rate-hedge`), tokens per round of `rate-hedge` by +25 %, as it goes by the clock." in said
    policies = tables(found)[0]
    assert policies.columns[-3] == "tokens per round, measured" and policies.rows[0][-3] == "3.00"
    assert policies.columns[6] == "`rate-hedge` is faster by"
    assert "by the clock" not in "\n".join(sentences(Advice.of(PLAIN, [with_rounds(8.0)], **known)))


def test_prompts_answered_too_briefly_are_told_beside_the_number_of_the_others():
    rows = [row(prompt, "ucb", 1.0) for prompt in range(6)]
    rows.append(replace(row(6, "ucb", 1.0, tokens=4), speedup=None))
    assert "on 6 prompts (1 more answered too briefly for a speed-up); it saves" in (sentences(of_rows(rows, 6))[0])
    assert verdict(of_rows(rows, 6)).caveats[0].startswith("Most answers were cut: 6 of 6 ended at max new tokens.")
    live = Advice.of(PLAIN, [option("ucb", 0.5)], cut=4)
    found = Advice.of(PLAIN, [option("ucb", 0.5)], texts=8, measured=live, short=2)
    assert (
        "on 8 prompts (4 of the answers ended at max tokens)" in verdict(found).todo[0] and not verdict(found).caveats
    )
    assert "(2 more answered too briefly for a speed-up); it saves" in sentences(found)[0]


def test_what_was_measured_on_some_of_the_prompts_says_on_how_many():
    live = Advice.of(option("autoregressive", 1.0, 0, prompts=6), [option("ucb", 0.5, prompts=6)])
    found = Advice.of(PLAIN, [option("ucb", 0.5)], texts=8, measured=live)
    assert sentences(found)[0].startswith("Measured on the 6 of 8 prompts that all of these policies ran. For this")


def test_a_policy_by_the_clock_whose_replays_are_far_off_is_left_to_what_was_measured():
    live = Advice.of(PLAIN, [option("rate-hedge", 0.5, noise=NOISE), option("ucb", 0.8)])
    known = {"errors": {"ucb": 0.05}, "dropped": {"rate-hedge": 0.4}, "lengths": {3: Ratio(0.9, 0.8, 0.95, 8)}}
    said = "\n".join(sentences(found := Advice.of(PLAIN, [option("ucb", 0.8)], texts=8, measured=live, **known)))
    assert "`rate-hedge`, which chooses by the clock, is off by +40 %, so it is not replayed." in said
    assert "Lengths and drafters are tried under `ucb`, as `rate-hedge` is not replayed.\nDrafts of up to" in said
    assert [line[0] for line in tables(found)[0].rows] == ["`ucb`", "`rate-hedge`"] and found.trusted


def test_replays_too_far_from_what_ran_live_give_no_advice():
    live = Advice.of(PLAIN, [option("rate-hedge", 0.5, noise=NOISE)])
    played, far = [option("fixed:math", 0.2), option("rate-hedge", 0.25)], {"rate-hedge": 0.97}
    said = sentences(found := Advice.of(PLAIN, played, texts=9, measured=live, errors=far))
    withheld = "`rate-hedge` is off by +97 % from what its live runs measured, and more than ±20 % is too far. A"
    assert said[0].startswith("Measured. For this traffic: `rate-hedge`") and withheld in said[-2]
    assert said[1].startswith("What to do: run `rate-hedge`") and "fixed:math" not in "".join(said)
    assert "too far from what was measured" in tables(found)[0].title
    assert as_json(found)["withheld"] and as_json(found)["pays"] == "yes"
    none, end, *_ = sentences(alone := Advice.of(PLAIN, played, texts=9, errors=far))
    assert none.startswith("No verdict: no policy was measured on all of these 8 prompts")
    assert end == "What to do: measure it: run these prompts in one batch, under `rate-hedge`, then ask again."
    assert (as_json(alone)["pays"], as_json(alone)["fastest"]) == ("open", None)


def row(prompt, policy, seconds, status="completed", tokens=16):
    speeds = {"speedup": 2.0 / seconds, "request_speedup": 3.0 / (seconds + 1.0)}
    return Row(str(prompt), "t", policy, status, tokens, 4, seconds, seconds + 1.0, 2.0, 3.0, prompt=prompt, **speeds)


def test_measured_runs_are_compared_on_the_prompts_that_all_policies_ran():
    rows = [row(prompt, "ucb", 1.0) for prompt in range(7)] + [row(prompt, "exp3", 1.6) for prompt in range(6)]
    rows += [row(0, "ucb", 1.0)] * 3 + [row(9, "exp3", 0.1, "cancelled"), row(0, "autoregressive", 2.0)]
    found = of_rows(rows, 6)
    assert found.prompts == 6 and [option.spec for option in found.options] == ["ucb", "exp3"] and found.leader == "ucb"
    assert found.best.times_as_fast(found.plain, "decode").value == pytest.approx(2.0)
    assert found.best.times_as_fast(found.plain).value == pytest.approx(1.5)
    json.dumps(as_json(found), allow_nan=False)


def test_timings_too_noisy_name_no_fastest_policy():
    noisy = [replace(row(1, spec, seconds), speedup_uncertainty=0.4) for spec, seconds in (("ucb", 1.0), ("exp3", 3.0))]
    first, end, _ = sentences(of_rows(noisy, 6))
    assert "too busy for figures of speed" in first and "fastest so far" not in first and "1.00×" not in first
    assert "run 6 prompts or more as a batch" in end
    noisy[1] = replace(noisy[1], rounds=2)
    assert of_rows(noisy, 6).first.spec == "exp3", "what saves the most calls leads"
    quiet = [replace(each, speedup_uncertainty=0.1) for each in noisy]
    assert of_rows(quiet, 6).first.spec == "ucb"
    assert (
        "The fastest so far is `ucb`" in sentences(of_rows(quiet, 6))[0] and "± 0.20" in sentences(of_rows(quiet, 6))[0]
    )


def test_a_verdict_and_a_table_have_the_same_intervals_whatever_the_order_of_the_runs():
    rows = [row(p, spec, s * (1 + p % 5 / 3)) for p in range(12) for spec, s in (("ucb", 1.0), ("exp3", 1.4))]
    rows += [row(20, "ucb", 0.1), row(21, "exp3", 9.0)]  # a batch that was stopped
    shuffled = [rows[place] for place in np.random.default_rng(0).permutation(len(rows))]
    found, table = of_rows(rows, 6), overall(shuffled)
    for option in found.options:
        for part, name in (("decode", "speedup"), ("request", "request_speedup")):
            ratio = option.times_as_fast(found.plain, part)
            shown = getattr(table[option.spec], name)
            assert (shown.value, *shown.interval) == pytest.approx((ratio.value, ratio.low, ratio.high), abs=0)
        assert table[option.spec].mean_accepted_tokens == pytest.approx(option.mean_accepted_tokens)


def test_runs_that_cannot_be_compared():
    with pytest.raises(UserError, match="no prompt in common"):
        of_rows([row(1, "ucb", 1.0), row(2, "exp3", 1.0)], 6)
    with pytest.raises(UserError, match="nothing to compare"):
        of_rows([row(1, "autoregressive", 1.0)], 6)


def test_it_tells_which_policies_had_learnt_from_the_very_prompts():
    rows = [
        replace(row(prompt, spec, 1.0), repeated=spec == "ucb") for prompt in range(6) for spec in ("ucb", "random")
    ]
    found = replace(Advice.of(PLAIN, [option("ucb", 0.5)]), measured=of_rows(rows, 6))
    assert any(
        line.startswith("Prompts seen before: the pool had already learnt from 6 of 6 prompts when `ucb` ran, so new")
        for line in sentences(found)
    )
    assert as_json(found)["prompts_seen_before"] == {"ucb": 6} and as_json(found)["answers_cut"] == 6
    assert as_json(found)["answers_that_loop"] == 0
    assert any("seen before" in line for line in sentences(found.measured))
    new = replace(found, measured=of_rows([replace(each, repeated=False) for each in rows], 6))
    assert not any("seen before" in line for line in sentences(new))


def test_how_the_fastest_drafter_does_alone_is_told_where_it_was_not_run():
    played = [option("rate-hedge", 0.5), option("fixed:code", 0.6), option("fixed:math", 0.7)]
    said = "\n".join(sentences(Advice.of(PLAIN, played, texts=8)))
    assert (
        "The fastest single drafter, `fixed:code`, makes whole requests 1.67×" in said and "`rate-hedge` 2.00×" in said
    )
    assert "by replays" not in "\n".join(sentences(Advice.of(PLAIN, played))), "measured runs"
    live = Advice.of(PLAIN, played[:2])
    assert "single drafter, `fixed" not in "\n".join(sentences(Advice.of(PLAIN, played, texts=8, measured=live)))
