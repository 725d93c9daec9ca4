from html.parser import HTMLParser

from multidraft.ui.widgets import tokens
from tests.runs import make_round

DRAFTERS = ["code", "math"]


class Tree(HTMLParser):
    """The tags of a piece of HTML, and the text and classes of each token."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[str] = []
        self.tokens: list[tuple[str, str]] = []
        self.titles: list[str] = []
        self._kind: str | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        values = dict(attrs)
        self._kind = values.get("class") if "md-token" in (values.get("class") or "") else None
        if values.get("title"):
            self.titles.append(values["title"] or "")

    def handle_endtag(self, tag: str) -> None:
        self._kind = None

    def handle_data(self, data: str) -> None:
        if self._kind:
            self.tokens.append((self._kind, data))


def test_accepted_tokens_take_the_arms_colour_and_the_own_token_its_own_mark() -> None:
    tree = Tree(tokens.rounds_html([make_round()], DRAFTERS))
    assert tree.tokens == [("md-token md-arm0", "a"), ("md-token md-arm0", "b"), ("md-token md-own", "c")]
    assert tree.titles == ["Round 1: math, accepted 2 of 3, then the target's correction"]


def test_a_draft_accepted_whole_is_followed_by_a_bonus() -> None:
    r = make_round(drafted=(5, 6))
    assert tokens.describe_round(r) == "Round 1: math, accepted 2 of 2, then the target's own token"
    assert "data-corrected" not in tokens.rounds_html([r], DRAFTERS)


def test_rejected_guesses_stand_between_the_accepted_and_the_own_token() -> None:
    html = tokens.rounds_html([make_round(texts={7: "<b>\n"})], DRAFTERS)
    assert '<del class="md-rejected md-arm0" aria-hidden="true">&lt;b&gt;↵</del>' in html
    assert html.index(">b<") < html.index("<del") < html.index(">c<")
    assert "<del" not in tokens.rounds_html([make_round(drafted=(5, 6))], DRAFTERS)


def test_a_round_tells_its_bar() -> None:
    html = tokens.rounds_html([make_round()], DRAFTERS)
    assert 'data-arm="md-arm0" data-drafted="3" data-accepted="2" data-corrected' in html


def test_a_draft_that_ends_the_output_has_no_own_token() -> None:
    r = make_round(4, accepted=2, tokens=(5, 6), own=None, pieces=("a", "b"), text="ab")
    tree = Tree(tokens.rounds_html([r], DRAFTERS))
    assert [kind for kind, _ in tree.tokens] == ["md-token md-arm0", "md-token md-arm0"]
    assert tree.titles == ["Round 5: math, accepted 2 of 3"]


def test_a_round_without_a_drafter() -> None:
    r = make_round(arm=None, drafter=None, drafted=(), accepted=0, tokens=(9,), pieces=("x",), text="x")
    tree = Tree(tokens.rounds_html([r], DRAFTERS))
    assert tree.tokens == [("md-token md-own", "x")]
    assert tree.titles == ["Round 1: no draft, the target's own token"]


def test_text_of_the_model_never_becomes_markup() -> None:
    nasty = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "&lt;b&gt;'")
    rounds = [make_round(drafter="<i>math</i>", texts={7: nasty[0]}, pieces=nasty, text="".join(nasty))]
    tree = Tree(tokens.rounds_html(rounds, DRAFTERS))
    assert set(tree.tags) == {"span", "del"}
    assert "".join(text for _, text in tree.tokens) == "".join(nasty)
    table = Tree(tokens.rounds_table_html(rounds))
    assert not {"script", "img", "i", "b"} & set(table.tags)
    legend = Tree(tokens.legend_html(["<b>x</b>"], {"<b>x</b>": 1.0}))
    assert legend.tags.count("b") == 2  # the percentages of the drafter and of the target


def test_right_to_left_text_emoji_and_line_breaks_survive() -> None:
    pieces = ("שלום", "👩‍🔬", "\n")
    tree = Tree(tokens.rounds_html([make_round(pieces=pieces, text="".join(pieces))], DRAFTERS))
    assert [text for _, text in tree.tokens] == list(pieces)
    assert tree.tokens[2][0] == "md-token md-own md-line"


def test_a_token_without_text_of_its_own_leaves_no_empty_mark() -> None:
    tree = Tree(tokens.rounds_html([make_round(pieces=("", "", "é"))], DRAFTERS))
    assert tree.tokens == [("md-token md-own", "é")]


def test_the_output_only_grows_at_its_end() -> None:
    rounds = [make_round(i) for i in range(3)]
    whole = tokens.OUTPUT_START + tokens.rounds_html(rounds, DRAFTERS)
    assert whole.startswith(tokens.OUTPUT_START + tokens.rounds_html(rounds[:2], DRAFTERS))
    assert "</div>" not in whole


def test_arms_beyond_the_colours_get_a_second_mark() -> None:
    kinds = tokens.arm_classes([f"d{arm}" for arm in range(10)])
    assert len(set(kinds.values())) == 11 and kinds[None] == "md-own"
    assert sum("md-again" in kind for kind in kinds.values()) == 2


def test_legend_names_every_drafter_and_the_target_with_shares() -> None:
    html = tokens.legend_html(["code", "math"], {"math": 0.75, "target": 0.25})
    assert "75 %" in html and "25 %" in html and "0 %" in html
    assert html.index("code") < html.index("math") < html.index("target&#39;s own")
    assert html.count("flex-grow") == 2  # code has no part in the bar
    assert "–" in tokens.legend_html(["code"], {})


def test_details_list_every_round() -> None:
    rounds = [make_round(0), make_round(1, drafter=None, arm=None, accepted=0, drafted=(), reward=None)]
    html = tokens.rounds_table_html(rounds)
    assert "2 of 3" in html and "no draft" in html and "10.0" in html
    assert "the draft length that the policy asked for in that round" in html and "draft length setting" not in html
    assert Tree(html).tags.count("tr") == 3
    assert tokens.rounds_table_html([]) == ""


def test_a_round_tells_the_stepper_what_was_guessed_and_what_the_target_would_have_written() -> None:
    assert tokens.step_of(make_round()) == {
        "drafter": "math",
        "guesses": ["a", "b", "e"],
        "accepted": 2,
        "choices": ["a", "b", "c", "d"],
        "own": "c",
    }
    tree = tokens.step_of(make_round(siblings=((), (2,), (9, 2)), together=True))
    assert tree["siblings"] == [[], ["d"], ["c", "d"]] and tree["together"]
    older = tokens.step_of(make_round(choices=(), texts={}))
    assert "choices" not in older and older["guesses"] == ["a", "b", ""]
    assert """data-step='{"drafter":"math",""" in tokens.rounds_html([make_round()], DRAFTERS)
    nasty = tokens.rounds_html([make_round(drafter="'\"><b>")], DRAFTERS)
    assert "<b>" not in nasty and Tree(nasty).tags.count("b") == 0
