"""Schemas, conditions and queries that the family ``sql`` draws from."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

# A domain is three lines, people, events and things; an event row points to one person and, if drawn, to one thing.
# An entity is "singular names | label column | text columns | number columns | year columns".
DOMAIN_TEXT = """\
customer client buyer|name|city country segment|age points discount|member_since
order purchase||status channel|amount quantity|order_year
product article|name title|category brand color|price stock weight|release_year

member reader borrower|name|city district|age fee|member_since
loan checkout||status branch|days fee|loan_year
book volume|title|genre language|pages price stock|release_year

guest visitor|name|country city|age points|birth_year
booking stay reservation||status channel|nights price|booking_year
room suite|name|type view floor|price beds size|built_year

student pupil|name|city level|age points|birth_year
enrollment registration||status semester|score fee|year
course seminar|title name|subject language|hours seats fee|start_year

patient|name|city insurance|age weight|birth_year
appointment consultation||status reason|minutes fee|year
doctor specialist|name|department city|salary age|hired_year

passenger traveler|name|country city|age points|birth_year
ticket reservation||class status|price bags|year
flight trip|name|airline destination|seats distance minutes|year

viewer subscriber|name|country device|age points|member_since
rating review||device status|score minutes|year
movie film|title|genre language country|minutes price votes|release_year

listener fan|name|country city|age points|member_since
stream playback||device quality|minutes plays|year
song track|title|genre language|minutes votes likes|release_year

diner guest|name|city segment|age points|member_since
bill receipt||payment status|amount tip|year
meal drink|name|category type|price calories stock|menu_year

owner driver|name|city district|age points|birth_year
repair service||status priority|cost hours|repair_year
car vehicle|name model|brand color fuel|price power weight|built_year

sender supplier|name|country city|rating points|member_since
shipment parcel delivery_job||status priority|weight cost|ship_year
warehouse depot|name|city region|size stock staff|built_year

employee worker|name|department city|salary age|hired_year
assignment task||status priority|hours cost|year
project|title name|region category|budget staff hours|start_year

tenant renter|name|city segment|age income|birth_year
lease contract||status type|rent months|lease_year
flat apartment house|name|district type view|size rooms price|built_year

farmer grower|name|region country|age income|birth_year
harvest||crop quality|weight hours|harvest_year
field plot|name|region soil|size cost trees|planted_year

player athlete|name|country position|age salary|birth_year
result performance||status season|score minutes|year
team club|name|league city|points staff wins|founded_year"""
DOMAINS = DOMAIN_TEXT.split("\n\n")
TEXT_VALUES = {
    key: values.split()
    for key, values in {
        "city": "Berlin Hamburg Paris Lyon Rome Milan Madrid Oslo Vienna Zurich London Boston Tokyo Lisbon Prague",
        "country": "Germany France Italy Spain Norway Austria Japan Canada Brazil India Poland Greece",
        "segment": "private business premium student senior",
        "status": "open closed pending cancelled confirmed",
        "channel": "online phone store app email",
        "category": "kitchen garden office sport travel food energy",
        "brand": "Nordic Alpina Vento Kappa Orion Zenit Lumo",
        "color": "red blue green black white silver yellow",
        "district": "North South East West Center Harbor",
        "branch": "Main Park River Station Campus",
        "genre": "drama comedy crime fantasy history jazz science",
        "type": "single double family basic deluxe",
        "language": "German English French Spanish Italian Polish",
        "view": "sea garden street lake mountain",
        "floor": "ground first second third top",
        "level": "beginner medium advanced expert",
        "semester": "spring summer autumn winter",
        "subject": "math physics biology music art chemistry",
        "insurance": "public private none family",
        "reason": "checkup accident cleaning surgery inspection",
        "department": "sales finance research surgery support",
        "class": "economy business first premium",
        "airline": "Skyline Aero Nordair Jetway Sunfly",
        "destination": "Berlin Paris Rome Oslo Tokyo Cairo Dublin",
        "device": "phone tablet laptop television radio",
        "quality": "low normal high best",
        "payment": "cash card voucher transfer",
        "fuel": "petrol diesel electric hybrid",
        "priority": "low medium high urgent",
        "region": "north south east west coast valley",
        "crop": "wheat corn apples potatoes grapes",
        "soil": "sand clay loam peat",
        "position": "goalkeeper defender forward captain",
        "season": "spring summer autumn winter",
        "league": "first second regional youth",
    }.items()
}
SMALL_NUMBERS = "quantity beds bags rooms nights tip score rating hours months seats discount wins plays days".split()
PREFIXES = "An Be Ca Da El Fr Ga Ha In Ja Ka La Ma Ni Ol Pa Ra Sa To Vi Wa Le Mo St Br Cl Gr".split()
COMPARE = {
    ">": ("above|over|greater than|more than", "is greater than"),
    "<": ("below|under|less than|lower than", "is less than"),
    ">=": ("at least|not less than", "is at least"),
    "<=": ("at most|not more than", "is at most"),
}
AGGREGATES = {"SUM": ("total", "sum of"), "AVG": ("average", "average of")}
EXTREMES = {"MAX": (["highest", "largest", "maximum"], "DESC"), "MIN": (["lowest", "smallest", "minimum"], "ASC")}
OPENERS = ["Show", "List", "Find", "Give me", "I need", "Return", "Get", "I want to see", "Select", "Please show"]


@dataclass(frozen=True)
class Table:
    """One table of the drawn schema; columns by their role."""

    name: str
    singular: str
    label: str
    texts: list[str]
    numbers: list[str]
    year: str
    keys: list[str] = field(default_factory=list)

    def columns(self) -> dict[str, str]:
        """Column name to SQL type, in the order of the schema."""
        integers, label = ["id", *self.keys], [self.label] if self.label else []
        order = [*integers, *label, *self.texts, *self.numbers, self.year]
        return {name: "TEXT" if name in label + self.texts else "INTEGER" for name in order}


@dataclass(frozen=True)
class Condition:
    """A condition on rows or groups: its SQL, its words in the explanation and in the question, its constants."""

    sql: str
    words: str
    asked: str
    pins: dict[str, list[Any]]


@dataclass(frozen=True)
class Query:
    """A query by clauses, with the question that it answers."""

    question: str
    select: list[str]
    table: str
    joins: list[tuple[str, str, str, str]] = field(default_factory=list)
    where: list[Condition] = field(default_factory=list)
    glue: str = "AND"
    group: str = ""
    having: Condition | None = None
    order: str = ""
    limit: int = 0
    distinct: bool = False

    def pins(self) -> dict[str, list[Any]]:
        """The constants compared with each column, as "table.column" to values."""
        conditions = [*self.where, self.having] if self.having else self.where
        return {column: values for condition in conditions for column, values in condition.pins.items()}

    def sql(self) -> str:
        """The query over several lines."""
        lines = [f"SELECT {'DISTINCT ' * self.distinct}{', '.join(self.select)}", f"FROM {self.table}"]
        lines += [f"{kind} {table} ON {left} = {right}" for kind, table, left, right in self.joins]
        lines += [f"{'  ' + self.glue if i else 'WHERE'} {c.sql}" for i, c in enumerate(self.where)]
        lines += [f"GROUP BY {self.group}"] * bool(self.group)
        lines += [f"HAVING {self.having.sql}"] if self.having else []
        lines += [f"ORDER BY {self.order}"] * bool(self.order) + [f"LIMIT {self.limit}"] * bool(self.limit)
        return "\n".join(lines) + ";"

    def explanation(self) -> str:
        """One sentence for each clause, in the order in which the clauses take effect."""
        steps = [f"reads the table {self.table}"]
        for kind, table, left, right in self.joins:
            verb = "joins" if kind == "JOIN" else "keeps every row and attaches"
            steps.append(f"{verb} {table} by matching {left} with {right}")
        if self.where:
            steps.append("keeps only rows where " + f" {self.glue.lower()} ".join(c.words for c in self.where))
        if self.group:
            steps.append(f"groups the rows by {self.group}")
        if self.having:
            steps.append(f"keeps only groups where {self.having.words}")
        steps.append(f"returns {'different values of ' * self.distinct}{' and '.join(map(in_words, self.select))}")
        if self.order:
            column, direction = self.order.split()
            steps.append(f"sorts by {column} in {'descend' if direction == 'DESC' else 'ascend'}ing order")
        if self.limit:
            steps.append(f"stops after {self.limit} rows")
        return "This query:\n" + "\n".join(f"- {step}." for step in steps)


def in_words(expression: str) -> str:
    """A select expression as the explanation names it."""
    name = expression.split(" AS ")[0]
    if name == "COUNT(*)":
        return "the number of rows"
    head, _, rest = name.partition("(")
    words = {"SUM": "sum", "AVG": "average", "MAX": "maximum", "MIN": "minimum"}
    return f"the {words[head]} of {rest[:-1]}" if rest else name


def spoken(column: str) -> str:
    """A column name as people say it."""
    return column.replace("_", " ")


def draw_table(rng: random.Random, entity: str) -> Table:
    """A table with a random name variant and a random subset of the entity's columns."""
    names, labels, texts, numbers, years = (part.split() for part in entity.split("|"))
    singular = rng.choice(names)
    chosen = rng.sample(numbers, rng.randint(1, 2))
    return Table(
        singular + "s",
        singular,
        rng.choice(labels) if labels else "",
        rng.sample(texts, rng.randint(1, 2)),
        chosen,
        rng.choice(years),
    )


def draw_number(rng: random.Random, column: str) -> int:
    """A constant that suits the column."""
    return rng.randint(2, 20) if column in SMALL_NUMBERS else rng.randint(12, 600)


class Draw:
    """One drawn schema and the choices that the query kinds share."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        people, events, things = rng.choice(DOMAINS).splitlines()
        both = [draw_table(rng, people), draw_table(rng, things)]
        self.links = both if rng.random() < 0.4 else [rng.choice(both)]
        self.event = replace(draw_table(rng, events), keys=[f"{table.singular}_id" for table in self.links])
        self.tables = [*self.links, self.event]
        rng.shuffle(self.tables)
        self.one = rng.choice(self.tables)
        self.opener = rng.choice(OPENERS)

    def show(self, table: Table) -> tuple[list[str], str]:
        """Two columns to select and the words "the x and y of"."""
        columns = [table.label or "id", self.rng.choice([*table.numbers, *table.texts, table.year])]
        return columns, f"{self.opener} the {spoken(columns[0])} and {spoken(columns[1])} of all {table.name}"

    def compare(self, table: Table, prefix: str = "", column: str = "") -> Condition:
        """A comparison of a number column (any if not given) with a constant."""
        column = column or self.rng.choice(table.numbers)
        op, (phrases, words) = self.rng.choice(list(COMPARE.items()))
        value, phrase = draw_number(self.rng, column), self.rng.choice(phrases.split("|"))
        asked = self.rng.choice(["with {} {} {}", "having {} {} {}", "that have {} {} {}"])
        return Condition(
            f"{prefix}{column} {op} {value}",
            f"{prefix}{column} {words} {value}",
            asked.format(spoken(column), phrase, value),
            {f"{table.name}.{column}": [value]},
        )

    def equal(self, table: Table, prefix: str = "", negate: bool = False) -> Condition:
        """A text column that equals (or differs from) a constant."""
        column = self.rng.choice(table.texts)
        value = self.rng.choice(TEXT_VALUES[column])
        asked = self.rng.choice(["whose {} is {}{}", "where the {} is {}{}"])
        return Condition(
            f"{prefix}{column} {'<>' if negate else '='} '{value}'",
            f"{prefix}{column} is {'not ' * negate}{value}",
            asked.format(spoken(column), "not " * negate, value),
            {f"{table.name}.{column}": [value]},
        )

    def span(self, table: Table, column: str, low: int, high: int) -> Condition:
        """A number between two constants, both included."""
        asked = self.rng.choice(["with {} between {} and {}", "with {} from {} to {}", "having {} from {} to {}"])
        return Condition(
            f"{column} BETWEEN {low} AND {high}",
            f"{column} is between {low} and {high}",
            asked.format(spoken(column), low, high),
            {f"{table.name}.{column}": [low, high]},
        )

    def join(self, table: Table, kind: str = "JOIN") -> tuple[str, str, str, str]:
        """The join between the event table and one of its links."""
        sides = (f"{self.event.name}.{table.singular}_id", f"{table.name}.id")
        return (kind, table.name, *sides) if kind == "JOIN" else (kind, self.event.name, *sides)
