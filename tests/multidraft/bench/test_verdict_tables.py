"""The verdict's tables, and what sentences and JSON say of the same."""

from multidraft.bench.verdict import sentences
from multidraft.bench.verdict_json import as_json
from multidraft.bench.verdict_tables import tables
from multidraft.replay.advice import Advice
from multidraft.replay.contribution import Share
from storage.figures import Ratio
from tests.multidraft.bench.test_verdict import NOISE, PLAIN, option


def test_sentences_table_and_json_say_the_same_of_drafters_that_can_go_one_by_one_but_not_all() -> None:
    alike = Ratio(1.0, 0.99, 1.005, 8)
    shares = (Share("old", False, 0.0, None), Share("a", True, 0.1, alike), Share("b", True, 0.1, alike))
    options = [option("rate-hedge", 0.5, noise=NOISE)]
    found = Advice.of(PLAIN, options, shares=shares, removed=(("old", "a"), alike))
    said = "\n".join(sentences(found))
    assert "Under `rate-hedge`, remove `old` and `a`: " in said and "Not settled" not in said
    assert "`b` could go alone, but not together with `a`." in said, "`old` never drafts"
    assert [line[-1] for line in tables(found)[1].rows] == ["can go", "can go", "can go alone"]
    assert [line["verdict"] for line in as_json(found)["drafters"]] == ["remove", "remove", "alone"]


def test_beside_drafters_that_never_draft_none_is_said_to_go_alone() -> None:
    alike = Ratio(1.0, 0.99, 1.005, 8)
    shares = (Share("old", False, 0.0, None), Share("a", True, 0.1, alike))
    found = Advice.of(PLAIN, [option("rate-hedge", 0.5, noise=NOISE)], shares=shares, removed=(("old",), None))
    said = "\n".join(sentences(found))
    assert "alone" not in said and "Not settled by these prompts whether this drafter pays: `a`." in said
    assert [line[-1] for line in tables(found)[1].rows] == ["can go", "not settled"]


def test_what_was_measured_and_what_was_replayed_stand_apart_with_their_draft_lengths() -> None:
    live = Advice.of(PLAIN, [option("rate-hedge", 0.5, 12, noise=NOISE)])
    played = [option("rate-hedge", 0.5, 9)]
    found = Advice.of(PLAIN, played, texts=8, measured=live, lengths={12: Ratio(0.95, 0.9, 0.99, 8)})
    policies, by_length = tables(found)
    (row,) = (dict(zip(policies.columns, row, strict=True)) for row in policies.rows)
    assert (row["draft length, replayed"], row["draft length, measured"]) == ("9", "12")
    assert by_length.rows == [("9", "1.00×"), ("12 (measured)", "0.95× (0.90–0.99)")]


def test_a_variant_that_replays_take_for_what_ran_is_told_as_one() -> None:
    live = Advice.of(PLAIN, [option("ucb", 0.5, noise=NOISE)])
    shares = (Share("math", True, 0.3, Ratio(1.2, 1.1, 1.3, 8)),)
    found = Advice.of(PLAIN, [option("ucb:reward=be", 0.4)], texts=8, measured=live, shares=shares)
    _, do, drafters, *_ = sentences(found)
    assert "Replays put `ucb:reward=be` first, a variant of `ucb` that was replayed, not run: run it on" in do
    assert drafters == "Drafters under `ucb:reward=be`, replayed in place of `ucb`: keep `math`."
