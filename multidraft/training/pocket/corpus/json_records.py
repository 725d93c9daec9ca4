"""Family ``json``: one or two records in running text, answered by a JSON object or list."""

from __future__ import annotations

import json
import random
from typing import Any

from .base import Example, Family, Split, register, split_of
from .json_fields import Field, RecordType
from .json_types import TYPES

PROMPTS = [
    "Turn this text into JSON with the keys {keys}.\n\n{text}",
    "Extract the data as JSON. Keys: {keys}.\n\nText: {text}",
    "{text}\n\nWrite this as {shape} with the keys {keys}.",
    "Convert the following {topic} to JSON.\nUse these keys: {keys}.\n\n{text}",
    "Here is a text ({topic}):\n{text}\n\nGive me the JSON. The keys are {keys}.",
    "Read the text and fill in {shape}. Fields, in this order: {keys}.\n\n{text}",
    "I need {shape} with {keys} from this text:\n\n{text}",
    "Text: {text}\n\nTask: return the facts as JSON using only the keys {keys}.",
    "Parse the {topic} below into JSON, please. Keep the key order {keys}.\n\n{text}",
    "{text}\n\nPlease store the data above as JSON. Required keys: {keys}.",
]


def record_text(rng: random.Random, kind: RecordType, values: dict[str, Any], told: list[Field]) -> str:
    """The record in sentences: the lead first, the other fields in any order."""
    rest = [f for f in told if f.key not in kind.lead_keys]
    rng.shuffle(rest)
    lead = rng.choice(kind.leads).format(**values)
    return " ".join([lead, *(f.tell(rng, values[f.key]) for f in rest)])


@register
class JsonRecords(Family):
    """Records in running text in, JSON out."""

    name = "json"
    title = "Records to JSON"

    def example(self, rng: random.Random, split: Split) -> Example:
        """Draw one example whose record values belong to ``split``."""
        while True:
            kind = rng.choice(TYPES)
            number = 2 if rng.random() < 0.35 else 1
            extras = [f for f in kind.fields if f.key not in kind.lead_keys]
            asked = rng.sample(extras, min(len(extras), rng.randint(2, 4) if number == 2 else rng.randint(4, 6)))
            values = [{f.key: f.draw(rng) for f in kind.fields} for _ in range(number)]
            fields = [f for f in kind.fields if f.key in kind.lead_keys or f in asked]
            if split_of(self.name, kind.topic, [[v[f.key] for f in fields] for v in values]) == split:
                break
        # Sometimes the text tells more than is asked for.
        spare = [f for f in extras if f not in asked and not f.inner and rng.random() < 0.15][:1]
        return self._write(rng, kind, values, fields, [*fields, *spare])

    def lookup(self, rng: random.Random) -> Example:
        """A short exercise: few facts are told, one or two of them are asked for.

        Which words of the text belong to a key is what a model learns last, and a whole record asks for it
        seldom. A lookup tells fewer facts than any whole example, so none of those is given away.
        """
        kind = rng.choice(TYPES)
        extras = [f for f in kind.fields if f.key not in kind.lead_keys]
        chosen = rng.sample(extras, rng.randint(0, 2))
        told = [f for f in kind.fields if f.key in kind.lead_keys or f in chosen]
        asked = rng.sample(told, min(len(told), rng.randint(1, 2)))
        return self._write(rng, kind, [{f.key: f.draw(rng) for f in kind.fields}], asked, told)

    def _write(
        self, rng: random.Random, kind: RecordType, values: list[dict[str, Any]], asked: list[Field], told: list[Field]
    ) -> Example:
        """The prompt that tells ``told`` of every record, and the answer with the fields ``asked``."""
        texts = [record_text(rng, kind, v, told) for v in values]
        names = [rng.choice(f.names) for f in asked]
        records = [{name: v[f.key] for f, name in zip(asked, names)} for v in values]
        keys = (f"{name} ({', '.join(f.inner)})" if f.inner else name for f, name in zip(asked, names))
        single = len(values) == 1
        prompt = rng.choice(PROMPTS).format(
            text=rng.choice(["\n", " "]).join(texts),
            keys=", ".join(keys),
            shape="a JSON object" if single else "a JSON list of two objects",
            topic=kind.topic if single else f"two {kind.topic}s",
        )
        return Example(self.name, prompt, json.dumps(records[0] if single else records, indent=2))

    def is_correct(self, example: Example, answer: str) -> bool:
        """Whether the answer parses to the reference value with the same key order and types."""
        try:
            return _strict(answer) == _strict(example.completion)
        except (ValueError, RecursionError):
            return False


def _strict(text: str) -> str:
    """A form of the JSON text that keeps key order, repeated keys and the difference of 1, 1.0 and true."""
    return repr(json.loads(text, object_pairs_hook=tuple))
