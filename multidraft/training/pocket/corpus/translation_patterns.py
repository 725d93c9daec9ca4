"""The sentence patterns of the translation family (notation: see ``translation_lexicon``)."""

from __future__ import annotations

# Per topic: opening, middle and closing sentences, each a German line followed by its English line.
TOPICS: dict[str, tuple[str, str, str]] = {
    "travel": (
        """am {day} [fahre|fährt|fahren] {s} mit {veh:dat.der} nach {city}.
        on {day}, {s} [am|is|are] going to {city} by {veh}.
        im {month} [reise|reist|reisen] {s} nach {city}, um dort {kin:acc.poss} zu besuchen.
        in {month}, {s} [am|is|are] travelling to {city} to visit {p} {kin} there.
        {s} [möchte|möchte|möchten] am {day} mit {kin:dat.poss} nach {city} fahren.
        {s} would like to go to {city} with {p} {kin} on {day}.""",
        """der Zug fährt um {clock} ab und kommt um {late} an.
        the train leaves at {clock} and arrives at {late}.
        das Hotel liegt {loc} und hat {#20-90} Zimmer.
        the hotel is {loc} and has {#} rooms.
        eine Nacht im Hotel kostet {#40-180} Euro, und das Frühstück ist inklusive.
        one night at the hotel costs {#} euros, and breakfast is included.
        {s} [bleibe|bleibt|bleiben] {dur} dort, um {sight:acc.der} zu besichtigen.
        {s} [am|is|are] staying there for {dur} to visit the {sight}.
        für die Reise [habe|hat|haben] {r} {gear:acc.ein.adj} gekauft.
        for the trip, {r} [have|has] bought a(n) {adj} {gear}.
        {s} [nehme|nimmt|nehmen] auch {gear:acc.ein.adj} und {gear2:acc.ein} mit.
        {s} [am|is|are] also taking a(n) {adj} {gear} and a(n) {gear2} along.
        nach dem Frühstück [werde|wird|werden] {r} {sight:acc.der} und {sight2:acc.der} besichtigen.
        after breakfast, {r} will visit the {sight} and the {sight2}.""",
        """am {day} [komme|kommt|kommen] {r} wieder nach Hause zurück.
        on {day}, {r} [am|is|are] coming back home.
        {s} [freue mich|freut sich|freuen uns] schon sehr auf die Reise.
        {s} [am|is|are] already looking forward to the trip very much.""",
    ),
    "weather": (
        """heute [bleibe|bleibt|bleiben] {s} zu Hause, weil {wsub}.
        today, {s} [am|is|are] staying at home because {wsub}.
        {s} [wohne|wohnt|wohnen] in {city}, und dort ist es heute {wadj}.
        {s} [live|lives] in {city}, and it is {wadj} there today.
        am {day} [mache|macht|machen] {s} einen Ausflug, wenn das Wetter {wadj} bleibt.
        on {day}, {s} [am|is|are] going on a trip if the weather stays {wadj}.""",
        """am Morgen war es noch {wadj}, aber jetzt ist es {wadj2}.
        in the morning it was still {wadj}, but now it is {wadj2}.
        die Temperatur liegt bei {#2-34} Grad, und der Wind kommt aus dem {dir}.
        the temperature is {#} degrees, and the wind is coming from the {dir}.
        in {city} ist es dagegen {wadj}, und in {city2} gibt es {wnoun}.
        in {city}, however, it is {wadj}, and in {city2} there is {wnoun}.
        ohne {cloth:acc.ein.adj} [gehe|geht|gehen] {r} nicht aus dem Haus.
        without a(n) {adj} {cloth}, {r} [do|does] not leave the house.
        morgen soll es {wadj} werden, sagt {kin:nom.poss}.
        tomorrow it is supposed to be {wadj}, says {p} {kin}.
        im letzten {month} war es fast jeden Tag {wadj}.
        last {month}, it was {wadj} almost every day.""",
        """am {day} [möchte|möchte|möchten] {r} trotzdem {act}.
        on {day}, {r} would still like to {act}.
        wenn es am {day} {wadj} ist, [will|will|wollen] {r} {act}.
        if it is {wadj} on {day}, {r} [want|wants] to {act}.""",
    ),
    "family": (
        """{s} [besuche|besucht|besuchen] am {day} {kin:acc.poss} in {city}.
        {s} [am|is|are] visiting {p} {kin} in {city} on {day}.
        {s} [habe|hat|haben] {zahl} Geschwister und {zahl2} {pets}.
        {s} [have|has] {zahl} siblings and {zahl2} {pets}.
        am {day} [feiere|feiert|feiern] {s} mit der Familie den Geburtstag von {kin:dat.poss}.
        on {day}, {s} [am|is|are] celebrating {p} {kin}'s birthday with the family.""",
        """{sib:nom.poss} ist {#25-59} Jahre alt und arbeitet {work}.
        {p} {sib} is {#} years old and works {work}.
        {sib:nom.poss} hat ein Haus mit Garten und {zahl} {pets}.
        {p} {sib} has a house with a garden and {zahl} {pets}.
        als Geschenk [bringe|bringt|bringen] {r} {gift:acc.ein.adj} mit.
        as a gift, {r} [am|is|are] bringing a(n) {adj} {gift}.
        am Nachmittag gibt es {cake} und {drink}.
        in the afternoon there is {cake} and {drink}.
        nach dem Essen will {kin:nom.poss} mit den Kindern {act}.
        after the meal, {p} {kin} wants to {act} with the children.
        leider kann {kin:nom.poss} erst um {late} kommen.
        unfortunately, {p} {kin} cannot come until {late}.""",
        """{s} [freue mich|freut sich|freuen uns] sehr, alle wiederzusehen.
        {s} [am|is|are] very happy to see everyone again.
        spät am Abend [fahre|fährt|fahren] {r} mit {veh:dat.der} nach Hause.
        late in the evening, {r} [am|is|are] going home by {veh}.""",
    ),
    "market": (
        """gestern [war|war|waren] {s} auf dem Markt in {city}.
        yesterday, {s} [was|was|were] at the market in {city}.
        am {day} [ging|ging|gingen] {s} mit {kin:dat.poss} zum Markt.
        on {day}, {s} went to the market with {p} {kin}.""",
        """zuerst [kaufte|kaufte|kauften] {r} {zahl} Kilo {fruit} und {zahl2} Kilo {fruit2}.
        first, {r} bought {zahl} kilos of {fruit} and {zahl2} kilos of {fruit2}.
        ein Kilo {fruit} kostete {#3-9} Euro, und das war [mir|ihm|ihr|uns] zu teuer.
        one kilo of {fruit} cost {#} euros, and that was too expensive for [me|him|her|us].
        am Stand neben {place:dat.der} gab es {food} und {food2}.
        at the stand next to the {place}, there was {food} and {food2}.
        die Verkäuferin war sehr freundlich und gab [mir|ihm|ihr|uns] {zahl} {fruit}.
        the saleswoman was very friendly and gave [me|him|her|us] {zahl} {fruit}.
        danach [suchte|suchte|suchten] {r} {gift:acc.ein.adj} für {kin:acc.poss}.
        after that, {r} looked for a(n) {adj} {gift} for {p} {kin}.
        weil {r} Hunger [hatte|hatte|hatten], [aß|aß|aßen] {r} {dish} mit {side}.
        because {r} [was|was|were] hungry, {r} ate {dish} with {side}.""",
        """am Ende [bezahlte|bezahlte|bezahlten] {r} {#11-60} Euro und [fuhr|fuhr|fuhren] nach Hause.
        in the end, {r} paid {#} euros and went home.
        zu Hause [machte|machte|machten] {r} eine Suppe und [rief|rief|riefen] {kin:acc.poss} an.
        at home, {r} made a soup and called {p} {kin}.""",
    ),
    "office": (
        """{s} [arbeite|arbeitet|arbeiten] seit {zahl} Jahren bei einer Firma in {city}.
        {s} [have|has] been working for a company in {city} for {zahl} years.
        am {day} [habe|hat|haben] {s} schon um {clock} im Büro angefangen.
        on {day}, {s} already started at the office at {clock}.
        am {day} [musste|musste|mussten] {s} früher ins Büro fahren als sonst.
        on {day}, {s} had to go to the office earlier than usual.""",
        """zuerst [habe|hat|haben] {r} {doc:acc.der} gelesen und {zahl} E-Mails beantwortet.
        first, {r} read the {doc} and answered {zahl} emails.
        die Besprechung begann um {clock} und dauerte {#20-90} Minuten.
        the meeting began at {clock} and lasted {#} minutes.
        {boss} sagte, dass {doc:nom.der} bis {day} fertig sein muss.
        {boss} said that the {doc} must be ready by {day}.
        dann ging {machine:nom.der} kaputt, und {boss} rief den Techniker an.
        then the {machine} broke down, and {boss} called the technician.
        in der Pause [habe|hat|haben] {r} mit {friend:dat.poss} {drink} getrunken.
        during the break, {r} drank {drink} with {p} {friend}.
        {s} [habe|hat|haben] {doc:acc.der} an eine Kundin in {city} geschickt.
        {s} sent the {doc} to a customer in {city}.""",
        """um {late} [habe|hat|haben] {r} den Computer ausgeschaltet und [bin|ist|sind] nach Hause gegangen.
        at {late}, {r} turned off the computer and went home.
        am Abend [war|war|waren] {r} müde, aber mit der Arbeit zufrieden.
        in the evening, {r} [was|was|were] tired but satisfied with the work.""",
    ),
    "school": (
        """{s} [besuche|besucht|besuchen] eine Schule in {city} und [lerne|lernt|lernen] dort {lang}.
        {s} [attend|attends] a school in {city} and [learn|learns] {lang} there.
        jeden Morgen [fahre|fährt|fahren] {s} mit {veh:dat.der} zur Schule.
        every morning, {s} [go|goes] to school by {veh}.""",
        """der Unterricht beginnt um {clock} und endet um {late}.
        lessons begin at {clock} and end at {late}.
        am {day} [habe|hat|haben] {r} zuerst {subj} und danach {subj2}.
        on {day}, {r} [have|has] {subj} first and then {subj2}.
        {p} Lieblingsfach ist {subj}, aber {subj2} [finde|findet|finden] {r} schwierig.
        {p} favourite subject is {subj}, but {r} [find|finds] {subj2} difficult.
        in der Klasse sind {#15-32} Kinder, und {zahl} von ihnen sprechen {lang}.
        there are {#} children in the class, and {zahl} of them speak {lang}.
        weil morgen eine Prüfung ist, [muss|muss|müssen] {r} noch {subj} lernen.
        because there is an exam tomorrow, {r} still [have|has] to study {subj}.
        in der Tasche [habe|hat|haben] {r} {sup:acc.ein.adj} und {sup2:acc.ein}.
        in the bag, {r} [have|has] a(n) {adj} {sup} and a(n) {sup2}.
        in der Pause [esse|isst|essen] {r} {food} und [trinke|trinkt|trinken] {drink}.
        during the break, {r} [eat|eats] {food} and [drink|drinks] {drink}.""",
        """nach der Schule [will|will|wollen] {r} mit {friend:dat.poss} {act}.
        after school, {r} [want|wants] to {act} with {p} {friend}.
        am {day} [habe|hat|haben] {r} frei und [kann|kann|können] endlich {act}.
        on {day}, {r} [have|has] the day off and can finally {act}.""",
    ),
    "health": (
        """am {day} [wachte|wachte|wachten] {s} mit {pain} auf.
        on {day}, {s} woke up with {pain}.
        letzte Woche [war|war|waren] {s} krank und [musste|musste|mussten] {dur} im Bett bleiben.
        last week, {s} [was|was|were] ill and had to stay in bed for {dur}.""",
        """der Arzt untersuchte [mich|ihn|sie|uns] und verschrieb {med}.
        the doctor examined [me|him|her|us] and prescribed {med}.
        außerdem [hatte|hatte|hatten] {r} {pain} und [konnte|konnte|konnten] nicht schlafen.
        in addition, {r} had {pain} and could not sleep.
        {s} [sollte|sollte|sollten] {zahl} Tabletten am Tag nehmen und viel {drink} trinken.
        {s} [was|was|were] supposed to take {zahl} tablets a day and drink a lot of {drink}.
        {kin:nom.poss} kochte [mir|ihm|ihr|uns] eine Suppe und brachte {fruit}.
        {p} {kin} cooked [me|him|her|us] a soup and brought {fruit}.
        in der Nacht stieg das Fieber auf {#38-41} Grad.
        during the night, the fever rose to {#} degrees.
        in der Apotheke kaufte {kin:nom.poss} {med} und bezahlte {#5-40} Euro.
        at the pharmacy, {p} {kin} bought {med} and paid {#} euros.
        {s} [durfte|durfte|durften] {dur} lang nicht {act}.
        {s} [was|was|were] not allowed to {act} for {dur}.""",
        """nach {zahl} Tagen ging es [mir|ihm|ihr|uns] wieder besser.
        after {zahl} days, {r} felt better again.
        seit {day} [bin|ist|sind] {r} wieder gesund und [kann|kann|können] {act}.
        since {day}, {r} [have|has] been healthy again and can {act}.""",
    ),
    "evening": (
        """heute Abend [will|will|wollen] {s} mit {friend:dat.poss} {act}.
        tonight, {s} [want|wants] to {act} with {p} {friend}.
        am {day} [gehe|geht|gehen] {s} mit {kin:dat.poss} ins {venue}.
        on {day}, {s} [am|is|are] going to the {venue} with {p} {kin}.""",
        """{event:nom.der} beginnt um {late} und dauert {#60-150} Minuten.
        the {event} begins at {late} and lasts {#} minutes.
        die Karten kosten {#8-60} Euro, aber {friend:nom.poss} hat sie schon bezahlt.
        the tickets cost {#} euros, but {p} {friend} has already paid for them.
        {s} [treffe|trifft|treffen] {friend:acc.poss} um {late} vor {place:dat.der}.
        {s} [am|is|are] meeting {p} {friend} at {late} in front of the {place}.
        vorher [möchte|möchte|möchten] {r} im Restaurant {dish} mit {side} essen.
        before that, {r} would like to eat {dish} with {side} at the restaurant.
        {s} [nehme|nimmt|nehmen] {cloth:acc.ein.adj} mit, weil es abends {wadj} ist.
        {s} [am|is|are] taking a(n) {adj} {cloth} along because it is {wadj} in the evening.
        wenn {friend:nom.poss} keine Zeit hat, [möchte|möchte|möchten] {r} lieber {act}.
        if {p} {friend} has no time, {r} would rather {act}.""",
        """danach [fahre|fährt|fahren] {r} mit {veh:dat.der} nach Hause, weil es schon spät ist.
        after that, {r} [am|is|are] going home by {veh} because it is already late.
        vor Mitternacht [muss|muss|müssen] {r} wieder zu Hause sein.
        {r} [have|has] to be back home before midnight.""",
    ),
    "house": (
        """im {month} [bin|ist|sind] {s} in eine Wohnung in {city} umgezogen.
        in {month}, {s} moved to a flat in {city}.
        {s} [habe|hat|haben] im {month} ein {adj}es Haus in {city} gekauft.
        {s} bought a(n) {adj} house in {city} in {month}.""",
        """dort gibt es {zahl} Zimmer und {furn:acc.ein.adj} in der Küche.
        there are {zahl} rooms there and a(n) {adj} {furn} in the kitchen.
        {room} [habe|hat|haben] {r} {furn:acc.ein.adj} hingestellt.
        {r} put a(n) {adj} {furn} {room}.
        {kin:nom.poss} hat die Wände {color} gestrichen, weil [mir|ihm|ihr|uns] die Farbe gefällt.
        {p} {kin} painted the walls {color} because {r} [like|likes] the colour.
        {furn:nom.der} hat {#60-450} Euro gekostet, war aber schon kaputt.
        the {furn} cost {#} euros but was already broken.
        die Nachbarn sind {nice} und haben {zahl} {pets}.
        the neighbours are {nice} and have {zahl} {pets}.
        bevor {r} eingezogen [bin|ist|sind], hat {friend:nom.poss} {machine:acc.der} repariert.
        before {r} moved in, {p} {friend} repaired the {machine}.""",
        """jetzt [bin|ist|sind] {r} sehr glücklich und [will|will|wollen] dort lange bleiben.
        now {r} [am|is|are] very happy and [want|wants] to stay there for a long time.
        am {day} [habe|hat|haben] {r} {zahl} Freunde zum Essen eingeladen.
        on {day}, {r} invited {zahl} friends for dinner.""",
    ),
    "sport": (
        """{s} [spiele|spielt|spielen] seit {zahl} Jahren {sport} in einem Verein.
        {s} [have|has] been playing {sport} in a club for {zahl} years.
        jeden {day} [trainiere|trainiert|trainieren] {s} mit {friend:dat.poss} in {city}.
        every {day}, {s} [train|trains] with {p} {friend} in {city}.""",
        """das Training beginnt um {late} und findet {loc} statt.
        training begins at {late} and takes place {loc}.
        am {day} [laufe|läuft|laufen] {r} {#3-15} Kilometer durch {nature:acc.der}.
        on {day}, {r} [run|runs] {#} kilometres through the {nature}.
        das letzte Spiel [habe|hat|haben] {r} mit {#2-20} Punkten Vorsprung gewonnen.
        {s} won the last game by {#} points.
        die Trainerin ist {nice} und war früher Lehrerin in {city}.
        the coach is {nice} and used to be a teacher in {city}.
        wenn es {wadj} ist, [spiele|spielt|spielen] {r} lieber {sport}.
        when it is {wadj}, {r} [prefer|prefers] to play {sport}.
        für den Verein [brauche|braucht|brauchen] {r} noch {gear:acc.ein.adj} und {gear2:acc.ein}.
        for the club, {r} still [need|needs] a(n) {adj} {gear} and a(n) {gear2}.
        {kin:nom.poss} sieht oft zu und bringt {drink} mit.
        {p} {kin} often watches and brings {drink}.""",
        """im {month} [möchte|möchte|möchten] {r} an einem Turnier in {city} teilnehmen.
        in {month}, {r} would like to take part in a tournament in {city}.
        nach dem Training [bin|ist|sind] {r} müde und [will|will|wollen] nur noch {act}.
        after training, {r} [am|is|are] tired and just [want|wants] to {act}.""",
    ),
}
