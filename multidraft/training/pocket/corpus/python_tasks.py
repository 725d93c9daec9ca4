"""The kinds of small Python functions: each draws one function, its description and arguments to call it with."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

Args = tuple[Any, ...]


def read_pairs(text: str) -> tuple[tuple[str, str], ...]:
    """Read pairs written as ``one/other``, with blanks between them."""
    return tuple((left, right) for left, _, right in (pair.partition("/") for pair in text.split()))


NOUNS = read_pairs(
    "score/scores price/prices point/points age/ages number/numbers value/values weight/weights length/lengths "
    "speed/speeds grade/grades mark/marks cost/costs height/heights step/steps level/levels digit/digits size/sizes "
    "width/widths depth/depths order/orders result/results reading/readings salary/salaries delay/delays"
)
"""Singular and plural of what a list of integers holds."""
TEXTS = read_pairs(
    "word/words name/names label/labels title/titles tag/tags item/items key/keys token/tokens line/lines "
    "color/colors city/cities fruit/fruits animal/animals product/products"
)
"""Singular and plural of what a list of texts holds."""
WORDS: tuple[str, ...] = (
    *("apple", "fig", "lemon", "plum", "pear", "grape", "melon", "cat", "dog", "horse"),
    *("mouse", "tiger", "bear", "fox", "wolf", "red", "blue", "green", "pink", "black"),
    *("white", "sun", "moon", "star", "sky", "rain", "snow", "tea", "milk", "bread"),
    *("rice", "salt", "sugar", "book", "pen", "paper", "desk", "lamp", "chair", "door"),
    *("house", "tree", "rose", "leaf", "river", "lake", "sea", "boat", "train", "car"),
    *("bike", "road", "city", "ring", "gold", "iron", "stone", "sand", "fire"),
)
"""The texts of all examples; few enough for their lengths and letters to be learnt."""


@dataclass(frozen=True)
class Task:
    """One function to write: what it is called, takes, returns; its body and what to call it with.

    Attributes:
        params: names and types of the parameters.
        goal: what is returned, fits after "Return" and "returns".
        extras: further requirements, whole sentences.
        draw: draws arguments for a call.
    """

    name: str
    params: tuple[tuple[str, str], ...]
    returns: str
    goal: str
    extras: tuple[str, ...]
    body: tuple[str, ...]
    draw: Callable[[], Args]


@dataclass(frozen=True)
class Condition:
    """Which numbers count: a tag for the function's name, a phrase, and code."""

    tag: str
    phrase: str
    code: str


def draw_numbers(rng: random.Random, low: int = 1, high: int = 20) -> list[int]:
    """Three or four numbers of a range."""
    return [rng.randint(low, high) for _ in range(rng.randint(3, 4))]


def draw_condition(rng: random.Random, one: str, many: str) -> Condition:
    """One of seven tests with a number drawn for it."""
    n, k = rng.randint(3, 15), rng.randint(2, 5)
    return rng.choice((
        Condition("even", f"even {many}", f"{one} % 2 == 0"),
        Condition("odd", f"odd {many}", f"{one} % 2 == 1"),
        Condition("high", f"{many} above {n}", f"{one} > {n}"),
        Condition("low", f"{many} below {n}", f"{one} < {n}"),
        Condition("big", f"{many} of at least {n}", f"{one} >= {n}"),
        Condition("small", f"{many} of at most {n}", f"{one} <= {n}"),
        Condition("other", f"{many} that are not {n}", f"{one} != {n}"),
        Condition(f"by_{k}", f"{many} divisible by {k}", f"{one} % {k} == 0"),
    ))  # fmt: skip


def draw_kept(rng: random.Random) -> tuple[str, str, Condition, tuple[str, ...], int]:
    """Singular and plural of numbers, which of them count (perhaps no negative ones), what is said of that, and the
    lowest number to draw."""
    one, many = rng.choice(NOUNS)
    condition = draw_condition(rng, one, many)
    if rng.random() < 0.6:
        return one, many, condition, (), 1
    both = replace(condition, code=f"{one} >= 0 and {condition.code}")
    return one, many, both, (f"Ignore negative {many}.",), -8


def total(rng: random.Random) -> Task:
    """Sum of some numbers, perhaps plus a bonus."""
    one, many, condition, extras, low = draw_kept(rng)
    plus = rng.choice((None, "bonus", "extra", str(rng.randint(2, 20))))
    named = plus is not None and not plus.isdigit()
    loop = rng.random() < 0.6
    tail = f" + {plus}" if plus else ""
    body: tuple[str, ...]
    if loop:
        body = ("total = 0", f"for {one} in {many}:", f"    if {condition.code}:", f"        total += {one}",
                f"return total{tail}")  # fmt: skip
    else:
        body = (f"total = sum({one} for {one} in {many} if {condition.code})", f"return total{tail}")

    return Task(
        f"{rng.choice(('sum', 'total', 'add'))}_{condition.tag}_{many}",
        ((many, "list[int]"), *(((plus, "int"),) if named else ())), "int",
        f"the sum of the {condition.phrase}",
        (*extras, *((f"Add {'the ' if named else ''}{plus} at the end.",) if plus else ()),
         "Use a for loop." if loop else "Use a generator expression."), body,
        lambda: (draw_numbers(rng, low), *((rng.randint(2, 20),) if named else ())))  # fmt: skip


def count(rng: random.Random) -> Task:
    """How many numbers pass a test."""
    one, many, condition, extras, low = draw_kept(rng)

    return Task(
        f"{rng.choice(('count', 'number_of', 'how_many'))}_{condition.tag}_{many}", ((many, "list[int]"),), "int",
        f"the number of {condition.phrase}", (*extras, "Use a for loop."),
        ("count = 0", f"for {one} in {many}:", f"    if {condition.code}:", "        count += 1", "return count"),
        lambda: (draw_numbers(rng, low),))  # fmt: skip


def collect(rng: random.Random) -> Task:
    """New list of some numbers, each changed."""
    one, many, condition, extras, low = draw_kept(rng)
    n = rng.randint(2, 9)
    op, change = rng.choice((("+", f"plus {n}"), ("-", f"minus {n}"), ("*", f"times {n}"), ("", "")))
    code = f"{one} {op} {n}" if op else one

    return Task(
        f"{rng.choice(('collect', 'get', 'select'))}_{condition.tag}_{many}", ((many, "list[int]"),), "list[int]",
        f"a list of the {condition.phrase}" + (f", each {change}" if op else ""),
        (*extras, "Use a list comprehension."), (f"return [{code} for {one} in {many} if {condition.code}]",),
        lambda: (draw_numbers(rng, low),))  # fmt: skip


def extreme(rng: random.Random) -> Task:
    """Largest or smallest of some numbers, with a default."""
    one, many, condition, extras, low = draw_kept(rng)
    pick, adjective = rng.choice((("max", "largest"), ("min", "smallest")))
    default = rng.choice((0, -1))

    return Task(
        f"{adjective}_{condition.tag}_{one}", ((many, "list[int]"),), "int",
        f"the {adjective} of the {condition.phrase}", (*extras, f"Return {default} if there are none."),
        (f"kept = [{one} for {one} in {many} if {condition.code}]", f"return {pick}(kept, default={default})"),
        lambda: (draw_numbers(rng, low),))  # fmt: skip


def check(rng: random.Random) -> Task:
    """Whether any or all numbers pass a test."""
    one, many = rng.choice(NOUNS)
    condition = draw_condition(rng, one, many)
    every = rng.random() < 0.5
    what = condition.phrase

    return Task(
        f"{'only' if every else 'has'}_{condition.tag}_{many}", ((many, "list[int]"),), "bool",
        f"whether the list holds {'only' if every else 'any'} {what}",
        (f"Use the built-in function {'all' if every else 'any'}.",),
        (f"return {'all' if every else 'any'}({condition.code} for {one} in {many})",),
        lambda: (draw_numbers(rng),))  # fmt: skip


def running(rng: random.Random) -> Task:
    """Running totals from a start value."""
    one, many = rng.choice(NOUNS)
    start = rng.choice((None, rng.randint(1, 30)))
    verb = rng.choice(("running", "growing", "cumulative"))

    return Task(
        f"{verb}_{many}", ((many, "list[int]"), *((("start", "int"),) if start is None else ())), "list[int]",
        f"the running totals of the {many}", (f"The total begins at {'start' if start is None else start}.",),
        (f"total = {'start' if start is None else start}", "totals = []", f"for {one} in {many}:",
         f"    total += {one}", "    totals.append(total)", "return totals"),
        lambda: (draw_numbers(rng), *((rng.randint(1, 30),) if start is None else ())))  # fmt: skip


def clamp(rng: random.Random) -> Task:
    """Move numbers into a range."""
    one, many = rng.choice(NOUNS)
    low, high = rng.randint(2, 9), rng.randint(11, 20)

    return Task(
        f"{rng.choice(('clamp', 'limit', 'bound'))}_{many}", ((many, "list[int]"),), "list[int]",
        f"a list of the {many} limited to the range {low} to {high}",
        (f"Raise smaller {many} to {low} and lower larger ones to {high}.",),
        (f"return [max({low}, min({high}, {one})) for {one} in {many}]",),
        lambda: (draw_numbers(rng, 1, 30),))  # fmt: skip


def positions(rng: random.Random) -> Task:
    """Indexes of the numbers that pass a test."""
    one, many = rng.choice(NOUNS)
    condition = draw_condition(rng, one, many)

    return Task(
        f"{rng.choice(('find', 'index_of', 'positions_of'))}_{condition.tag}_{many}", ((many, "list[int]"),),
        "list[int]", f"the indexes of the {condition.phrase}", ("Use enumerate.",),
        (f"return [index for index, {one} in enumerate({many}) if {condition.code}]",),
        lambda: (draw_numbers(rng),))  # fmt: skip


def first(rng: random.Random) -> Task:
    """First number that passes a test, or a default."""
    one, many, condition, extras, low = draw_kept(rng)

    return Task(
        f"first_{condition.tag}_{one}", ((many, "list[int]"), ("default", "int")), "int",
        f"the first of the {condition.phrase}", (*extras, "Return default if there is none."),
        (f"for {one} in {many}:", f"    if {condition.code}:", f"        return {one}", "return default"),
        lambda: (draw_numbers(rng, low), rng.choice((0, -1, 99, 50))))  # fmt: skip


def pairs(rng: random.Random) -> Task:
    """Combine two lists element by element."""
    (one, many), (two, more) = rng.sample(NOUNS, 2)
    op, verb, what = rng.choice((("+", "add", "sums"), ("-", "subtract", "differences"), ("*", "multiply", "products")))

    def draw() -> Args:
        size, top = rng.randint(2, 4), 9 if op == "*" else 20
        return [rng.randint(1, top) for _ in range(size)], [rng.randint(1, top) for _ in range(size)]

    return Task(
        f"{verb}_{many}_and_{more}", ((many, "list[int]"), (more, "list[int]")), "list[int]",
        f"the {what} of the {many} and the {more}", ("Go through both lists at the same time with zip.",),
        (f"return [{one} {op} {two} for {one}, {two} in zip({many}, {more})]",), draw)  # fmt: skip


NUMBER_KINDS = (total, count, collect, extreme, check, running, clamp, positions, first, pairs)
