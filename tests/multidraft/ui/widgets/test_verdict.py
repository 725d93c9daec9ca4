"""The verdict on the page: sentences, and a button for what replays say should be run too."""

from dataclasses import replace

import pytest

from multidraft.bench.verdict import sentences
from multidraft.replay.advice import Advice
from multidraft.replay.contribution import Share
from multidraft.ui.widgets.verdict import verdict_html
from storage.figures import Ratio
from tests.multidraft.bench.test_verdict import NOISE, PLAIN, option
from tests.runs import make_run

LIVE = Advice.of(PLAIN, [option("rate-hedge", 0.5, noise=NOISE), option("ucb:beta=0.1", 0.8)])


@pytest.mark.parametrize(
    ("played", "known", "button"),
    [
        (
            [option("rate-hedge", 0.9), option("fixed:math", 0.7)],
            {},
            'data-policies="rate-hedge\nfixed:math" data-length="">Run these prompts under RateHedge (ours) and ',
        ),
        (
            [option("rate-hedge", 0.5), option("ucb:beta=0.1", 0.8)],
            {"lengths": {6: Ratio(0.9, 0.85, 0.95, 8)}},
            'data-policies="rate-hedge" data-length="6">Run these prompts under RateHedge (ours), drafts of up to 6',
        ),
        ([option("rate-hedge", 0.5), option("ucb:beta=0.1", 0.8)], {}, ""),
    ],
)
def test_what_was_not_run_is_one_click_away(played, known, button):
    found = Advice.of(PLAIN, played, texts=8, measured=LIVE, errors={"rate-hedge": 0.1}, **known)
    html = verdict_html(found, run_more=True)
    assert button in html and ("<button" in html) == bool(button)
    assert html.index("What to do") < html.index("<button") if button else True
    assert "<button" not in verdict_html(found), "where nothing hears it"


def test_the_button_runs_the_policy_that_the_sentence_recommends():
    """Timings are too noisy for figures: what saves the most calls is named, not what was the fastest."""
    busy = [
        replace(option(spec, seconds, prompts=2), uncertainty=0.4) for spec, seconds in (("ucb", 0.5), ("exp3", 0.6))
    ]
    busy[1] = replace(busy[1], rounds=busy[1].rounds / 2)
    live = Advice.of(option("autoregressive", 1.0, 0, prompts=2), busy)
    played = [option(spec, seconds, prompts=2) for spec, seconds in (("fixed:math", 0.3), ("ucb", 0.5), ("exp3", 0.6))]
    found = Advice.of(live.plain, played, about=played[2], texts=2, measured=live)
    html = verdict_html(found, run_more=True)
    assert "What to do: run `exp3`" in sentences(found)[1] and 'data-policies="exp3\nfixed:math"' in html


def test_drafters_that_can_go_lead_to_where_that_is_measured():
    shares = (Share("math", True, 0.3, Ratio(1.2, 1.1, 1.3, 8)), Share("old", False, 0.0, None))
    known = {"shares": shares, "removed": (("old",), None), "text": make_run(suite="pocket", draft_length=12)}
    found = Advice.of(PLAIN, [option("rate-hedge", 0.5, noise=NOISE)], texts=8, measured=LIVE, **known)
    html = verdict_html(found, may_load=True)
    assert 'href="?tab=pool&amp;without_of=pocket&amp;without=old"' in html
    command = "bench pocket --pool pocket:without=old --policies rate-hedge --limit 8 --draft-length 12 "
    command += "--max-new-tokens 6 --db"
    assert command in html
    html = verdict_html(found)
    assert command in html and "?tab=pool" not in html, "where visitors may not load pools"
    alone = Advice.of(PLAIN, [option("fixed:math", 0.5)], texts=8, measured=LIVE, **known)
    assert ":without=" not in verdict_html(alone)
