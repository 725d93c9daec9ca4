"""The stories of the word problems: each kind's texts, number ranges and steps, as data."""

from __future__ import annotations

from typing import NamedTuple

StepText = tuple[str, str, str]
"""(variable that the step defines, ``left op right``, text with ``{eq}`` for the worked equation)."""


class Ending(NamedTuple):
    """How a story goes on: more numbers, the question, the last steps."""

    key: str
    ranges: str
    stories: tuple[str, ...]
    known: str
    steps: tuple[StepText, ...]
    result: str


class Kind(NamedTuple):
    """The beginning of a story, shared by its endings."""

    key: str
    ranges: str
    stories: tuple[str, ...]
    known: str
    steps: tuple[StepText, ...]
    endings: tuple[Ending, ...]


KINDS = (
    Kind("shopping", "n:2-9 p:2-25 q:6-60", (
        "{name} buys {n} {goods} for {p} dollars each and one {thing} for {q} dollars.",
        "In a shop {goods} cost {p} dollars each. {name} takes {n} of them and also a {thing} for {q} dollars.",
    ), "{n} {goods} for {p} dollars each, a {thing} for {q} dollars", (
        ("a", "n * p", "The {goods} cost {eq} dollars."),
        ("t", "a + q", "With the {thing} the bill is {eq} dollars."),
    ), (
        Ending("change", "m:50-300-10", ("{He} pays with {m} dollars. How much change does {he} get?",
            "{He} hands over {m} dollars at the till. How many dollars come back?"), "{m} dollars paid", (
            ("r", "m - t", "The change is {eq} dollars."),), "{name} gets {r} dollars back."),
        Ending("coupon", "c:5-30", ("A coupon takes {c} dollars off the bill. What does {name} pay?",
            "At the till {he} uses a coupon worth {c} dollars. How much is left to pay?"), "a coupon of {c} dollars", (
            ("r", "t - c", "After the coupon the price is {eq} dollars."),), "{name} pays {r} dollars."),
        Ending("split", "k:2-6", ("{k} friends share the bill equally. How much does each of them pay?",
            "The bill is split equally between {k} people. What is the share of one person?"), "{k} people share", (
            ("r", "t / k", "Each person pays {eq} dollars."),), "each person pays {r} dollars."),
    )),
    Kind("sharing", "x:12-90 y:11-80", (
        "{name} collects {x} {items} in the morning and {y} {items} in the afternoon.",
        "On Saturday {name} finds {x} {items}, and on Sunday {he} finds {y} more {items}.",
    ), "{x} {items} first, {y} {items} later", (("t", "x + y", "Together there are {eq} {items}."),), (
        Ending("friends", "k:2-9", ("{He} shares all of them equally among {k} friends. How many does each friend get?",
            "All the {items} are dealt out equally to {k} children. How many does one child get?"),
            "{k} equal shares", (("r", "t / k", "One share is {eq} {items}."),), "each one gets {r} {items}."),
        Ending("give", "g:5-40 k:2-9", (
            "{He} gives {g} of them to {other} and puts the rest equally into {k} jars. How many are in one jar?",
            "{other} receives {g} of them, and the others are spread equally over {k} jars. How many does a jar hold?",
            ), "{g} given to {other}, {k} jars", (("b", "t - g", "After the gift {eq} {items} are left."),
            ("r", "b / k", "One jar holds {eq} {items}.")), "there are {r} {items} in each jar."),
        Ending("loss", "l:4-30 g:11-50", (
            "{He} loses {l} of them, but {other} brings {g} new ones. How many {items} does {name} have now?",
            "Then {l} of them get lost, and {other} adds {g} as a present. How many {items} are there in the end?",
            ), "{l} lost, {g} added by {other}", (("b", "t - l", "After the loss {eq} {items} are left."),
            ("r", "b + g", "With the new ones there are {eq} {items}.")), "{name} has {r} {items}."),
    )),
    Kind("travel", "h:2-8 v:30-95", (
        "A {vehicle} drives to {place} for {h} hours at {v} kilometres per hour.",
        "{name} travels by {vehicle} to {place}. The {vehicle} goes {v} kilometres per hour for {h} hours.",
    ), "{h} hours at {v} kilometres per hour", (("d", "h * v", "The {vehicle} covers {eq} kilometres."),), (
        Ending("rest", "w:200-700-10", ("The whole way is {w} kilometres long. How many kilometres are still to go?",
            "The complete route has {w} kilometres. How far is it from there to the end?"),
            "{w} kilometres in all", (("r", "w - d", "The rest of the way is {eq} kilometres."),),
            "there are {r} kilometres left."),
        Ending("ferry", "f:12-80 s:11-60", (
            "Then a ferry crosses {f} kilometres, and the last {s} kilometres go by bike. How long is the way in all?",
            "After that come {f} kilometres by ferry and {s} kilometres by bike. What is the total distance?",
            ), "{f} kilometres by ferry, {s} kilometres by bike", (
            ("b", "d + f", "With the ferry it is {eq} kilometres."),
            ("r", "b + s", "With the bike it is {eq} kilometres.")), "the way is {r} kilometres long."),
        Ending("days", "f:12-80 k:2-8", (
            "A detour adds {f} kilometres. {other} cycles the whole way back in {k} equal parts. How long is one part?",
            "There is a detour of {f} kilometres. Later {other} hikes all of it in {k} equal parts. How long is a part?",
            ), "a detour of {f} kilometres, {k} equal parts", (
            ("b", "d + f", "With the detour it is {eq} kilometres."), ("r", "b / k", "One part is {eq} kilometres.")),
            "one part is {r} kilometres long."),
    )),
    Kind("savings", "n:3-9 w:4-35 s:11-90", (
        "{name} has {s} dollars and saves {w} dollars every week for {n} weeks.",
        "Every week {name} puts {w} dollars into a box that already holds {s} dollars. {He} does so for {n} weeks.",
    ), "{n} weeks with {w} dollars each, {s} dollars at the start", (
        ("a", "n * w", "The weeks bring {eq} dollars."), ("t", "a + s", "With the start money it is {eq} dollars."),
    ), (
        Ending("buy", "c:30-280", ("Then {he} buys a {dear} for {c} dollars. How much money is left?",
            "Afterwards a {dear} is bought for {c} dollars. How many dollars remain?"), "a {dear} for {c} dollars", (
            ("r", "t - c", "After the purchase {eq} dollars are left."),), "{name} has {r} dollars left."),
        Ending("missing", "c:100-400-10", ("A {dear} costs {c} dollars. How many dollars are still missing?",
            "{He} dreams of a {dear} for {c} dollars. How much more money does {he} need?"),
            "a {dear} for {c} dollars", (("r", "c - t", "The missing sum is {eq} dollars."),),
            "{r} dollars are missing."),
        Ending("gift", "g:11-60 c:5-50", (
            "{other} gives {name} {g} dollars, and {he} spends {c} dollars. How much does {he} have?",
            "For the birthday {he} gets {g} dollars from {other} and spends {c} dollars. How much is in the box now?",
            ), "{g} dollars from {other}, {c} dollars spent", (("b", "t + g", "With the gift it is {eq} dollars."),
            ("r", "b - c", "After the spending it is {eq} dollars.")), "{name} has {r} dollars."),
    )),
    Kind("crates", "n:2-9 c:11-40 l:3-40", (
        "A merchant receives {n} crates with {c} {fruit} each. {l} of the {fruit} are rotten and thrown away.",
        "{name} unloads {n} crates of {c} {fruit} and has to throw away {l} bad ones.",
    ), "{n} crates with {c} {fruit} each, {l} thrown away", (
        ("a", "n * c", "The crates hold {eq} {fruit}."), ("t", "a - l", "Without the bad ones {eq} {fruit} are left."),
    ), (
        Ending("bags", "k:2-9", ("The good ones are packed into bags of {k}. How many bags are filled?",
            "Bags with {k} {fruit} each are made from the rest. How many bags does that give?"), "{k} in a bag", (
            ("r", "t / k", "The number of bags is {eq}."),), "{r} bags are filled."),
        Ending("sold", "m:8-60", ("By noon {m} {fruit} are sold. How many {fruit} remain?",
            "Then customers buy {m} of the good {fruit}. How many are still there?"), "{m} sold", (
            ("r", "t - m", "After the sale {eq} {fruit} are left."),), "{r} {fruit} remain."),
        Ending("second", "d:11-90", ("In the afternoon {other} delivers {d} more {fruit}. How many are there now?",
            "A second delivery brings another {d} {fruit}. How many {fruit} are there in total?"),
            "{d} more delivered", (("r", "t + d", "With the delivery there are {eq} {fruit}."),),
            "there are {r} {fruit}."),
    )),
    Kind("harvest", "x:20-150 y:5-60", (
        "A farm harvests {x} kilograms of {crop} on Monday and {y} kilograms more than that on Tuesday.",
        "On Monday {name} digs up {x} kilograms of {crop}. On Tuesday it is {y} kilograms more than on Monday.",
    ), "{x} kilograms on Monday, {y} kilograms more on Tuesday", (
        ("u", "x + y", "Tuesday brings {eq} kilograms."), ("t", "x + u", "Both days bring {eq} kilograms."),
    ), (
        Ending("sacks", "k:2-9", ("Everything is filled into {k} sacks equally. How heavy is one sack?",
            "The {crop} go into {k} equal sacks. How many kilograms are in a sack?"), "{k} equal sacks", (
            ("r", "t / k", "One sack weighs {eq} kilograms."),), "one sack weighs {r} kilograms."),
        Ending("animals", "m:12-99", ("The animals eat {m} kilograms of it. How many kilograms are left to sell?",
            "{m} kilograms are kept as feed and the rest goes to the market. How much goes to the market?"),
            "{m} kilograms for the animals", (("r", "t - m", "Without the feed {eq} kilograms are left."),),
            "{r} kilograms are left to sell."),
        Ending("third", "z:11-99", ("On Wednesday another {z} kilograms come in. How much is it after three days?",
            "Wednesday adds {z} kilograms. What is the harvest of all three days?"), "{z} kilograms on Wednesday", (
            ("r", "t + z", "Three days bring {eq} kilograms."),), "the harvest is {r} kilograms."),
    )),
    Kind("recipe", "p:2-8 f:40-400-10 k:2-9", (
        "A {dish} for {p} people needs {f} grams of {ware}. {name} cooks it for {k} people.",
        "{name} wants to make a {dish} for {k} guests. The recipe takes {f} grams of {ware} for {p} people.",
    ), "{f} grams of {ware} for {p} people, {k} people to serve", (
        ("a", "f / p", "One person needs {eq} grams."), ("t", "k * a", "All {k} people need {eq} grams."),
    ), (
        Ending("buy", "h:20-150", ("There are {h} grams of {ware} at home. How many grams must be bought?",
            "The cupboard still holds {h} grams of {ware}. How many grams are missing?"), "{h} grams at home", (
            ("r", "t - h", "The missing amount is {eq} grams."),), "{r} grams of {ware} must be bought."),
        Ending("extra", "e:15-90", ("{He} takes {e} grams extra, to be safe. How much {ware} does {he} use?",
            "For the topping {he} needs another {e} grams of {ware}. How many grams is that in all?"),
            "{e} grams extra", (("r", "t + e", "With the extra it is {eq} grams."),),
            "{name} uses {r} grams of {ware}."),
        Ending("leftover", "m:300-900-50", ("{He} opens a bag of {m} grams. How many grams of {ware} stay in the bag?",
            "The full bag weighs {m} grams. How much {ware} is left after cooking?"), "a bag of {m} grams", (
            ("r", "m - t", "In the bag there are {eq} grams."),), "{r} grams of {ware} are left."),
    )),
    Kind("ages", "x:4-16 d:3-35 k:2-5", (
        "{name} is {x} years old. {other} is {d} years older than {name}. {third} is {k} times as old as {name}.",
        "{third} is {k} times as old as {name}, who is {x}. {other} is {d} years older than {name}.",
    ), "{name} is {x}, {other} is {d} years older, {third} is {k} times as old", (
        ("o", "x + d", "The age of {other} is {eq} years."), ("q", "k * x", "The age of {third} is {eq} years."),
    ), (
        Ending("sum", "", ("How old are {other} and {third} together?",
            "What do you get when you add the ages of {other} and {third}?"), "", (
            ("r", "o + q", "Together they are {eq} years old."),), "{other} and {third} are {r} years old together."),
        Ending("future", "z:4-40", ("How old will {other} and {third} be together if {z} years are added to the sum?",
            "Add the ages of {other} and {third}, and then add {z} years for {third}'s dog. What is the sum?"),
            "{z} years to add", (("b", "o + q", "Together they are {eq} years old."),
            ("r", "b + z", "With the added years it is {eq} years.")), "the sum is {r} years."),
        Ending("gap", "", ("How many years is {third} older than {other}?",
            "What is the difference when the age of {other} is taken from the age of {third}?"), "", (
            ("r", "q - o", "The difference is {eq} years."),), "{third} is {r} years older than {other}."),
    )),
    Kind("tickets", "n:2-6 p:8-30 m:2-9 q:3-15", (
        "For the {show} {n} adults pay {p} euros each and {m} children pay {q} euros each.",
        "{name} books {n} adult tickets at {p} euros and {m} child tickets at {q} euros for the {show}.",
    ), "{n} adults at {p} euros, {m} children at {q} euros", (
        ("a", "n * p", "The adults pay {eq} euros."), ("c", "m * q", "The children pay {eq} euros."),
        ("t", "a + c", "All tickets cost {eq} euros."),
    ), (
        Ending("voucher", "v:5-40", ("A voucher takes off {v} euros. What is the final price?",
            "{He} uses a voucher of {v} euros. How much has to be paid?"), "a voucher of {v} euros", (
            ("r", "t - v", "With the voucher the price is {eq} euros."),), "the final price is {r} euros."),
        Ending("families", "k:2-4", ("{k} families share the cost equally. How much does each family pay?",
            "The sum is divided equally among {k} families. What is the part of one family?"), "{k} families", (
            ("r", "t / k", "Each family pays {eq} euros."),), "each family pays {r} euros."),
        Ending("food", "f:11-60", ("Snacks cost another {f} euros. How expensive is the day in total?",
            "On top of that {f} euros are spent on food. How much is spent altogether?"), "{f} euros for food", (
            ("r", "t + f", "With the food it is {eq} euros."),), "the day costs {r} euros."),
    )),
    Kind("library", "n:3-9 c:12-60 o:5-60", (
        "A library has {n} shelves with {c} books each, and {o} of the books are lent out.",
        "{name} looks after {n} shelves of {c} books in the library. Readers have borrowed {o} of these books.",
    ), "{n} shelves with {c} books each, {o} books lent out", (
        ("a", "n * c", "The shelves have room for {eq} books."), ("t", "a - o", "In the library {eq} books are left."),
    ), (
        Ending("return", "b:3-50", ("Today {b} other books are donated. How many books are in the library now?",
            "In the evening a school donates {b} new books. How many books stand on the shelves then?"),
            "{b} books donated", (("r", "t + b", "With the donation there are {eq} books."),),
            "there are {r} books in the library."),
        Ending("move", "k:2-8", ("The remaining books are moved into {k} boxes equally. How many are in a box?",
            "For a move the books that are left are put equally into {k} boxes. How many books does a box hold?"),
            "{k} equal boxes", (("r", "t / k", "One box holds {eq} books."),), "each box holds {r} books."),
        Ending("sale", "g:11-60 b:4-40", (
            "The staff sell {g} old books and buy {b} new ones. How many books are on the shelves then?",
            "Later {g} of them are sold as too old and {b} new books arrive. How many books are there?",
            ), "{g} books sold, {b} new books", (("d", "t - g", "After the sale {eq} books are left."),
            ("r", "d + b", "With the new ones there are {eq} books.")), "there are {r} books."),
    )),
    Kind("pages", "w:120-400-10 d:3-9 p:8-35", (
        "A {reading} has {w} pages. {name} reads {p} pages a day for {d} days.",
        "For {d} days {name} reads {p} pages of a {reading} every day. It has {w} pages in all.",
    ), "{w} pages in all, {d} days with {p} pages each", (
        ("a", "d * p", "The days give {eq} pages."), ("t", "w - a", "There are {eq} pages left."),
    ), (
        Ending("finish", "k:2-9", ("{He} reads the rest in {k} days, the same amount each day. How many pages a day?",
            "The remaining pages are spread equally over {k} days. How many pages is that per day?"),
            "{k} days for the rest", (("r", "t / k", "Each day has {eq} pages."),), "it is {r} pages a day."),
        Ending("weekend", "e:15-90", ("At the weekend {he} reads {e} more pages. How many pages are left?",
            "On a long train ride {he} reads another {e} pages. How many pages remain?"), "{e} more pages read", (
            ("r", "t - e", "After that {eq} pages are left."),), "{r} pages are left."),
    )),
    Kind("wages", "h:3-9 w:11-28 b:8-50", (
        "{name} works in a {job} for {h} hours and earns {w} euros per hour, plus a bonus of {b} euros.",
        "The {job} pays {name} {w} euros an hour. Today {he} works {h} hours and also gets a bonus of {b} euros.",
    ), "{h} hours at {w} euros, a bonus of {b} euros", (
        ("a", "h * w", "The hours bring {eq} euros."), ("t", "a + b", "With the bonus it is {eq} euros."),
    ), (
        Ending("lunch", "c:4-30", ("Lunch and the bus cost {c} euros. How much does {name} keep?",
            "{He} spends {c} euros on lunch and the bus. How many euros are left?"),
            "{c} euros spent", (("r", "t - c", "After the costs {eq} euros are left."),), "{name} keeps {r} euros."),
        Ending("tips", "i:11-40 k:2-5", (
            "There are also {i} euros in tips. {He} puts everything equally into {k} envelopes. What is in one?",
            "Guests leave {i} euros as tips. All the money is split equally into {k} envelopes. What does one hold?"), "{i} euros in tips, {k} envelopes", (
            ("d", "t + i", "With the tips it is {eq} euros."), ("r", "d / k", "One envelope holds {eq} euros.")),
            "there are {r} euros in each envelope."),
        Ending("goal", "g:200-500-10", ("{He} wants to reach {g} euros. How many euros are still missing?",
            "The goal is {g} euros. How much more must {he} earn?"), "a goal of {g} euros", (
            ("r", "g - t", "The missing sum is {eq} euros."),), "{r} euros are missing."),
    )),
    Kind("seats", "n:3-9 c:11-30 e:11-50", (
        "In a {hall} there are {n} rows with {c} chairs each and {e} more chairs on the balcony.",
        "{name} sets up {n} rows of {c} chairs in a {hall}. Another {e} chairs stand on the balcony.",
    ), "{n} rows with {c} chairs each, {e} chairs on the balcony", (
        ("a", "n * c", "The rows have {eq} chairs."), ("t", "a + e", "With the balcony there are {eq} chairs."),
    ), (
        Ending("empty", "g:25-180", ("{g} guests sit down. How many chairs stay empty?",
            "{g} people come and each takes a chair. How many chairs are free?"), "{g} guests", (
            ("r", "t - g", "The free chairs are {eq}."),), "{r} chairs stay empty."),
        Ending("groups", "k:2-9", ("All seats are given equally to {k} classes. How many seats does a class get?",
            "{k} clubs each get the same number of these seats. How many seats are there for one club?"),
            "{k} equal groups", (("r", "t / k", "One group gets {eq} seats."),), "each group gets {r} seats."),
        Ending("broken", "z:3-25 g:11-90", (
            "{z} chairs are broken and {g} are reserved. How many chairs can other guests use?",
            "{z} of the chairs break, and {g} good ones are kept for the choir. How many chairs are left?",
            ), "{z} broken, {g} reserved", (("d", "t - z", "Without the broken ones there are {eq} chairs."),
            ("r", "d - g", "Without the reserved ones there are {eq} chairs.")), "{r} chairs can be used."),
    )),
    Kind("water", "s:20-200-5 m:2-9 f:8-35", (
        "A {tank} holds {s} litres. {name} fills in {f} litres per minute for {m} minutes.",
        "For {m} minutes {f} litres of water per minute flow into a {tank} that already holds {s} litres.",
    ), "{s} litres at the start, {m} minutes with {f} litres each", (
        ("a", "m * f", "The water that comes in is {eq} litres."), ("t", "a + s", "With the start it is {eq} litres."),
    ), (
        Ending("drink", "k:2-9 q:5-25", ("Then {k} {drinker} drink {q} litres each. How many litres are left?",
            "After that {k} thirsty {drinker} take {q} litres each. How much water remains?"),
            "{k} {drinker} drink {q} litres each", (("b", "k * q", "The {drinker} drink {eq} litres."),
            ("r", "t - b", "In the {tank} there are {eq} litres.")), "{r} litres are left."),
        Ending("buckets", "k:2-9", ("All of it is poured into {k} buckets equally. How much is in one bucket?",
            "The water is then divided equally into {k} buckets. How many litres does a bucket hold?"),
            "{k} buckets", (("r", "t / k", "One bucket holds {eq} litres."),), "one bucket holds {r} litres."),
    )),
    Kind("bakery", "n:2-9 c:11-36 x:8-50", (
        "A baker bakes {n} trays with {c} {baked} each and sells {x} of the {baked} in the morning.",
        "{name} takes {n} trays of {c} {baked} out of the oven. In the morning {x} {baked} are sold.",
    ), "{n} trays with {c} {baked} each, {x} sold in the morning", (
        ("a", "n * c", "The trays hold {eq} {baked}."), ("t", "a - x", "After the morning {eq} {baked} are left."),
    ), (
        Ending("noon", "y:8-60 k:2-9", (
            "In the afternoon {y} more are sold, and the rest is given equally to {k} neighbours. How many for each?",
            "{y} more are sold at noon. {k} neighbours share the rest equally. How many does each one get?"),
            "{y} sold later, {k} neighbours", (("b", "t - y", "Later {eq} {baked} are left."),
            ("r", "b / k", "Each neighbour gets {eq} {baked}.")), "each neighbour gets {r} {baked}."),
        Ending("bake", "y:11-80", ("At noon another {y} {baked} are baked. How many {baked} are there now?",
            "Then {other} bakes {y} more of them. How many {baked} can still be sold?"), "{y} more baked", (
            ("r", "t + y", "With the new ones there are {eq} {baked}."),), "there are {r} {baked}."),
    )),
    Kind("points", "n:3-9 p:5-25 l:4-40", (
        "In a {game} {name} wins {n} rounds with {p} points each and loses {l} points in the last round.",
        "A {game} gives {p} points for each round that is won. {name} wins {n} rounds, but {l} points are taken off.",
    ), "{n} rounds with {p} points each, {l} points lost", (
        ("a", "n * p", "The rounds bring {eq} points."), ("t", "a - l", "After the loss there are {eq} points."),
    ), (
        Ending("rival", "x:5-60", ("{other} has {x} points more than {name}. How many points does {other} have?",
            "The score of {other} is {x} points higher. What is the score of {other}?"), "{other} has {x} more", (
            ("r", "t + x", "The score of {other} is {eq} points."),), "{other} has {r} points."),
        Ending("team", "x:20-99", ("{other} has {x} points. How many points do they have together?",
            "{other} gets {x} points in the same team. What is the team's total?"), "{other} has {x} points", (
            ("r", "t + x", "Together it is {eq} points."),), "the team has {r} points."),
        Ending("prizes", "k:2-9", ("A prize costs {k} points. How many prizes can {name} get for all the points?",
            "Every {k} points can be swapped for one prize. How many prizes is that?"), "{k} points for a prize", (
            ("r", "t / k", "The number of prizes is {eq}."),), "{name} gets {r} prizes."),
    )),
)  # fmt: skip
