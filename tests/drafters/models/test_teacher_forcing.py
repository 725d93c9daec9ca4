"""Drafters are judged on a text as it grows: what was judged before is not fed to them again, and counts as it did."""

import numpy as np
import pytest
import torch

from drafters.base import Evidence
from drafters.kinds.lm import make_lm_drafters
from drafters.models.window import Window
from drafters.sampling import SamplingParams
from tests import tiny

GREEDY = SamplingParams(draft_length=4)
TEXT = tiny.prompts(1, seed=5, shortest=60, longest=60)[0]
WINDOWS = {"all": None, "sliding": Window(24, sinks=4)}


def made(window):
    models = {name: tiny.llama(seed) for seed, name in enumerate(("one", "two"))}
    windows = {name: WINDOWS[window] for name in models if WINDOWS[window]}
    drafters = make_lm_drafters(models, tiny.VOCAB, windows, dict.fromkeys(models, 0.02))
    assert drafters[0].group is drafters[1].group is not None
    return drafters


def with_hits(drafter):
    """The text, some tokens of which are the drafter's choices: elsewhere a random model is right by chance only."""
    text = list(TEXT)
    for place in (12, 13, 14, 20, 31, 32, 33, 34, 50, 51):
        text[place] = int(drafter.logits(drafter.window.view(text[:place]), last=1).argmax())
    return text


@pytest.mark.parametrize("window", WINDOWS)
def test_a_growing_text_is_judged_as_if_all_at_once(window):
    text = with_hits(made(window)[0])
    rng = np.random.default_rng(0)
    growing, end = made(window), 10
    while end < len(text):
        start, end = end, min(end + int(rng.integers(1, 9)), len(text))
        evidence = Evidence(text[:end], max(start - int(rng.integers(0, 3)), 10), None, GREEDY, first=10)
        fresh = made(window)
        assert growing[0].group.gamma(evidence).tolist() == fresh[0].group.gamma(evidence).tolist()
        assert growing[0].gamma(evidence).tolist() == fresh[0].gamma(evidence).tolist()
    assert fresh[0].gamma(Evidence(text, 10, None, GREEDY, first=10)).sum() > 5


def test_no_position_is_fed_twice_for_it(monkeypatch):
    drafters, text = made("all"), with_hits(made("all")[0])
    group, fed = drafters[0].group, []
    logits = group._logits
    monkeypatch.setattr(group, "_logits", lambda context, last: fed.append(last) or logits(context, last))
    for end in (20, 23, 30):
        group.gamma(Evidence(text[:end], end - 3, None, GREEDY, first=15))
    assert fed == [5, 3, 6]
    group.gamma(Evidence([*text[:27], *text[:3]], 27, None, GREEDY, first=15))  # the text went another way
    assert fed[3:] == [3]
    drafters[1].forget()
    group.gamma(Evidence(text[:30], 27, None, GREEDY, first=15))
    assert fed[4:] == [6], "the three before them too, at which drafts begin that reach so far"


def test_no_draft_begins_within_the_prompt():
    context = list(range(9))
    assert Evidence(context, 7, None, GREEDY, first=6).begins() == range(6, 9)
    assert Evidence(context, 7, None, GREEDY).begins() == range(4, 9)
    assert Evidence(context, 2, None, GREEDY).begins(first=2) == range(2, 9)


def test_what_failed_is_not_kept(monkeypatch):
    drafters, text = made("all"), list(TEXT)
    group, evidence = drafters[0].group, Evidence(TEXT[:20], 12, None, GREEDY)
    expected = made("all")[0].group.gamma(evidence).tolist()
    with monkeypatch.context() as patch:
        patch.setattr(drafters[1].model, "forward", lambda *_, **__: torch.empty(0)[1])
        with pytest.raises(IndexError):
            group.gamma(evidence)
    assert group.gamma(evidence).tolist() == expected and text == TEXT
