"""More kinds of small Python functions: texts, dictionaries, prices and conditions."""

from __future__ import annotations

import random

from multidraft.training.pocket.corpus.python_tasks import NOUNS, TEXTS, WORDS, Args, Task, read_pairs

LABELS = read_pairs(
    "pass/fail high/low big/small warm/cold hot/cool fast/slow open/closed rich/poor full/empty on/off "
    "heavy/light old/young strong/weak good/bad long/short"
)
"""Two answers of a simple decision."""


def draw_words(rng: random.Random) -> list[str]:
    """Two to four different words."""
    return rng.sample(WORDS, rng.randint(2, 4))


def by_length(rng: random.Random) -> Task:
    """Words of some length, as a list, a count or one text."""
    one, many = rng.choice(TEXTS)
    n = rng.randint(3, 5)
    tag, phrase, op = rng.choice((("long", f"more than {n}", ">"), ("short", f"fewer than {n}", "<"),
                                  ("exact", f"exactly {n}", "==")))  # fmt: skip
    kept = f"[{one} for {one} in {many} if len({one}) {op} {n}]"
    verb, returns, what, result = rng.choice((
        ("keep", "list[str]", "a list of the", "kept"), ("count", "int", "the number of", "len(kept)"),
        ("join", "str", "one text with the", '", ".join(kept) or "none"')))  # fmt: skip

    extras = {"keep": ("Keep the order of the list.",), "count": (f"Any {one} may occur more than once.",),
              "join": ('Join them with ", " or return "none" if nothing is left.',)}  # fmt: skip
    return Task(
        f"{verb}_{tag}_{many}", ((many, "list[str]"),), returns, f"{what} {many} with {phrase} letters", extras[verb],
        (f"kept = {kept}", f"return {result}"), lambda: (draw_words(rng),))  # fmt: skip


def by_letter(rng: random.Random) -> Task:
    """Words that begin with, end with or contain a letter."""
    one, many = rng.choice(TEXTS)
    letter = rng.choice("abcdefgilmnoprst")
    fixed = rng.random() < 0.5
    value = f'"{letter}"' if fixed else "letter"
    tag, phrase, code = rng.choice((
        ("starting", "begin with", f"{one}.startswith({value})"), ("ending", "end with", f"{one}.endswith({value})"),
        ("containing", "contain", f"{value} in {one}")))  # fmt: skip
    counted = rng.random() < 0.5
    shown = f"the letter {letter}" if fixed else "the given letter"

    def draw() -> Args:
        words = draw_words(rng)
        return (words,) if fixed else (words, rng.choice(rng.choice(words)))

    kept = f"[{one} for {one} in {many} if {code}]"
    return Task(
        f"{'count' if counted else 'find'}_{many}_{tag}" + (f"_{letter}" if fixed else ""),
        ((many, "list[str]"), *(() if fixed else (("letter", "str"),))), "int" if counted else "list[str]",
        f"{'the number of' if counted else 'a list of the'} {many} that {phrase} {shown}",
        ("Use a list comprehension.",), (f"return len({kept})" if counted else f"return {kept}",), draw)  # fmt: skip


def decorate(rng: random.Random) -> Task:
    """Put a prefix or suffix on each text."""
    one, many = rng.choice(TEXTS)
    before = rng.random() < 0.5
    side = "prefix" if before else "suffix"
    least = rng.choice((None, 3, 4, 5))
    code = f"{side} + {one}" if before else f"{one} + {side}"
    tail = f" if len({one}) >= {least}" if least else ""

    affixes = ("my_", "new_", "old_", "the-", "a-", "x_") if before else ("_1", "_new", "!", "?", "-ok", ".txt")
    return Task(
        f"{rng.choice(('mark', 'decorate', 'extend'))}_{many}", ((many, "list[str]"), (side, "str")), "list[str]",
        f"a list of the {many} with the {side} {'before' if before else 'after'} each",
        (f"Leave out {many} with fewer than {least} letters.",) if least else ("Keep all of them in order.",),
        (f"return [{code} for {one} in {many}{tail}]",), lambda: (draw_words(rng), rng.choice(affixes)))  # fmt: skip


def price(rng: random.Random) -> Task:
    """Price of some pieces with a discount or shipping."""
    thing = rng.choice(WORDS)
    limit, change = rng.randint(2, 6) * 10, rng.randint(2, 9)
    discount = rng.random() < 0.5
    test = ">=" if discount else "<"
    sign = "-" if discount else "+"

    rule = f"{limit} or more" if discount else f"less than {limit}"
    return Task(
        f"{thing}_{rng.choice(('price', 'cost', 'bill'))}", (("price", "int"), ("amount", "int")), "int",
        "the price times the amount", (
            f"If the result is {rule}, {'take off a discount of' if discount else 'add shipping of'} {change}.",),
        ("total = price * amount", f"if total {test} {limit}:", f"    total {sign}= {change}", "return total"),
        lambda: (rng.randint(2, 12), rng.randint(2, 9)))  # fmt: skip


def draw_table(rng: random.Random) -> dict[str, int]:
    """A dictionary of two or three words with small numbers."""
    return {word: rng.randint(1, 15) for word in rng.sample(WORDS, rng.randint(2, 3))}


def lookup(rng: random.Random) -> Task:
    """A dictionary value with a default, perhaps changed."""
    one, many = rng.choice(NOUNS)
    default, n = rng.choice((0, 1, 5, 10)), rng.randint(2, 9)
    op, change = rng.choice((("+", f" plus {n}"), ("*", f" times {n}"), ("", "")))
    key = rng.choice(("name", "key", "word", "item"))

    def draw() -> Args:
        table = draw_table(rng)
        return table, rng.choice([*table, rng.choice(WORDS)])

    return Task(
        f"{rng.choice(('get', 'find', 'look_up'))}_{one}", ((many, "dict[str, int]"), (key, "str")), "int",
        f"the {one} of the {key}{change}", (f"Use {default} as the {one} of an unknown {key}.",),
        (f"{one} = {many}.get({key}, {default})", f"return {one} {op} {n}" if op else f"return {one}"), draw)  # fmt: skip


def bill(rng: random.Random) -> Task:
    """Sum of dictionary values for a list of keys."""
    (one, many), (key, keys) = rng.choice(NOUNS), rng.choice(TEXTS[1:])
    default = rng.choice((0, 0, 1, 5))

    def draw() -> Args:
        table = draw_table(rng)
        wanted = [*rng.sample(list(table), 2), *rng.sample(WORDS, rng.randint(0, 1))]
        return table, wanted

    return Task(
        f"total_{one}_of_{keys}", ((many, "dict[str, int]"), (keys, "list[str]")), "int",
        f"the sum of the {many} of all {keys} in the list", (f"Count {default} for each unknown {key}.",),
        ("total = 0", f"for {key} in {keys}:", f"    total += {many}.get({key}, {default})", "return total"), draw)  # fmt: skip


def filter_table(rng: random.Random) -> Task:
    """Keys of a dictionary whose values pass a test."""
    (one, many), (key, keys) = rng.choice(NOUNS), rng.choice(TEXTS)
    n = rng.randint(3, 12)
    tag, phrase, op = rng.choice((("high", f"above {n}", ">"), ("low", f"below {n}", "<"),
                                  ("enough", f"at least {n}", ">=")))  # fmt: skip

    return Task(
        f"{keys}_with_{tag}_{one}", ((many, "dict[str, int]"),), "list[str]",
        f"a list of the {keys} whose {one} is {phrase}", (f"The dictionary {many} maps each {key} to its {one}.",),
        (f"return [{key} for {key}, {one} in {many}.items() if {one} {op} {n}]",), lambda: (draw_table(rng),))  # fmt: skip


def decide(rng: random.Random) -> Task:
    """One of two or three texts, depending on a number."""
    one, _ = rng.choice(NOUNS)
    yes, no = rng.choice(LABELS)
    limit, middle = rng.randint(21, 80), rng.choice((None, rng.randint(5, 20)))
    third = "unknown" if rng.random() < 0.5 else "none"
    middle_lines = (f"if {one} >= {middle}:", f'    return "{no}"', f'return "{third}"')

    extras = (f'Return "{no}" if it is at least {middle}, and otherwise "{third}".',) if middle else (
        f'Otherwise return "{no}".',)  # fmt: skip
    return Task(
        f"{rng.choice(('judge', 'rate', 'label', 'check'))}_{one}", ((one, "int"),), "str",
        f'"{yes}" if the {one} is at least {limit}', extras,
        (f"if {one} >= {limit}:", f'    return "{yes}"', *(middle_lines if middle else (f'return "{no}"',))),
        lambda: (rng.choice((rng.randint(1, 99), limit, limit - 1, rng.randint(1, 20))),))  # fmt: skip


def describe(rng: random.Random) -> Task:
    """A sentence with a text and a number in it."""
    _, many = rng.choice(NOUNS)
    verb = rng.choice(("has", "gets", "needs", "shows", "gives", "wants"))
    key = rng.choice(("name", "item", "word", "label"))
    n = rng.randint(2, 20)
    op, change = rng.choice((("+", "plus"), ("-", "minus")))
    mark = rng.choice((".", "!"))

    return Task(
        f"{rng.choice(('describe', 'report', 'show'))}_{many}", ((key, "str"), ("amount", "int")), "str",
        f'the text "<{key}> {verb} <result> {many}{mark}"', (f"The result is the amount {change} {n}.",),
        (f"result = amount {op} {n}", f'return f"{{{key}}} {verb} {{result}} {many}{mark}"'),
        lambda: (rng.choice(WORDS), rng.randint(20, 70)))  # fmt: skip


def tally(rng: random.Random) -> Task:
    """How often each text occurs, or its length, as a dictionary."""
    one, many = rng.choice(TEXTS)
    n = rng.randint(1, 5)
    start = rng.random() < 0.5

    def draw() -> Args:
        words = rng.sample(WORDS, rng.randint(2, 3))
        return ([*words, rng.choice(words)],)

    initial = f"{{{one}: 0 for {one} in {many}}}"
    counting = (f"points = {initial}", f"for {one} in {many}:", f"    points[{one}] += {n}") if start else (
        "points = {}", f"for {one} in {many}:", f"    points[{one}] = points.get({one}, 0) + {n}")  # fmt: skip
    return Task(
        f"{rng.choice(('tally', 'count', 'rank'))}_{many}", ((many, "list[str]"),), "dict[str, int]",
        f"a dictionary with {n} point{'s' * (n > 1)} for every {one} in the list",
        ("Set all of them to 0 first.",) if start else ("Use the get method.",), (*counting, "return points"), draw)  # fmt: skip


TEXT_KINDS = (by_length, by_letter, decorate, price, lookup, bill, filter_table, decide, describe, tally)
