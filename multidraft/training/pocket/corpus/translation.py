"""Task family ``translation``: short German paragraphs into English, one rendering per sentence pattern."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from multidraft.training.pocket.corpus.base import Example, Family, Split, register, split_of
from multidraft.training.pocket.corpus.translation_lexicon import (
    FEMALE_NAMES,
    FEMALE_RELATIVES,
    MALE_NAMES,
    MALE_RELATIVES,
    NOUNS,
    PHRASES,
)
from multidraft.training.pocket.corpus.translation_patterns import TOPICS

Entry = tuple[str, str, str]
"""Gender (empty for phrases and adjectives), German, English."""

INSTRUCTIONS = (
    "Translate into English: {text}",
    "Translate the following German text into English.\n\n{text}",
    "Please put this German paragraph into English:\n{text}",
    "{text}\n\nWhat does this German text say in English?",
    "{text}\n\nTranslate the paragraph above into English.",
    "How do you say this in English?\n{text}",
    "I received this message in German. Please translate it.\n\n{text}",
    "German: {text}\nGive me the English translation.",
    "Can you translate this from German to English? {text}",
    "My German is not good enough for this. What does it mean in English?\n\n{text}",
)

# Rows: the four persons I, he, she, we.
PRONOUNS = (("ich", "I"), ("er", "he"), ("sie", "she"), ("wir", "we"))
POSSESSIVES = (("mein", "my"), ("sein", "his"), ("ihr", "her"), ("unser", "our"))
# Which of 2, 3 or 4 bracketed forms each person takes.
FORM_OF_PERSON = {2: (0, 1, 1, 0), 3: (0, 1, 1, 2), 4: (0, 1, 2, 3)}

# Endings by case, in the order masculine, feminine, neuter.
DEFINITE = {"nom": ("der", "die", "das"), "acc": ("den", "die", "das"), "dat": ("dem", "der", "dem")}
INDEFINITE = {"nom": ("", "e", ""), "acc": ("en", "e", ""), "dat": ("em", "er", "em")}
ADJECTIVE = {"nom": ("er", "e", "es"), "acc": ("en", "e", "es"), "dat": ("en", "en", "en")}

_SLOT = re.compile(r"\{(\w+?)(2?)(?::(\w+)\.(\w+)(?:\.(\w+))?)?\}")
_NUMBER = re.compile(r"\{#(\d+)-(\d+)\}")
_FORMS = re.compile(r"\[([^\]]+)\]")
_ARTICLE = re.compile(r"a\(n\) (?=(\w))")


@dataclass(frozen=True)
class Pattern:
    """One sentence in both languages, with the lexicon slots it needs and the range of its number."""

    german: str
    english: str
    slots: tuple[str, ...]
    number: tuple[int, int]


@dataclass(frozen=True)
class Subject:
    """Who a paragraph is about: the person's row and how the first sentence names it."""

    person: int
    german: str
    english: str


def _entries(text: str, gendered: bool) -> tuple[Entry, ...]:
    pairs = (item.split("=") for item in text.split(";"))
    return tuple((german[0], german[2:], english) if gendered else ("", german, english) for german, english in pairs)


LEXICON: dict[str, tuple[Entry, ...]] = {
    **{name: _entries(text, gendered=False) for name, text in PHRASES.items()},
    **{name: _entries(text, gendered=True) for name, text in NOUNS.items()},
}


def _pattern(german: str, english: str) -> Pattern:
    slots: list[str] = []
    for name, copy, _, _, adjective in _SLOT.findall(german):
        if name in LEXICON:
            slots += [name + copy] + ([adjective] if adjective else [])
    number = _NUMBER.search(german)
    limits = (int(number[1]), int(number[2])) if number else (0, 0)
    return Pattern(_NUMBER.sub("{#}", german), english, tuple(slots), limits)


def _patterns(block: str) -> tuple[Pattern, ...]:
    lines = [line.strip() for line in block.splitlines()]
    return tuple(_pattern(*pair) for pair in zip(lines[::2], lines[1::2], strict=True))


PATTERNS = {topic: tuple(map(_patterns, blocks)) for topic, blocks in TOPICS.items()}


def _subjects() -> tuple[Subject, ...]:
    # First persons and relatives are repeated so that they occur often enough beside forty names.
    named = [Subject(1, name, name) for name in MALE_NAMES] + [Subject(2, name, name) for name in FEMALE_NAMES]
    male = [Subject(1, german, english) for _, german, english in _entries(MALE_RELATIVES, gendered=False)]
    female = [Subject(2, german, english) for _, german, english in _entries(FEMALE_RELATIVES, gendered=False)]
    return tuple(named + 2 * (male + female) + 15 * [Subject(0, *PRONOUNS[0])] + 15 * [Subject(3, *PRONOUNS[3])])


SUBJECTS = _subjects()


def _draw_slots(rng: random.Random, pattern: Pattern, used: set[Entry]) -> dict[str, Entry]:
    """Fill a pattern's slots with entries that the paragraph has not used yet, if any are left."""
    chosen: dict[str, Entry] = {}
    for slot in pattern.slots:
        entries = LEXICON[slot.rstrip("2")]
        entry = rng.choice([entry for entry in entries if entry not in used] or entries)
        used.add(entry)
        chosen[slot] = entry
    return chosen


def _noun_phrase(noun: Entry, case: str, determiner: str, adjective: str, possessive: str) -> str:
    """A German noun with article or possessive and, after the indefinite kind, an inflected adjective."""
    gender = "mfn".index(noun[0])
    if determiner == "der":
        return f"{DEFINITE[case][gender]} {noun[1]}"
    stem = possessive if determiner == "poss" else "ein"
    middle = f"{adjective}{ADJECTIVE[case][gender]} " if adjective else ""
    return f"{stem}{INDEFINITE[case][gender]} {middle}{noun[1]}"


def _render(template: str, language: int, subject: Subject, first: bool, slots: dict[str, Entry], number: str) -> str:
    """One sentence in German (language 0) or English (1)."""
    pronoun, possessive = PRONOUNS[subject.person][language], POSSESSIVES[subject.person][language]
    name = (subject.german, subject.english)[language] if first else pronoun
    words = {"s": name, "r": pronoun, "p": possessive}

    def fill(match: re.Match[str]) -> str:
        slot, copy, case, determiner, adjective = match.groups()
        if slot in words:
            return words[slot]
        entry = slots[slot + copy]
        if case is None:
            return entry[1 + language]
        return _noun_phrase(entry, case, determiner, slots[adjective][1] if adjective else "", possessive)

    def form(match: re.Match[str]) -> str:
        forms = match[1].split("|")
        return forms[FORM_OF_PERSON[len(forms)][subject.person]]

    text = _SLOT.sub(fill, _FORMS.sub(form, template)).replace("{#}", number)
    text = _ARTICLE.sub(lambda match: "an " if match[1] in "aeiou" else "a ", text)
    return text[0].upper() + text[1:]


@register
class Translation(Family):
    """German paragraphs of five to seven sentences on one topic and one person."""

    name = "translation"
    title = "German to English"

    def example(self, rng: random.Random, split: Split) -> Example:
        """Draw a paragraph whose topic, person and sequence of sentence patterns belong to ``split``."""
        while True:
            topic = rng.choice(tuple(PATTERNS))
            subject = rng.choice(SUBJECTS)
            opening, middle, closing = PATTERNS[topic]
            body = rng.sample(middle, rng.randint(3, 5))
            patterns = [rng.choice(opening), *body, rng.choice(closing)]
            if split_of(subject.german, *(pattern.german for pattern in patterns)) == split:
                break
        german, english = self._paragraph(rng, subject, patterns)
        return Example(self.name, rng.choice(INSTRUCTIONS).format(text=german), english)

    @staticmethod
    def _paragraph(rng: random.Random, subject: Subject, patterns: list[Pattern]) -> tuple[str, str]:
        used: set[Entry] = set()
        german, english = [], []
        for position, pattern in enumerate(patterns):
            slots = _draw_slots(rng, pattern, used)
            number = str(rng.randint(*pattern.number))
            german.append(_render(pattern.german, 0, subject, position == 0, slots, number))
            english.append(_render(pattern.english, 1, subject, position == 0, slots, number))
        return " ".join(german), " ".join(english)
