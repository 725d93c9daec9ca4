"""Arithmetic word problems: stories of two to four steps, every operation worked out in the answer."""

from __future__ import annotations

import random
import re
from fractions import Fraction

from multidraft.training.pocket.corpus.base import Example, Family, Split, register, split_of
from multidraft.training.pocket.corpus.math_lexicon import INSTRUCTIONS, LEXICON, NAMES
from multidraft.training.pocket.corpus.math_stories import KINDS, Ending, Kind, StepText

LARGEST = 999
MAX_CHARS = 4_000
_CHAIN = re.compile(r"\d{1,6}(?:\s*[-+*/=]\s*\d{1,6})+")
_FINAL = re.compile(r"^Answer: (\d{1,6})$", re.MULTILINE)


def _parts(number: int) -> list[int]:
    """Split a number by place value, without zeros: 143 -> [100, 40, 3]."""
    digits = str(number)
    return [int(d) * 10 ** (len(digits) - i - 1) for i, d in enumerate(digits) if d != "0"]


def _sum_chain(left: int, sign: str, right: int) -> list[str]:
    """Add or take away one place value of the right operand after the other."""
    chain, parts = [f"{left} {sign} {right}"], _parts(right)
    while len(parts) > 1:
        chain.append(" ".join([str(left), *(f"{sign} {p}" for p in parts)]))
        left += parts[0] if sign == "+" else -parts[0]
        parts = parts[1:]
    return [*chain, f"{left} {sign} {parts[0]}"] if len(chain) > 1 else chain


def work_out(left: int, op: str, right: int) -> tuple[str, int] | None:
    """Write one operation with its intermediate sums; None where it is too hard for the family."""
    if op in "+-":
        value = left + right if op == "+" else left - right
        chain = _sum_chain(left, op, right)
    elif op == "*":
        value = left * right
        chain = [f"{left} * {right}"]
        if left > 9 or right > 99:
            return None
        if len(_parts(right)) == 2:
            tens, ones = _parts(right)
            chain += [f"{left} * {tens} + {left} * {ones}", f"{left * tens} + {left * ones}"]
    else:
        value, rest = divmod(left, right)
        chain = [f"{left} / {right}"]
        if rest or not 2 <= right <= 9 or not 2 <= value <= 99:
            return None
        if len(_parts(value)) == 2:
            tens, ones = _parts(value)
            chain += [f"{right * tens} / {right} + {right * ones} / {right}", f"{tens} + {ones}"]
    return (" = ".join([*chain, str(value)]), value) if 2 <= value <= LARGEST else None


def _draw_numbers(rng: random.Random, ranges: str) -> dict[str, int]:
    """Draw the variables of a range text such as ``n:2-9 m:50-200-10`` (last part: the step)."""
    numbers = {}
    for item in ranges.split():
        key, _, span = item.partition(":")
        low, high, *step = map(int, span.split("-"))
        numbers[key] = rng.randrange(low, high + 1, step[0] if step else 1)
    return numbers


def _solve(given: dict[str, int], steps: tuple[StepText, ...]) -> tuple[dict[str, int], list[str]] | None:
    """Work out all steps: the numbers and the lines; None where one of them leaves the allowed numbers."""
    numbers, lines = dict(given), []
    for target, expression, text in steps:
        left, op, right = expression.split()
        done = work_out(numbers[left], op, numbers[right])
        if done is None:
            return None
        equation, numbers[target] = done
        lines.append(text.replace("{eq}", equation))
    return numbers, lines


def _draw_words(rng: random.Random) -> dict[str, str]:
    """Draw people and things; pronouns follow the first person."""
    female = rng.random() < 0.5
    name = rng.choice(NAMES["female" if female else "male"])
    others = rng.sample(NAMES["male" if female else "female"], 2)
    he = "she" if female else "he"
    words = {"name": name, "other": others[0], "third": others[1], "he": he, "He": he.capitalize()}
    return words | {slot: rng.choice(choices) for slot, choices in LEXICON.items()}


@register
class MathWords(Family):
    """Word problems about shops, farms, journeys, savings and the like."""

    name = "math"
    title = "Arithmetic word problems"

    def example(self, rng: random.Random, split: Split) -> Example:
        """Draw a story whose numbers belong to ``split`` and work it out."""
        kind = rng.choice(KINDS)
        ending = rng.choice(kind.endings)
        while True:
            given = _draw_numbers(rng, f"{kind.ranges} {ending.ranges}")
            if split_of(self.name, kind.key, ending.key, *given.values()) != split:
                continue
            solved = _solve(given, kind.steps + ending.steps)
            if solved is not None:
                return self._render(rng, kind, ending, *solved)

    def _render(
        self, rng: random.Random, kind: Kind, ending: Ending, numbers: dict[str, int], steps: list[str]
    ) -> Example:
        """Fill the texts of a solved problem."""
        slots: dict[str, object] = {**_draw_words(rng), **numbers}
        story = f"{rng.choice(kind.stories)} {rng.choice(ending.stories)}"
        instruction = rng.choice(INSTRUCTIONS)
        gap = rng.choice((" ", " ", "\n"))
        prompt = story + gap + instruction if rng.random() < 0.5 else instruction + gap + story
        known = ", ".join(part for part in (kind.known, ending.known) if part)
        lines = [f"We know: {known}."]
        lines += [f"Step {i}: {step}" for i, step in enumerate(steps, start=1)]
        target = (kind.steps + ending.steps)[-1][0]
        lines += [f"So {ending.result}", f"Answer: {{{target}}}"]
        completion = "\n".join(lines).format(**slots)
        return Example(self.name, prompt.format(**slots), completion, {"answer": numbers[target]})

    def is_correct(self, example: Example, answer: str) -> bool:
        """The final number is the reference's, and every equation on the way holds."""
        finals = _FINAL.findall(answer.strip())
        if len(answer) > MAX_CHARS or len(finals) != 1 or not answer.strip().endswith(f"Answer: {finals[0]}"):
            return False
        chains = _CHAIN.findall(answer)
        return int(finals[0]) == example.check["answer"] and bool(chains) and all(map(_holds, chains))


def _holds(chain: str) -> bool:
    """Whether all sides of an equation chain have the same value (an operation needs a result)."""
    sides = chain.split("=")
    values = [_value(side) for side in sides]
    return len(sides) > 1 and None not in values and len(set(values)) == 1


def _value(expression: str) -> Fraction | None:
    """Evaluate numbers joined by + - * /, products first; None for a division by zero."""
    total = Fraction(0)
    for sign, term in re.findall(r"([-+]?)([^-+]+)", expression):
        first, *rest = re.findall(r"[*/]|\d+", term)
        product = Fraction(int(first))
        for op, operand in zip(rest[::2], rest[1::2]):
            if op == "/" and int(operand) == 0:
                return None
            product = product * int(operand) if op == "*" else product / int(operand)
        total += -product if sign == "-" else product
    return total
