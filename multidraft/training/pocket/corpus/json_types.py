"""The record types of the family ``json``: their fields and sentences."""

from __future__ import annotations

from .json_fields import (
    ANIMALS,
    CITIES,
    COLORS,
    FIRMS,
    GENRES,
    HOTELS,
    JOBS,
    MODELS,
    PETS,
    PLACES,
    REASONS,
    SUBJECTS,
    Drawer,
    Field,
    RecordType,
    address,
    clock,
    code,
    date,
    decimal,
    destination,
    doctor,
    email,
    flag,
    items,
    one_of,
    person,
    title,
    whole,
)


def fact(names: str, draw: Drawer, told: str = "", denied: str = "") -> Field:
    """A field from compact texts: names separated by spaces, sentences by bars."""
    return Field(names.split(), draw, told.split("|"), denied.split("|"))


def yes_no(names: str, told: str, denied: str) -> Field:
    """A field that is true or false, with sentences for both."""
    return fact(names, flag, told, denied)


def record_type(topic: str, leads: str, lead_keys: str, *fields: Field) -> RecordType:
    """A record type from compact texts."""
    return RecordType(topic, leads.split("|"), lead_keys.split(), list(fields))


TYPES = [
    record_type(
        "contact",
        "{name} works as {job}.|New contact: {name}, {job}.|The next person is {name}, {job} by profession.",
        "name job",
        fact("name full_name", person),
        fact("job profession", one_of(JOBS)),
        fact("age", whole(18, 89), "The age is {}.|Age: {} years.|This person is {} years old."),
        fact("email mail", email, "The email address is {}.|Mails go to {}.|Write to {}."),
        fact("phone telephone", code("030 040 069 089 0221 0351", 5), "The phone number is {}.|Call {}.|Phone: {}."),
        fact("address", address, "The address is {street}, {zip} {city}.|Home: {street} in {zip} {city}."),
        yes_no(
            "newsletter subscribed",
            "The newsletter is wanted.|Please send the newsletter.",
            "The newsletter is not wanted.|Please do not send the newsletter.",
        ),
    ),
    record_type(
        "order",
        "{customer} placed order {order_id}.|Order {order_id} comes from {customer}.|We received {order_id} "
        "from {customer}.",
        "order_id customer",
        fact("order_id order", code("A B C AB OR")),
        fact("customer buyer", person),
        fact("date order_date", date, "The order date is {}.|It was ordered on {}.|Date: {}."),
        fact("items", items, "The goods are {}.|Ordered were {}.|The parcel holds {}."),
        fact("total amount", decimal(15, 480), "The total is {} euros.|It costs {} euros in all.|Sum: {} euros."),
        fact("city", one_of(CITIES), "It goes to {}.|The delivery city is {}.|Ship it to {}."),
        yes_no(
            "paid", "The order is paid.|It has already been paid.", "The order is not paid yet.|Payment is still open."
        ),
    ),
    record_type(
        "hotel booking",
        "{guest} booked a stay at {hotel}.|{hotel} expects {guest}.|Booking for {guest} at {hotel}.",
        "guest hotel",
        fact("guest guest_name", person),
        fact("hotel", one_of(HOTELS)),
        fact(
            "room_type room",
            one_of(["single", "double", "family", "twin", "suite"]),
            "The room type is {}.|Room: {}.|The room category is {}.",
        ),
        fact("check_in arrival", date, "Check-in is on {}.|The arrival date is {}.|The stay begins on {}."),
        fact("nights", whole(2, 14), "The stay lasts {} nights.|It is for {} nights.|Length: {} nights."),
        fact("price rate", whole(60, 390), "One night costs {} euros.|The price per night is {} euros."),
        yes_no(
            "breakfast",
            "Breakfast is included.|The price includes breakfast.",
            "Breakfast is not included.|The stay is without breakfast.",
        ),
    ),
    record_type(
        "parcel",
        "{sender} sends parcel {tracking}.|Parcel {tracking} was sent by {sender}.|{tracking} is a parcel from "
        "{sender}.",
        "tracking sender",
        fact("tracking tracking_id", code("PX DE TR LK", 5)),
        fact("sender", one_of(FIRMS)),
        fact("recipient receiver", person, "The recipient is {}.|It is addressed to {}.|It goes to {}."),
        fact("destination", destination, "The destination is {city} in {country}.|It travels to {city}, {country}."),
        fact("weight_kg weight", decimal(1, 29), "It weighs {} kg.|The weight is {} kg."),
        fact("shipped shipping_date", date, "It was shipped on {}.|The shipping date is {}."),
        yes_no(
            "insured insurance",
            "It is insured.|The parcel has insurance.",
            "It is not insured.|The parcel has no insurance.",
        ),
    ),
    record_type(
        "appointment",
        "{patient} sees {doctor}.|{doctor} expects {patient}.|Appointment of {patient} with {doctor}.",
        "patient doctor",
        fact("patient patient_name", person),
        fact("doctor physician", doctor),
        fact("date day", date, "The date is {}.|It is on {}.|Day: {}."),
        fact("time start_time", clock, "The time is {}.|It starts at {}.|Please come at {}."),
        fact("reason", one_of(REASONS), "The reason is {}.|Reason for the visit: {}.|It is about {}."),
        fact("room", whole(1, 40), "It takes place in room {}.|The room number is {}."),
        yes_no(
            "first_visit new_patient",
            "This is the first visit.|The patient is new here.",
            "This is not the first visit.|The patient has been here before.",
        ),
    ),
    record_type(
        "book",
        "{author} wrote {title}.|{title} is a book by {author}.|The book {title} was written by {author}.",
        "title author",
        fact("title", title),
        fact("author", person),
        fact("year published", whole(1950, 2025), "It appeared in {}.|The year of publication is {}."),
        fact("genre", one_of(GENRES), "The genre is {}.|Genre: {}.|It is listed under {}."),
        fact("pages page_count", whole(90, 880), "It has {} pages.|The number of pages is {}."),
        fact("price", decimal(6, 49), "It costs {} euros.|The price is {} euros."),
        yes_no(
            "available in_stock",
            "It is available.|The library has it in stock.",
            "It is not available.|The library does not have it in stock.",
        ),
    ),
    record_type(
        "sensor reading",
        "Sensor {sensor} hangs in the {location}.|In the {location} there is sensor {sensor}.|Reading "
        "from sensor {sensor} in the {location}.",
        "sensor location",
        fact("sensor sensor_id", code("T S K M", 3)),
        fact("location place", one_of(PLACES)),
        fact("date day", date, "The reading is from {}.|It was taken on {}.|Date: {}."),
        fact("time", clock, "The time was {}.|It was read at {}.|Time: {}."),
        fact("temperature temp", decimal(0, 39), "The temperature is {} degrees.|It measures {} degrees."),
        fact("humidity", whole(20, 95), "The humidity is {} percent.|Humidity: {} percent."),
        fact("battery", whole(3, 100), "The battery is at {} percent.|Battery level: {} percent."),
        yes_no("alarm", "The alarm is on.|An alarm was raised.", "The alarm is off.|No alarm was raised."),
    ),
    record_type(
        "invoice",
        "{company} sent invoice {number}.|Invoice {number} is from {company}.|We got invoice {number} from {company}.",
        "number company",
        fact("number invoice_number", code("R IN F RE")),
        fact("company vendor", one_of(FIRMS)),
        fact("date issued", date, "It was issued on {}.|The invoice date is {}."),
        fact("amount total", decimal(20, 990), "The amount is {} euros.|It asks for {} euros.|Sum: {} euros."),
        fact("due_days days", whole(7, 60), "It is due in {} days.|The term of payment is {} days."),
        fact(
            "address billing_address",
            address,
            "The billing address is {street}, {zip} {city}.|It was sent to {street} in {zip} {city}.",
        ),
        yes_no(
            "paid settled",
            "It is paid.|The invoice has been settled.",
            "It is not paid yet.|The invoice is still open.",
        ),
    ),
    record_type(
        "job ad",
        "{company} is looking for a new {position}.|Wanted: {position} at {company}.|Open position at {company}: "
        "{position}.",
        "position company",
        fact("position job_title", one_of(JOBS)),
        fact("company employer", one_of(FIRMS)),
        fact("city location", one_of(CITIES), "The office is in {}.|The place of work is {}.|City: {}."),
        fact("salary pay", whole(2100, 6900), "The salary is {} euros a month.|It pays {} euros a month."),
        fact("hours weekly_hours", whole(10, 40), "The job takes {} hours a week.|Working time: {} hours a week."),
        fact("start start_date", date, "The start date is {}.|Work begins on {}."),
        yes_no(
            "remote home_office",
            "Remote work is possible.|Working from home is allowed.",
            "Remote work is not possible.|Working from home is not allowed.",
        ),
    ),
    record_type(
        "flight",
        "Flight {flight} leaves for {to}.|Flight {flight} goes to {to}.|The next flight to {to} is {flight}.",
        "flight to",
        fact("flight flight_number", code("LH BA AF KL SK", 3)),
        fact("from origin", one_of(CITIES), "It starts in {}.|It departs from {}.|The origin is {}."),
        fact("to destination", one_of(CITIES)),
        fact("date", date, "The date is {}.|It flies on {}.|Day of travel: {}."),
        fact("departure departure_time", clock, "Departure is at {}.|It takes off at {}.|The departure time is {}."),
        fact("gate", code("A B C D", 2), "The gate is {}.|Boarding is at gate {}."),
        fact("seats free_seats", whole(2, 90), "There are {} free seats.|Free seats: {}."),
        yes_no("delayed", "The flight is delayed.|There is a delay.", "The flight is on time.|There is no delay."),
    ),
    record_type(
        "car",
        "{owner} owns a {model}.|The {model} belongs to {owner}.|For sale: {model}, offered by {owner}.",
        "model owner",
        fact("model car", one_of(MODELS)),
        fact("owner seller", person),
        fact("color colour", one_of(COLORS), "The color is {}.|It is painted {}.|Color: {}."),
        fact("year built", whole(1995, 2025), "It was built in {}.|The model year is {}."),
        fact("mileage kilometers", whole(1000, 99999), "It has run {} km.|The mileage is {} km."),
        fact("price", whole(1200, 38000), "It costs {} euros.|The price is {} euros."),
        yes_no(
            "accident_free",
            "It had no accident.|The car is free of accidents.",
            "It had an accident.|The car is not free of accidents.",
        ),
    ),
    record_type(
        "course",
        "{teacher} teaches {subject}.|The {subject} course is taught by {teacher}.|New course: {subject} with "
        "{teacher}.",
        "subject teacher",
        fact("subject course", one_of(SUBJECTS)),
        fact("teacher instructor", person),
        fact("start start_date", date, "It starts on {}.|The first day is {}."),
        fact("time", clock, "Lessons begin at {}.|The time is {}."),
        fact("lessons", whole(3, 24), "It has {} lessons.|The number of lessons is {}."),
        fact("places seats", whole(5, 30), "There are {} places.|The group has {} places."),
        fact("fee price", whole(40, 390), "The fee is {} euros.|It costs {} euros."),
        yes_no(
            "online",
            "It is held online.|The course takes place online.",
            "It is not held online.|The course takes place on site.",
        ),
    ),
    record_type(
        "concert",
        "{artist} performs {program}.|The concert {program} is by {artist}.|{program} is the new show of {artist}.",
        "program artist",
        fact("program show", title),
        fact("artist performer", person),
        fact("date", date, "The concert is on {}.|The date is {}."),
        fact("doors doors_open", clock, "Doors open at {}.|The doors open at {}."),
        fact("venue", destination, "The place is {city}, {country}.|It takes place in {city} in {country}."),
        fact("ticket_price price", decimal(12, 120), "A ticket costs {} euros.|The ticket price is {} euros."),
        yes_no("sold_out", "It is sold out.|All tickets are gone.", "It is not sold out.|Tickets are still available."),
    ),
    record_type(
        "pet patient",
        "{owner} brings in {name}, a {species}.|{name} is a {species} that belongs to {owner}.|The {species} "
        "{name} lives with {owner}.",
        "name species owner",
        fact("name pet_name", one_of(PETS)),
        fact("species animal", one_of(ANIMALS)),
        fact("owner", person),
        fact("age age_years", whole(2, 15), "The age is {} years.|It is {} years old."),
        fact("weight_kg weight", decimal(0, 48), "It weighs {} kg.|The weight is {} kg."),
        fact("chip chip_number", code("C P V", 5), "The chip number is {}.|The chip is {}."),
        fact("last_visit", date, "The last visit was on {}.|It was last here on {}."),
        yes_no(
            "vaccinated",
            "It is vaccinated.|All vaccinations are done.",
            "It is not vaccinated.|The vaccinations are missing.",
        ),
    ),
]
