import re

import pytest

from drafters.card import find_card, load_card, pool_names
from multidraft.ui.widgets import theme


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2)."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    lighter, darker = sorted((luminance(a), luminance(b)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_contrast_of_known_pairs() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("colour", theme.DRAFTER_COLOURS)
@pytest.mark.parametrize(
    ("text", "surface", "share"),
    [(theme.TEXT, theme.SURFACE, theme.TINT), (theme.TEXT_DARK, theme.SURFACE_DARK, theme.TINT_DARK)],
    ids=["light", "dark"],
)
def test_text_on_every_tint_has_aa_contrast(colour: str, text: str, surface: str, share: float) -> None:
    assert contrast(text, theme.blend(colour, surface, share)) >= 4.5


def test_blend_goes_from_ground_to_colour() -> None:
    assert theme.blend("#ff0010", "#00ff00", 0.0) == "#00ff00"
    assert theme.blend("#ff0010", "#00ff00", 1.0) == "#ff0010"
    assert theme.blend("#ff0000", "#000000", 0.5) == "#800000"


def test_colours_differ_and_repeat_beyond_their_number() -> None:
    assert len(set(theme.DRAFTER_COLOURS)) == len(theme.DRAFTER_COLOURS)
    assert theme.drafter_colour(len(theme.DRAFTER_COLOURS)) == theme.drafter_colour(0)


@pytest.mark.parametrize("arm", range(len(theme.DRAFTER_COLOURS)))
def test_hatching_shows_on_every_colour(arm: int) -> None:
    assert contrast(theme.hatch_colour(theme.drafter_colour(arm)), theme.drafter_colour(arm)) >= 3
    again = arm + len(theme.DRAFTER_COLOURS)
    assert theme.drafter_pattern(again)["shape"] and not theme.drafter_pattern(arm)["shape"]
    assert theme.drafter_symbol(again) != theme.drafter_symbol(arm)


@pytest.mark.parametrize("colour", theme.POLICY_COLOURS)
def test_lines_of_policies_show_on_light_and_dark(colour: str) -> None:
    assert min(contrast(colour, theme.SURFACE), contrast(colour, theme.SURFACE_DARK)) >= 3
    assert contrast(theme.hatch_colour(colour), colour) >= 3


def test_a_drafter_has_one_place_in_all_pools_and_no_two_of_a_pool_share_theirs() -> None:
    for card in pool_names():
        drafters = [entry.name for entry in load_card(find_card(card))[0].drafters]
        places = theme.drafter_places(drafters)
        assert len(set(places)) == len(drafters)
        assert theme.drafter_places(drafters[::-1]) == places[::-1]
        assert [theme.drafter_places([name])[0] for name in drafters] == list(places)


def test_an_unknown_drafter_gives_way_to_those_of_its_pool() -> None:
    others = [f"mine-{number}" for number in range(30)]
    places = theme.drafter_places(["math", *others, "sql"])
    assert (places[0], places[-1]) == (0, 2) and len(set(places)) == 32
    assert len({theme.drafter_places(pool)[0] for pool in ([others[0]], [others[0], "a-new-one"])}) == 1


def test_nothing_is_fetched_from_elsewhere() -> None:
    assert not re.search(r"url\(|@import|https?:", theme.css())
    style = theme.theme()
    assert not style._stylesheets
    assert not re.findall(r"url\((?!\"data:)|@import", style._get_theme_css())


def test_every_arm_class_has_its_colours_in_both_modes() -> None:
    css = theme.css()
    for arm, colour in enumerate(theme.DRAFTER_COLOURS):
        assert f".md-arm{arm} {{" in css
        assert css.count(f"--arm{arm}: {colour};") == 2
        assert css.count(f"--tint{arm}: #") == 2
