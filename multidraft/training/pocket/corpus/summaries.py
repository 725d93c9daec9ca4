"""Task family ``summary``: short reports into the bullet points that the prompt asks for, extractively."""

from __future__ import annotations

import random

from multidraft.training.pocket.corpus.base import Example, Family, Split, register, split_of
from multidraft.training.pocket.corpus.summaries_data import (
    BYSTANDERS,
    CONTACTS,
    FIRST_NAMES,
    KINDS,
    LAST_NAMES,
    OPEN_POINTS,
)

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
PARTS_OF_DAY = ("morning", "afternoon", "evening")

# Two wordings per slot: the answer has to use the label that the prompt names.
LABELS = {
    "event": ("What", "Event"),
    "scene": ("Where and when", "Place and time"),
    "figure": ("Main figure", "Key number"),
    "cause": ("Cause", "Reason"),
    "step": ("Next step", "To do"),
    "open": ("Open point", "Open question"),
    "contact": ("Contact", "Person in charge"),
}

INSTRUCTIONS = (
    "Summarise this {kind} with these points: {labels}.\n\n{report}",
    "Read the {kind} and list: {labels}.\n\n{report}",
    "{report}\n\nSummarise the {kind} above. Points: {labels}.",
    "{report}\n\nFrom this {kind} I need the following points: {labels}.",
    "Give me a short summary of the {kind} below, with the bullets {labels}.\n\n{report}",
    "Here is a {kind}. Bullet points, please: {labels}.\n{report}",
    "Shorten this {kind} to the points {labels}.\n\n{report}",
    "{report}\n\nPlease turn this {kind} into bullets: {labels}.",
    "Make a bullet summary ({labels}) of this {kind}:\n{report}",
    "What matters in this {kind}? Use the bullets {labels}.\n\n{report}",
)

EVENT_ORDERS = ("{event} {place} on {time}", "on {time}, {event} {place}", "{place}, {event} on {time}")


def _capitalised(text: str) -> str:
    return text[0].upper() + text[1:]


def _report(rng: random.Random, event: str, asides: list[str], others: list[str]) -> str:
    """The sentences in varying order; only an aside may stand before the event, others may refer to it."""
    start = [asides.pop()] if rng.random() < 0.3 else []
    rest = others + asides
    rng.shuffle(rest)
    return " ".join([*start, event, *rest])


@register
class Summary(Family):
    """Reports of seven or eight sentences; the points asked for, and their order, vary."""

    name = "summary"
    title = "Report summaries"

    def example(self, rng: random.Random, split: Split) -> Example:
        """Draw a report whose kind, sentence patterns, place and requested points belong to ``split``."""
        while True:
            kind = rng.choice(KINDS)
            event, figure, cause, step = map(rng.choice, (kind.events, kind.figures, kind.causes, kind.steps))
            place = rng.choice(kind.places)
            points = rng.sample(tuple(LABELS), rng.choice((4, 5, 5, 6, 6, 7)))
            if split_of(kind.title, event, figure, cause, step, place, *points) == split:
                break
        names = zip(rng.sample(FIRST_NAMES, 2), rng.sample(LAST_NAMES, 2), strict=True)
        contact, bystander = map(" ".join, names)
        day, due = rng.sample(DAYS, 2)
        time = f"{day} {rng.choice(PARTS_OF_DAY)}"
        event = event.format(x=rng.choice(kind.things))
        contents = {
            "event": _capitalised(event) + ".",
            "scene": f"{_capitalised(place)}, {time}.",
            "figure": figure.format(n=rng.randint(120, 990), m=rng.randint(11, 95)),
            "cause": cause,
            "step": step.format(d=due),
            "open": rng.choice(OPEN_POINTS),
            "contact": contact + ".",
        }
        others = [contents[slot] for slot in ("figure", "cause", "step", "open")]
        others.append(rng.choice(CONTACTS).format(name=contact))
        opening = _capitalised(rng.choice(EVENT_ORDERS).format(event=event, place=place, time=time)) + "."
        asides = rng.sample((*kind.asides, *BYSTANDERS), rng.randint(1, 2))  # of them no summary tells
        asides = [aside.format(m=rng.randint(3, 40), name=bystander) for aside in asides]
        report = _report(rng, opening, asides, others)
        labels = {point: rng.choice(LABELS[point]) for point in points}
        request = rng.choice(INSTRUCTIONS).format(kind=kind.title, labels=", ".join(labels.values()), report=report)
        bullets = [f"- {labels[point]}: {contents[point]}" for point in points]
        return Example(self.name, request, "\n".join([f"Summary of the {kind.title}:", *bullets]))
