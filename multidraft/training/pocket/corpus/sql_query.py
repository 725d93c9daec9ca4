"""Family ``sql``: a small schema and a question in English, answered by a query and its explanation."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from .base import Example, Family, Split, register, split_of
from .sql_check import SIZES, build, run
from .sql_schema import (
    AGGREGATES,
    COMPARE,
    EXTREMES,
    PREFIXES,
    TEXT_VALUES,
    Condition,
    Draw,
    Query,
    Table,
    draw_number,
    spoken,
)

PROMPTS = [
    "Write an SQL query for this question.\n\n{schema}\n\nQuestion: {question}",
    "Database schema:\n{schema}\n\n{question} Write the SQL query and explain it.",
    "{question}\n\nAnswer with one SQL query and a short explanation. The tables are:\n{schema}",
    "Given these tables:\n{schema}\n\nTurn the request into SQL: {question}",
    "I have a database with the following tables.\n{schema}\n\n{question} What is the SQL for that?",
    "Translate the question into an SQL query and say how it works.\n\nQuestion: {question}\n\nSchema:\n{schema}",
    "{schema}\n\nUsing the tables above, write SQL for this task: {question}",
    "Help me with SQL, please. My tables:\n{schema}\n\nMy question: {question}",
    "Which SQL query answers this? {question}\n\nUse this schema:\n{schema}",
    "Schema:\n{schema}\n\nTask: {question} Reply with the query first, then explain each step.",
]


def rows(
    table: Table, shown: tuple[list[str], str], *where: Condition, glue: str = "AND", order: tuple[str, str] = ("", "")
) -> Query:
    """The rows that pass the conditions, sorted as :func:`sorting` says; ``shown`` is of :meth:`Draw.show`."""
    (select, words), (by, sorted_by) = shown, order
    asked = f" {glue.lower()} ".join(condition.asked for condition in where)
    question = f"{words} {asked}{', ' * bool(by)}{sorted_by}."
    return Query(question, select, table.name, where=list(where), glue=glue, order=by)


def compare_kind(d: Draw) -> Query:
    """Rows that pass one numeric comparison."""
    return rows(d.one, d.show(d.one), d.compare(d.one))


def two_kind(d: Draw) -> Query:
    """Two conditions, both needed or either."""
    shown, first, second = d.show(d.one), d.equal(d.one), d.compare(d.one)
    return rows(d.one, shown, first, second, glue=d.rng.choice(["AND", "AND", "OR"]))


def between_kind(d: Draw) -> Query:
    """A number within a range."""
    shown, column = d.show(d.one), d.rng.choice(d.one.numbers)
    low = draw_number(d.rng, column)
    return rows(d.one, shown, d.span(d.one, column, low, low + d.rng.randint(5, 80)))


def years_kind(d: Draw) -> Query:
    """A range of years, sorted by a number."""
    shown, low, order = d.show(d.one), d.rng.randint(1985, 2015), sorting(d, d.rng.choice(d.one.numbers))
    return rows(d.one, shown, d.span(d.one, d.one.year, low, low + d.rng.randint(2, 9)), order=order)


def sorting(d: Draw, column: str) -> tuple[str, str]:
    """An ORDER BY expression and its words."""
    down = d.rng.random() < 0.5
    first, order = ("highest", "descending") if down else ("lowest", "ascending")
    asked = d.rng.choice([f"{first} {{}} first", f"sorted by {{}} in {order} order"])
    return f"{column} {'DESC' if down else 'ASC'}", asked.format(spoken(column))


def prefix_kind(d: Draw) -> Query:
    """Labels that start with given letters."""
    table = d.rng.choice(d.links)
    shown = d.show(table)
    start, label = d.rng.choice(PREFIXES) + d.rng.choice(["", "", *"aeilnrst"]), spoken(table.label)
    asked = d.rng.choice(["whose {} starts with {}", "with a {} beginning with {}", "where the {} starts with {}"])
    condition = Condition(
        f"{table.label} LIKE '{start}%'",
        f"{table.label} starts with {start}",
        asked.format(label, start),
        {f"{table.name}.{table.label}": [start]},
    )
    return rows(table, shown, condition)


def in_kind(d: Draw) -> Query:
    """A text column within a list of values."""
    shown, column = d.show(d.one), d.rng.choice(d.one.texts)
    values = d.rng.sample(TEXT_VALUES[column], d.rng.choice([2, 3, 3]))
    listed = f"{', '.join(values[:-1])} or {values[-1]}"
    asked = d.rng.choice(["whose {} is {}", "where the {} is one of {}", "with {} in {}"])
    quoted = ", ".join(f"'{value}'" for value in values)
    condition = Condition(
        f"{column} IN ({quoted})",
        f"{column} is {listed}",
        asked.format(spoken(column), listed),
        {f"{d.one.name}.{column}": values},
    )
    return rows(d.one, shown, condition)


def exclude_kind(d: Draw) -> Query:
    """All rows but one value, sorted."""
    shown, condition = d.show(d.one), d.equal(d.one, negate=True)
    return rows(d.one, shown, condition, order=sorting(d, d.rng.choice(d.one.numbers)))


def distinct_kind(d: Draw) -> Query:
    """Different values among the rows that pass a comparison."""
    column, condition = d.rng.choice(d.one.texts), d.compare(d.one)
    asked = d.rng.choice(
        [
            "Which different {} values occur among the {}",
            "What distinct {} values appear in the {}",
            "List each {} only once for the {}",
            "Show every different {} of the {}",
        ]
    )
    end = "?" if asked.startswith("Wh") else "."
    question = f"{asked.format(spoken(column), d.one.name)} {condition.asked}{end}"
    return Query(question, [column], d.one.name, where=[condition], distinct=True)


def top_kind(d: Draw) -> Query:
    """The first N rows by a number."""
    number, (extremes, direction) = d.rng.choice(d.one.numbers), d.rng.choice(list(EXTREMES.values()))
    first, limit = d.one.label or "id", d.rng.randint(2, 20)
    where = [d.equal(d.one)] if d.rng.random() < 0.6 else []
    asked = where[0].asked + " " if where else ""
    question = (
        f"{d.opener} the {spoken(first)} and {spoken(number)} of the {limit} {d.one.name} "
        f"{asked}{d.rng.choice(['that have', 'having'])} the {d.rng.choice(extremes)} {spoken(number)}."
    )
    return Query(question, [first, number], d.one.name, where=where, order=f"{number} {direction}", limit=limit)


def extreme_kind(d: Draw) -> Query:
    """The largest or smallest number among the rows of one kind."""
    number, (word, (extremes, _)) = d.rng.choice(d.one.numbers), d.rng.choice(list(EXTREMES.items()))
    where = [d.equal(d.one), *(d.compare(d.one, column=other) for other in d.one.numbers if other != number)]
    opener = d.rng.choice(["What is the", f"{d.opener} the"])
    question = f"{opener} {d.rng.choice(extremes)} {spoken(number)} of all {d.one.name} "
    question += " and ".join(c.asked for c in where) + ("?" if opener.startswith("What") else ".")
    return Query(question, [f"{word}({number}) AS {word.lower()}_{number}"], d.one.name, where=where)


def count_kind(d: Draw) -> Query:
    """The number of rows in each group, perhaps of the large groups only."""
    column = d.rng.choice(d.one.texts)
    where = [d.compare(d.one)] if d.rng.random() < 0.6 else []
    least = d.rng.randint(1, 5) if d.rng.random() < 0.4 or not where else 0
    asked = d.rng.choice(["How many {} are there for each {}", "What is the number of {} per {}"])
    question = asked.format(d.one.name, spoken(column))
    question += f", counting only {d.one.name} {where[0].asked}?" if where else "?"
    question += f" Keep only groups with more than {least} rows." if least else ""
    having = Condition(f"COUNT(*) > {least}", f"the number of rows is greater than {least}", "", {}) if least else None
    return Query(question, [column, "COUNT(*) AS row_count"], d.one.name, where=where, group=column, having=having)


def having_kind(d: Draw) -> Query:
    """Groups whose sum or average lies above or below a constant."""
    column, number = d.rng.choice(d.one.texts), d.rng.choice(d.one.numbers)
    word, (noun, meaning) = d.rng.choice(list(AGGREGATES.items()))
    value, (op, (phrases, words)) = draw_number(d.rng, number), d.rng.choice(list(COMPARE.items())[:2])
    asked = d.rng.choice(
        [
            "{o} each {c} of the {t} and its {n} {x}, but only if the {n} {x} is {p} {v}.",
            "{o} the {c} and the {n} {x} of the {t} for every {c} with a {n} {x} {p} {v}.",
            "For which {c} of the {t} is the {n} {x} {p} {v}? {o} the {c} and the {n} {x}.",
        ]
    )
    question = asked.format(
        o=d.opener,
        c=spoken(column),
        t=d.one.name,
        n=noun,
        x=spoken(number),
        v=value,
        p=d.rng.choice(phrases.split("|")),
    )
    # For sums also a third of the constant, so that some larger groups stay below it.
    pins = [value, value // 3] if word == "SUM" else [value]
    having = Condition(
        f"{word}({number}) {op} {value}",
        f"the {meaning} {number} {words} {value}",
        "",
        {f"{d.one.name}.{number}": pins},
    )
    return Query(question, [column, f"{word}({number}) AS {noun}_{number}"], d.one.name, group=column, having=having)


def joined(d: Draw, table: Table) -> tuple[list[str], str]:
    """Select the label of ``table`` and a number of its events, with the words for both."""
    number = d.rng.choice(d.event.numbers)
    select = [f"{table.name}.{table.label}", f"{d.event.name}.{number}"]
    return select, f"the {table.singular} {spoken(table.label)} and the {d.event.singular} {spoken(number)}"


def one_of(d: Draw) -> Callable[..., Condition]:
    """A condition by equality or by comparison."""
    return d.equal if d.rng.choice([True, False]) else d.compare


def join_kind(d: Draw) -> Query:
    """Two joined tables with a condition on either."""
    table = d.rng.choice(d.links)
    select, words = joined(d, table)
    if d.rng.random() < 0.5:
        condition = one_of(d)(table, f"{table.name}.")
        asked = f"for all {d.event.name} of {table.name} {condition.asked}"
    else:
        condition = one_of(d)(d.event, f"{d.event.name}.")
        asked = f"for all {d.event.name} {condition.asked}"
    return Query(f"{d.opener} {words} {asked}.", select, d.event.name, joins=[d.join(table)], where=[condition])


def join_sum_kind(d: Draw) -> Query:
    """Sum or average of the events' number for each linked label."""
    table = d.rng.choice(d.links)
    select, _ = joined(d, table)
    number = select[1].split(".")[1]
    word, (noun, _) = d.rng.choice(list(AGGREGATES.items()))
    where = [d.equal(d.event, f"{d.event.name}.")] if d.rng.random() < 0.5 else []
    asked = f" {where[0].asked}" if where else ""
    question = (
        f"{d.opener} each {table.singular} {spoken(table.label)} with the {noun} {spoken(number)} of "
        f"the {d.event.name}{asked}."
    )
    return Query(
        question,
        [select[0], f"{word}({select[1]}) AS {noun}_{number}"],
        d.event.name,
        joins=[d.join(table)],
        where=where,
        group=select[0],
    )


def missing_kind(d: Draw) -> Query:
    """Rows that no event points to."""
    table = d.rng.choice(d.links)
    other = d.rng.choice(table.texts + table.numbers)
    asked = d.rng.choice(["without any {}", "that have no {}", "for which there are no {}"]).format(d.event.name)
    key = f"{d.event.name}.id"
    where = [Condition(f"{key} IS NULL", f"{key} is missing", asked, {})]
    if d.rng.random() < 0.6:
        where.insert(0, d.equal(table, f"{table.name}."))
    question = (
        f"{d.opener} the {spoken(table.label)} and {spoken(other)} of all {table.name} "
        f"{' and '.join(c.asked for c in reversed(where))}."
    )
    return Query(
        question,
        [f"{table.name}.{table.label}", f"{table.name}.{other}"],
        table.name,
        joins=[d.join(table, "LEFT JOIN")],
        where=where,
    )


def three_kind(d: Draw) -> Query:
    """Both linked tables joined through the event table."""
    first, second = d.rng.sample(d.links, 2)
    select = [f"{first.name}.{first.label}", f"{second.name}.{second.label}"]
    condition = one_of(d)(d.event, f"{d.event.name}.")
    question = (
        f"{d.opener} the {first.singular} {spoken(first.label)} and the {second.singular} "
        f"{spoken(second.label)} for all {d.event.name} {condition.asked}."
    )
    return Query(question, select, d.event.name, joins=[d.join(first), d.join(second)], where=[condition])


KINDS: list[Callable[[Draw], Query]] = [
    compare_kind,
    two_kind,
    between_kind,
    years_kind,
    prefix_kind,
    in_kind,
    exclude_kind,
    distinct_kind,
    top_kind,
    extreme_kind,
    count_kind,
    having_kind,
    join_kind,
    join_sum_kind,
    missing_kind,
]


def schema_text(rng: random.Random, tables: list[Table]) -> str:
    """The schema as CREATE TABLE lines or as a compact list."""
    if rng.random() < 0.5:
        return "\n".join(f"{table.name}({', '.join(table.columns())})" for table in tables)
    return "\n".join(
        f"CREATE TABLE {table.name} ({', '.join(f'{c} {t}' for c, t in table.columns().items())});" for table in tables
    )


@register
class SqlQuery(Family):
    """Schema and question in, query and explanation out."""

    name = "sql"
    title = "SQL from a question"

    def example(self, rng: random.Random, split: Split) -> Example:
        """Draw one example whose query belongs to ``split``."""
        while True:
            draw = Draw(rng)
            query = rng.choice([*KINDS, three_kind] if len(draw.links) == 2 else KINDS)(draw)
            sql = query.sql()
            if split_of(self.name, sql) == split:
                break
        prompt = rng.choice(PROMPTS).format(schema=schema_text(rng, draw.tables), question=query.question)
        check = {"tables": {table.name: table.columns() for table in draw.tables}, "pins": query.pins()}
        return Example(self.name, prompt, f"{sql}\n\n{query.explanation()}", check)

    def is_correct(self, example: Example, answer: str) -> bool:
        """Whether the answer's query returns the reference rows on every seeded database."""
        return all(self._agrees(example, answer, rows) for rows in SIZES)

    def _agrees(self, example: Example, answer: str, size: int) -> bool:
        """Compare on one database; the order counts only where the reference sorts."""
        connection = build(example.check, size)
        try:
            wanted, rows = run(connection, example.completion), run(connection, answer)
        finally:
            connection.close()
        if wanted is None or rows is None:
            return False
        return wanted == rows if "ORDER BY" in example.completion else Counter(wanted) == Counter(rows)
