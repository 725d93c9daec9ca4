"""Record types, fields and word lists that the family ``json`` draws from."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Drawer = Callable[[random.Random], Any]


FIRST = """Anna Ben Clara David Emma Felix Greta Hugo Ida Jonas Karla Leo Mia Noah Olga Paul Rosa Simon Tina Victor
Wendy Adam Bella Carl Diana Erik Fiona George Hanna Ivan Julia Kevin Laura Marco Nina Oscar Petra Robert Sara Tom Ursula
Walter Yara Zoe Alice Bruno Cora Daniel Elena Frank Gina Henry Irene Jack Kate Lucas Maria Nora Oliver Peter Rita Sven
Tara Max Lena Omar Aisha Ravi Mei Yuki Pablo Lucia Ahmed Ines Nils Marta Igor""".split()
LAST = """Weber Smith Novak Rossi Garcia Martin Keller Brown Silva Tanaka Larsen Fischer Jones Kowalski Bianchi Lopez
Bernard Vogel Taylor Costa Sato Hansen Becker Wilson Horvat Ferrari Perez Dubois Lang Davies Santos Kim Berg Wagner Evans
Popov Romano Torres Petit Braun Clark Almeida Chen Lind Hoffmann Walker Marino Ruiz Moreau Kraus Hall Khan Singh Olsen
Richter Green Conti Gomez Laurent Winter Baker Patel Nielsen Schmidt Cooper Greco Diaz Roux Neumann Ward Ali Ivanov
Schulz Turner Fontana Vega Meyer Young""".split()
PLACES_BY_COUNTRY = {
    "Germany": "Berlin Hamburg Munich Cologne Dresden Leipzig Bremen".split(),
    "Austria": "Vienna Graz Linz".split(),
    "Switzerland": "Zurich Basel Bern".split(),
    "France": "Paris Lyon Nice".split(),
    "Italy": "Rome Milan Turin".split(),
    "Spain": "Madrid Seville".split(),
    "Portugal": "Lisbon Porto".split(),
    "Ireland": "Dublin Cork".split(),
    "England": "London Leeds Bristol".split(),
    "Norway": "Oslo Bergen".split(),
    "Sweden": "Stockholm Malmo".split(),
    "Czechia": "Prague Brno".split(),
    "Poland": "Warsaw Krakow".split(),
    "Canada": "Toronto Montreal".split(),
    "Japan": "Tokyo Osaka".split(),
    "Greece": "Athens Patras".split(),
    "Hungary": "Budapest Szeged".split(),
}
CITIES = [city for cities in PLACES_BY_COUNTRY.values() for city in cities]
STREETS = """Lindenweg Parkstrasse Hauptstrasse Gartenweg Bergstrasse Seeweg Rosenallee Mill_Lane Oak_Street High_Street
Station_Road King_Street Church_Road Elm_Avenue River_Road Hill_Street Market_Street Lake_Drive Bridge_Road Forest_Lane
Maple_Street Garden_Road Harbor_Street School_Lane Castle_Road Cedar_Avenue""".split()
JOBS = """baker teacher nurse painter carpenter lawyer plumber chemist pilot dentist gardener designer farmer librarian
translator programmer cook driver mechanic tailor biologist banker reporter waiter builder""".split()
GOODS = """desk_lamp garden_chair coffee_mug wool_blanket steel_pan bread_knife wall_clock tea_pot bike_helmet rain_jacket
camping_tent phone_case laptop_bag water_bottle book_shelf floor_rug hand_towel photo_frame flower_pot tool_box
running_shoes leather_belt board_game yoga_mat night_light paper_basket candle_holder travel_pillow""".split()
FIRMS = [
    f"{a} {b}"
    for a in "Nordlicht Alpina Brightside Greenfield Bluewater Silverline Redwood Sunrise Hilltop Riverside Polar Atlas".split()
    for b in "Foods Media Motors Textiles Energy Software Logistics Tools".split()
]
HOTELS = [
    f"Hotel {name}"
    for name in """Seeblick Bellevue Astoria Central Royal Panorama Riviera Continental Europa Miramar Excelsior
    Alpenhof Metropol Savoy Victoria Sonnenhof Imperial Atlantic""".split()
]
ADJECTIVES = """Silent Golden Broken Hidden Last Secret Frozen Distant Empty Burning Crimson Lonely Endless Forgotten
Stolen Wild Quiet Bright Dark Gentle""".split()
NOUNS = """River Garden Mirror Harbor Letter Island Winter Forest Bridge Shadow Lantern Ocean Tower Valley Clock Road Song
Door Window Castle""".split()
GENRES = "thriller romance fantasy history poetry travel crime science biography drama".split()
PLACES = """kitchen cellar greenhouse attic garage office workshop laboratory server_room cold_store entrance library
warehouse boiler_room stable""".split()
COLORS = "red blue green black white silver yellow orange grey brown".split()
MODELS = [
    f"{a} {b}"
    for a in "Orion Vento Kappa Zenit Lumo Taurus Comet Falcon".split()
    for b in "200 300 500 Sport Family City Cross".split()
]
SUBJECTS = """pottery yoga Spanish Italian drawing photography cooking swimming guitar chess sewing first_aid
accounting public_speaking creative_writing web_design""".split()
REASONS = """headache back_pain checkup vaccination sore_throat blood_test knee_pain skin_rash cough allergy_test fever
eye_test""".split()
ANIMALS = "dog cat rabbit parrot hamster pony tortoise goat".split()
PETS = "Bella Rocky Luna Milo Coco Balu Nala Simba Ruby Oreo Daisy Charlie Lucky Shadow Pepper Maja Filou Kira".split()
NUMBER_WORDS = "zero one two three four five six seven eight nine".split()


def one_of(items: list[str]) -> Drawer:
    """Draw a list item; underscores stand for spaces."""
    return lambda rng: rng.choice(items).replace("_", " ")


def whole(low: int, high: int) -> Drawer:
    """Draw an integer."""
    return lambda rng: rng.randint(low, high)


def decimal(low: int, high: int) -> Drawer:
    """Draw a number with one decimal that is not zero, so that text and JSON spell it alike."""
    return lambda rng: (10 * rng.randint(low, high) + rng.randint(1, 9)) / 10


def person(rng: random.Random) -> str:
    """Draw a full name."""
    return f"{rng.choice(FIRST)} {rng.choice(LAST)}"


def doctor(rng: random.Random) -> str:
    """Draw a doctor's name."""
    return f"Dr. {rng.choice(LAST)}"


def title(rng: random.Random) -> str:
    """Draw a book or concert title."""
    return f"The {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"


def date(rng: random.Random) -> str:
    """Draw an ISO date."""
    return f"{rng.randint(2019, 2026)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def clock(rng: random.Random) -> str:
    """Draw a time of day."""
    return f"{rng.randint(7, 21):02}:{rng.choice([0, 10, 15, 20, 30, 40, 45, 50]):02}"


def code(prefixes: str, digits: int = 4) -> Drawer:
    """Draw an identifier such as ``AB-4821``."""
    return lambda rng: f"{rng.choice(prefixes.split())}-{rng.randint(10 ** (digits - 1), 10**digits - 1)}"


def flag(rng: random.Random) -> bool:
    """Draw true or false."""
    return rng.random() < 0.5


def email(rng: random.Random) -> str:
    """Draw an e-mail address."""
    host = rng.choice(["mail.com", "post.org", "inbox.net", "web.eu"])
    return f"{rng.choice(FIRST).lower()}{rng.randint(1, 99)}@{host}"


def address(rng: random.Random) -> dict[str, str]:
    """Draw a postal address."""
    street = f"{rng.choice(STREETS)} {rng.randint(1, 99)}".replace("_", " ")
    return {"street": street, "zip": str(rng.randint(10000, 99999)), "city": rng.choice(CITIES)}


def destination(rng: random.Random) -> dict[str, str]:
    """Draw a city with its country."""
    country = rng.choice(list(PLACES_BY_COUNTRY))
    return {"city": rng.choice(PLACES_BY_COUNTRY[country]), "country": country}


def items(rng: random.Random) -> list[dict[str, Any]]:
    """Draw two ordered goods."""
    return [{"name": good.replace("_", " "), "quantity": rng.randint(1, 9)} for good in rng.sample(GOODS, 2)]


@dataclass(frozen=True)
class Field:
    """One field: its key variants, its drawer and its sentences (for booleans the true ones, then the false ones)."""

    names: list[str]
    draw: Drawer
    sentences: list[str]
    denials: list[str]

    @property
    def key(self) -> str:
        """The name under which the record holds the value."""
        return self.names[0]

    @property
    def inner(self) -> list[str]:
        """Keys of a nested value."""
        nested: dict[Drawer, list[str]] = {
            address: ["street", "zip", "city"],
            destination: ["city", "country"],
            items: ["name", "quantity"],
        }
        return nested.get(self.draw, [])

    def tell(self, rng: random.Random, value: Any) -> str:
        """A sentence that states the value."""
        sentence = rng.choice(self.denials if value is False else self.sentences)
        if self.draw is items:
            return sentence.format(" and ".join(f"{item['quantity']} x {item['name']}" for item in value))
        if isinstance(value, dict):
            return sentence.format(**value)
        word = NUMBER_WORDS[value] if type(value) is int and value < 10 and rng.random() < 0.3 else value
        return sentence.format(word)


@dataclass(frozen=True)
class RecordType:
    """One kind of record: what it is called, its opening sentences, its fields in canonical order."""

    topic: str
    leads: list[str]
    lead_keys: list[str]
    fields: list[Field]
