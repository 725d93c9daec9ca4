"""Settings: their defaults and bounds as documented, and how bounds are put into words."""

from typing import Literal

import pytest
from pydantic import Field, ValidationError

from drafters.errors import PolicyError
from multidraft.policies import POLICIES, PolicySettings, settings_of
from multidraft.policies.settings import DrafterName, Setting, settings_of_model

DOCUMENTED = """
    ucb, kl-ucb, thompson, exp3, sh, petc, d-ucb, sw-ucb | reward | bd | one of: bd, be
    ucb, d-ucb, sw-ucb | beta | 0.01 | a number from 0 to 100
    ucb-length         | beta | 0.05 | a number from 0 to 100
    exp3       | gamma  | 0.4   | a number above 0 and at most 1
    sh         | period | 1     | a whole number from 1 to 10,000
    petc       | c      | 6.0   | a number above 0 and at most 1,000
    petc       | budget | 200   | a whole number from 2 to 1,000,000
    d-ucb      | gamma  | 0.95  | a number above 0 and at most 1
    sw-ucb     | window | 20    | a whole number from 1 to 1,000,000
    kl-ucb     | c      | 0.0   | a number from 0 to 100
    ucbspec    | delta  | 0.1   | a number above 0 and at most 1
    draft-all  | nodes  | 128   | a whole number from 1 to 1,024
    rate-hedge | budget | 0.03  | a number at least 0 and below 1
    rate-hedge | memory | 0.99  | a number above 0 and at most 1
    hedge, normal-hedge, ada-normal-hedge | loss   | hybrid | one of: length, acceptance, hybrid
    hedge, normal-hedge, ada-normal-hedge | game   | token  | one of: token, chunk
    hedge, normal-hedge, ada-normal-hedge | warmup | 6      | a whole number from 0 to 10,000
    hedge, normal-hedge, ada-normal-hedge | every  | 12     | a whole number from 1 to 1,000
    hedge, normal-hedge, ada-normal-hedge | span   | 0      | a whole number from 0 to 100,000
    hedge, normal-hedge, ada-normal-hedge | gamma  | hard   | one of: hard, soft
    hedge, normal-hedge, ada-normal-hedge, rate-hedge | start | traffic | one of: cold, router, traffic, previous
    ucb, kl-ucb, d-ucb, sw-ucb, ucbspec, exp3spec | start | cold | one of: cold, router, traffic, previous
    thompson, exp3, sh, petc | start | cold | one of: cold, router, traffic, previous
"""


@pytest.mark.parametrize("line", DOCUMENTED.strip().splitlines())
def test_settings_have_the_documented_defaults_and_bounds(line):
    names, key, default, valid = (part.strip() for part in line.split("|"))
    for name in names.split(", "):
        setting = settings_of(POLICIES[name])[key]
        assert (str(setting.default), setting.valid) == (default, valid), name


class Base(PolicySettings):
    start: Literal["cold", "warm"] = "cold"
    one: int = Field(1, ge=1, le=2, description="between two")


class Own(Base):
    above: float = Field(1.0, gt=0, description="open below")
    below: float = Field(1.0, lt=1000)
    least: int = Field(1, ge=2000)
    most: float = Field(1.0, le=3)
    half: float = Field(0.5, gt=0, lt=1)
    free: int = 0
    text: str = ""
    who: DrafterName


def test_bounds_in_words():
    said = {key: setting.valid for key, setting in settings_of_model(Own).items()}
    assert said == {
        "above": "a number above 0",
        "below": "a number below 1,000",
        "least": "a whole number at least 2,000",
        "most": "a number at most 3",
        "half": "a number above 0 and below 1",
        "free": "a whole number",
        "text": "a text",
        "who": "a text",
        "one": "a whole number from 1 to 2",
        "start": "one of: cold, warm",
    }
    assert list(said) == [*Own.__annotations__, "one", "start"]  # its own, those of its bases, the start last


def test_what_is_known_of_a_setting():
    known = settings_of_model(Own)
    assert known["one"] == Setting("one", "between two", int, 1, "a whole number from 1 to 2", 1, 2)
    assert known["above"] == Setting("above", "open below", float, 1.0, "a number above 0", 0)
    assert known["start"] == Setting("start", "", str, "cold", "one of: cold, warm", choices=("cold", "warm"))
    assert (known["below"].minimum, known["below"].maximum) == (None, 1000)
    assert (known["who"].default, known["who"].names_drafter, known["text"].names_drafter) == (None, True, False)
    assert [(known[key].numeric, known[key].whole) for key in ("one", "most", "text")] == [
        (True, True),
        (True, False),
        (False, False),
    ]
    assert settings_of_model(PolicySettings) == {}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"above": -1}, "above must be a number above 0; got -1"),  # `who` is missing too, which says less
        ({"above": "inf", "who": "a"}, "above must be a number above 0; got 'inf'"),
        ({"beside": 1, "who": "a"}, f"there is no setting 'beside'; it takes: {', '.join(settings_of_model(Own))}"),
        ({}, "the setting 'who' must be given"),
    ],
)
def test_the_first_fault_is_told(values, message):
    with pytest.raises(PolicyError) as caught:
        Own.of(values)
    assert str(caught.value) == message


def test_settings_do_not_change():
    settings = Own.of({"who": "a", "above": "2"})
    assert settings.above == 2.0
    with pytest.raises(ValidationError):
        settings.above = 3.0
