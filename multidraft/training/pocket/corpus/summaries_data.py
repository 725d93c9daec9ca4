"""The report kinds of the summary family: places, and per slot the sentence patterns.

Slots in braces: ``{n}`` and ``{m}`` numbers, ``{d}`` a weekday, ``{x}`` a thing of the kind's own list,
``{name}`` a person. Sentences are separated by bars and line ends.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One kind of report: its name, where it plays, and one pattern list per slot of the report."""

    title: str
    places: tuple[str, ...]
    things: tuple[str, ...]
    events: tuple[str, ...]
    figures: tuple[str, ...]
    causes: tuple[str, ...]
    steps: tuple[str, ...]
    asides: tuple[str, ...]


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.replace("|", "\n").splitlines())


def _kind(title: str, places: str, things: str, *slots: str) -> Kind:
    return Kind(title, tuple(places.split(", ")), tuple(things.split(", ")), *map(_lines, slots))


KINDS = (
    _kind(
        "incident report",
        "in hall 2, in hall 5, at the north gate, in the loading bay, on the second floor, "
        "in the cold store, in the car park, at the south ramp",
        "oil, paint, cleaning fluid, packaging, fuel, glass",
        """a pallet of {x} fell from a rack | a forklift hit a shelf with {x}
        a drum of {x} leaked onto the floor | a worker slipped on {x}
        a box of {x} caught fire | two trolleys full of {x} collided""",
        """The damage is estimated at {n} euros. | In total, {n} items were destroyed.
        The area was closed for {m} minutes. | About {m} litres had to be cleaned up.
        Repairs will cost around {n} euros. | The shift lost {m} minutes of work.""",
        """The cause was a worn strap. | A faulty brake caused the accident.
        The accident happened because the floor was wet. | The cause was a missing warning sign.
        It happened because the light was broken. | A loose screw caused the problem.""",
        """The rack must be inspected by {d}. | All drivers will get a new briefing on {d}.
        The safety officer will check the area on {d}. | New warning signs must be put up by {d}.
        The floor will be repaired on {d}. | The equipment must be replaced by {d}.""",
        """Nobody was injured. | The fire brigade was not needed.
        {m} people were on shift at the time. | Photos of the scene were taken.""",
    ),
    _kind(
        "project status report",
        "in the Berlin office, in the Oslo office, at the pilot site, in the main lab, at the test centre, "
        "in the Lyon office, at the partner site, in the Dublin office",
        "login page, payment module, search function, mobile app, data import, report builder",
        """the team finished the {x} | the first test of the {x} started
        the customer approved the {x} | the team presented the {x}
        work on the {x} was stopped | the new version of the {x} went live""",
        """So far, {n} hours have been used. | The tests found {m} open bugs.
        The project has spent {n} thousand euros. | The work is {m} percent complete.
        The backlog now holds {m} tasks. | The project is {m} days behind the plan.""",
        """The delay was caused by a late delivery. | The plan changed because a developer was ill.
        Progress was slow because the server was down. | The change was caused by a new law.
        It took longer because the old code was unclear.
        The early result was caused by a simpler design.""",
        """The team will review the design on {d}. | The next demo will take place on {d}.
        The budget plan must be updated by {d}. | The open bugs must be fixed by {d}.
        The customer will receive a new offer on {d}. | The test plan must be ready by {d}.""",
        """The team has {m} members. | The mood in the team is good.
        The daily meeting stays as it is. | The office got new chairs.""",
    ),
    _kind(
        "sales report",
        "in the city store, in the online shop, at the airport shop, in the north branch, "
        "at the spring fair, in the harbour store, at the outlet, in the south branch",
        "coffee machines, running shoes, desk lamps, raincoats, board games, headphones",
        """the sale of {x} started | a new line of {x} was launched
        {x} sold out | the price of {x} was cut
        a hotel ordered a large lot of {x} | {x} went on display""",
        """The week closed with {n} units sold. | Revenue reached {n} thousand euros.
        Sales rose by {m} percent. | Sales fell by {m} percent.
        The average customer spent {m} euros. | There were {n} orders in total.""",
        """The result was helped by the warm weather. | Sales changed because a rival shop closed.
        The result was driven by a radio spot. | Demand moved because of the school holidays.
        The result was hurt by a late truck. | The trend is due to a new discount.""",
        """The shelves must be refilled by {d}. | A new flyer will be sent out on {d}.
        The manager will adjust the prices on {d}. | More stock must be ordered by {d}.
        The staff will be trained on {d}. | The window display will be changed on {d}.""",
        """The opening hours did not change. | {m} employees worked in the sales area.
        The parking area was full at noon. | A customer praised the friendly service.""",
    ),
    _kind(
        "weather bulletin",
        "along the coast, in the river valley, in the northern hills, near the lake, on the islands, "
        "in the capital, in the eastern plains, around the bay",
        "rain, snow, hail, sleet, rainfall, snowfall",
        """heavy {x} closed several roads | sudden {x} surprised many drivers
        heavy {x} damaged a few roofs | {x} stopped the ferries
        {x} delayed the trains | the first {x} of the season arrived""",
        """The stations measured {m} percent humidity. | Gusts reached {m} kilometres per hour.
        A total of {m} millimetres fell. | Visibility dropped to {n} metres.
        The water level rose by {m} centimetres. | The power was out in {n} homes.""",
        """The cause was a cold front from the north. | The change was caused by a deep low.
        It was caused by warm air from the south. | A storm over the sea was the cause.
        The cause was a sudden drop in pressure. | Moist air from the west was the cause.""",
        """The next warning will be issued on {d}. | Drivers should stay at home until {d}.
        Boats should remain in the harbour until {d}. | The service will update the forecast on {d}.
        Residents should clear their drains by {d}. | The schools will reopen on {d}.""",
        """The sun rose behind thick clouds. | The airport worked normally.
        The last such case was {m} years ago. | Many people took photos.""",
    ),
    _kind(
        "lab report",
        "in lab 3, in lab 7, in the clean room, at the water works, in the test chamber, "
        "in the field station, at the quarry, in the greenhouse",
        "water, soil, steel, glue, milk, concrete",
        """a sample of {x} failed the first test | a sample of {x} passed all tests
        the {x} was heated for an hour | a new batch of {x} was tested
        the {x} was compared with the old batch | a block of {x} was frozen""",
        """The mean value was {m} units. | The highest reading was {n} units.
        The pressure reached {m} bar. | The final mass was {n} grams.
        The impurity content was {m} percent. | The test ran for {m} minutes.""",
        """The result is explained by a dirty filter. | The result is explained by the high humidity.
        The reading changed because the sensor was old. | The reading changed because the pump stopped.
        An impure solvent explains the result. | A wrong setting explains the result.""",
        """The test will be repeated on {d}. | A second sample must be taken by {d}.
        The sensor must be calibrated by {d}. | The data will be sent to the client on {d}.
        The filter must be changed by {d}. | The batch will be released on {d}.""",
        """The room was kept at {m} degrees. | The scale was cleaned before use.
        All staff wore gloves. | The logbook has a new cover.""",
    ),
    _kind(
        "club meeting report",
        "in the club house, at the school hall, in the library, at the old mill, in the town hall, "
        "in the music room, at the sports ground, in the village inn",
        "garden, choir, chess, cycling, theatre, hiking",
        """the {x} club elected a new board | the {x} club planned its summer trip
        the {x} group discussed the budget | the {x} group met the new members
        the {x} club voted on the new rules | the {x} group prepared its open day""",
        """The vote ended with {m} members in favour. | The club now has {n} members.
        The account holds {n} euros. | The yearly fee will be {m} euros.
        The trip will cost {n} euros per person. | The last event raised {n} euros.""",
        """The change was needed because the rent went up.
        The plan was made because many young people joined.
        The talks were needed because the treasurer left. | The plan was made because the old bus broke down.
        The change was needed because few members came. | The talks were needed because a sponsor stopped.""",
        """The next meeting will be on {d}. | Ideas must be sent in by {d}.
        The board will rent a bus on {d}. | The fees must be paid by {d}.
        The poster will be printed on {d}. | The list of helpers must be complete by {d}.""",
        """There was coffee and cake. | {m} guests listened.
        An old member sang a song. | The room was warm and full.""",
    ),
    _kind(
        "city council report",
        "in the old town, at the market square, along the river, near the station, in the west district, "
        "on the school road, at the city park, in the harbour district",
        "playground, bike lane, bus stop, bridge, parking garage, swimming pool",
        """the council opened the new {x} | the council agreed to rebuild the {x}
        the council closed the {x} | work on the {x} began
        residents protested against the {x} | the mayor visited the {x}""",
        """The works will cost {n} thousand euros. | The council approved it with {m} votes.
        About {n} residents will benefit. | The state pays {m} percent of the costs.
        The works will take {m} weeks. | A petition has {n} signatures.""",
        """The reason is the growing traffic. | The reason is a safety report from spring.
        It was decided because the old site is unsafe. | It was decided because many families moved in.
        The reason is a change in the city budget. | It was decided because the noise was too high.""",
        """The contract must be signed by {d}. | The residents will be informed on {d}.
        The first trees will be planted on {d}. | Objections must be sent in by {d}.
        The street will be closed on {d}. | The plans will be shown in public on {d}.""",
        """The debate lasted {m} minutes. | A school class watched the session.
        The public gallery was crowded. | The minutes are in the archive.""",
    ),
    _kind(
        "maintenance report",
        "on line 4, on line 9, in the boiler room, at the packing station, in the paint shop, on the roof, "
        "at the water tower, in the press shop",
        "pump, motor, conveyor, valve, fan, cutter",
        """the {x} stopped without warning | the {x} was replaced
        the {x} was cleaned and oiled | the {x} began to make a loud noise
        the {x} got a new bearing | the {x} failed the yearly check""",
        """The line stood still for {m} minutes. | The spare part cost {n} euros.
        The pressure was {m} bar. | The bearing reached {m} degrees.
        The work took {m} hours. | The machine has run for {n} days.""",
        """The fault was traced to a cracked seal. | The fault was traced to dust in the housing.
        The problem came from a lack of oil. | The problem came from a broken cable.
        The wear was due to a bent shaft. | The wear was due to heavy use.""",
        """The part must be checked again by {d}. | A new seal will be fitted on {d}.
        The technician will return on {d}. | The oil must be changed by {d}.
        A spare part must be ordered by {d}. | The machine will be tested on {d}.""",
        """The tools were returned to the store. | {m} other machines ran normally.
        The area was swept afterwards. | The night shift was informed.""",
    ),
)

CONTACTS = (
    "Questions should be sent to {name}.",
    "{name} is responsible for the follow-up.",
    "{name} is the contact for this matter.",
    "Please contact {name} for details.",
    "Any follow-up is handled by {name}.",
    "{name} is in charge.",
)

OPEN_POINTS = (
    "It is still open who will pay the costs.",
    "It is not yet clear whether more staff is needed.",
    "It is still open when the final numbers will arrive.",
    "It is not yet clear who will write the next report.",
    "It is still open whether the plan must change.",
    "It is not yet clear how often this will happen again.",
    "One open question is the role of the insurance.",
    "One open question is the budget for next year.",
)

# Named people who are not the contact.
BYSTANDERS = ("{name} took the minutes.", "{name} was on holiday.", "{name} wrote the draft.")

FIRST_NAMES = (
    "Alice Brian Carol Daniel Edith Frank Grace Henry Irene Jack Karen Louis Megan Noah Olive Philip Rachel "
    "Samuel Tara Victor Wendy Adam Bella Colin Diana Ethan Fiona Gavin Helen Ian"
).split()
LAST_NAMES = (
    "Abbott Barnes Carter Dixon Ellis Foster Graham Harper Irving Jensen Keller Lawson Mercer Norris Osborne "
    "Parker Quinn Reeves Sutton Turner Vaughn Walsh Young Bishop Clarke Doyle Fisher Gibson Hughes Kent"
).split()
