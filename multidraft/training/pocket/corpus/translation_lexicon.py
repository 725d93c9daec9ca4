"""The bilingual lexicon of the translation family, and the notation of its sentence patterns.

Pattern notation: ``{s}`` is the subject (named in the first sentence, a pronoun later), ``{r}`` always the
pronoun, ``{p}`` the possessive; ``{kin:dat.poss}`` a noun with case and determiner, a third part names its
adjective slot; ``{#3-9}`` a number; ``[a|b|c]`` the forms for I, he or she, we. Four forms split he and
she; two (English) are I or we, he or she. ``a(n)`` becomes the article that fits the next word.
"""

from __future__ import annotations

MALE_NAMES = (
    "Jonas Felix Paul Lukas Max Emil Anton Oskar Karl Moritz Tim Jan Peter Simon David Erik Hannes Georg Otto Leo"
).split()
FEMALE_NAMES = (
    "Lena Anna Clara Sophie Marie Emma Julia Nina Paula Greta Ida Laura Katrin Petra Eva Lisa Frieda Maja Ella Rosa"
).split()
MALE_RELATIVES = "mein Bruder=my brother;mein Onkel=my uncle;mein Opa=my grandpa;mein Nachbar=my neighbour"
FEMALE_RELATIVES = "meine Schwester=my sister;meine Tante=my aunt;meine Oma=my grandma;meine Nachbarin=my neighbour"

PHRASES: dict[str, str] = {
    "day": "Montag=Monday;Dienstag=Tuesday;Mittwoch=Wednesday;Donnerstag=Thursday;Freitag=Friday;"
    "Samstag=Saturday;Sonntag=Sunday",
    "month": "Januar=January;Februar=February;März=March;April=April;Mai=May;Juni=June;Juli=July;"
    "August=August;September=September;Oktober=October;November=November;Dezember=December",
    "clock": "sieben Uhr=seven o'clock;halb acht=half past seven;acht Uhr=eight o'clock;"
    "halb neun=half past eight;Viertel nach neun=a quarter past nine;Viertel vor zehn=a quarter to ten;"
    "zehn Uhr=ten o'clock;halb elf=half past ten;Viertel vor elf=a quarter to eleven;elf Uhr=eleven o'clock",
    "late": "ein Uhr=one o'clock;halb zwei=half past one;Viertel nach drei=a quarter past three;"
    "vier Uhr=four o'clock;halb fünf=half past four;fünf Uhr=five o'clock;"
    "Viertel vor sechs=a quarter to six;sechs Uhr=six o'clock;halb sieben=half past six;"
    "Viertel nach vier=a quarter past four",
    "city": "Hamburg=Hamburg;München=Munich;Köln=Cologne;Wien=Vienna;Zürich=Zurich;Nürnberg=Nuremberg;"
    "Berlin=Berlin;Dresden=Dresden;Leipzig=Leipzig;Bremen=Bremen;Prag=Prague;Rom=Rome;Paris=Paris;"
    "Brüssel=Brussels;Mailand=Milan;Kopenhagen=Copenhagen;Genf=Geneva;Basel=Basel;Lissabon=Lisbon",
    "zahl": "zwei=two;drei=three;vier=four;fünf=five;sechs=six;sieben=seven;acht=eight;neun=nine;zehn=ten",
    "dur": "zwei Tage=two days;drei Tage=three days;vier Tage=four days;fünf Tage=five days;"
    "sechs Tage=six days;eine Woche=a week",
    "loc": "im Zentrum=in the centre;am Fluss=by the river;am See=by the lake;"
    "neben dem Bahnhof=next to the station;hinter der Kirche=behind the church;"
    "gegenüber dem Museum=opposite the museum;in der Altstadt=in the old town;auf einem Hügel=on a hill;"
    "am Stadtrand=on the edge of town",
    "wsub": "es stark regnet=it is raining heavily;es draußen schneit=it is snowing outside;"
    "der Wind sehr kalt ist=the wind is very cold;die Straßen glatt sind=the streets are icy;"
    "ein Sturm kommt=a storm is coming;die Wege so nass sind=the paths are so wet;"
    "der Nebel so dicht ist=the fog is so thick",
    "wadj": "sonnig=sunny;bewölkt=cloudy;windig=windy;neblig=foggy;warm=warm;kalt=cold;heiß=hot;kühl=cool;"
    "nass=wet;trocken=dry;stürmisch=stormy;mild=mild",
    "wnoun": "Schnee=snow;Regen=rain;Nebel=fog;Frost=frost;Hagel=hail;starken Wind=a strong wind;"
    "viel Sonne=a lot of sun",
    "dir": "Norden=north;Süden=south;Westen=west;Osten=east;Nordwesten=northwest;Südosten=southeast",
    "act": "spazieren gehen=go for a walk;im See schwimmen=swim in the lake;"
    "im Garten arbeiten=work in the garden;ein Buch lesen=read a book;Karten spielen=play cards;"
    "einen Film sehen=watch a film;Musik hören=listen to music;einen Kuchen backen=bake a cake;"
    "Briefe schreiben=write letters;Gitarre spielen=play the guitar;ins Kino gehen=go to the cinema;"
    "tanzen gehen=go dancing;eine Suppe kochen=cook a soup;Fotos machen=take photos;"
    "im Wald wandern=hike in the forest;Tee trinken=drink tea;Fahrrad fahren=ride a bike;"
    "ein Bild malen=paint a picture",
    "pets": "Katzen=cats;Hunde=dogs;Vögel=birds;Kaninchen=rabbits;Pferde=horses;Hühner=hens;Enten=ducks;Ziegen=goats",
    "work": "in einer Bank=in a bank;in einer Schule=at a school;im Krankenhaus=at the hospital;"
    "auf einem Bauernhof=on a farm;bei der Post=at the post office;in einer Bäckerei=in a bakery;"
    "in einer Fabrik=in a factory;am Flughafen=at the airport;im Rathaus=at the town hall",
    "cake": "Apfelkuchen=apple cake;Schokoladenkuchen=chocolate cake;Käsekuchen=cheesecake;Eis=ice cream;"
    "Obstsalat=fruit salad;Zitronenkuchen=lemon cake",
    "drink": "Kaffee=coffee;Tee=tea;Saft=juice;Kakao=cocoa;Limonade=lemonade;Milch=milk;Wasser=water",
    "food": "Käse=cheese;Brot=bread;Fisch=fish;Schinken=ham;Honig=honey;Butter=butter;Wurst=sausage;"
    "Reis=rice;Senf=mustard;Marmelade=jam;Salat=salad;Huhn=chicken",
    "dish": "Fisch=fish;Huhn=chicken;Wurst=sausage;Schinken=ham;Käse=cheese;Fleisch=meat;Suppe=soup;Eier=eggs",
    "side": "Brot=bread;Reis=rice;Salat=salad;Gemüse=vegetables;Nudeln=pasta;Kartoffeln=potatoes;Bohnen=beans",
    "fruit": "Äpfel=apples;Birnen=pears;Kartoffeln=potatoes;Tomaten=tomatoes;Zwiebeln=onions;"
    "Karotten=carrots;Gurken=cucumbers;Pflaumen=plums;Kirschen=cherries;Erdbeeren=strawberries;"
    "Bananen=bananas;Zitronen=lemons;Orangen=oranges;Trauben=grapes;Pilze=mushrooms;Bohnen=beans",
    "boss": "der Chef=the boss;die Chefin=the boss;Frau Weber=Ms Weber;Herr Klein=Mr Klein;"
    "Frau Sommer=Ms Sommer;Herr Vogel=Mr Vogel;Frau Brandt=Ms Brandt;Herr Fuchs=Mr Fuchs",
    "lang": "Englisch=English;Französisch=French;Spanisch=Spanish;Italienisch=Italian;Russisch=Russian;"
    "Japanisch=Japanese;Latein=Latin;Polnisch=Polish;Dänisch=Danish",
    "subj": "Mathematik=maths;Geschichte=history;Physik=physics;Chemie=chemistry;Biologie=biology;"
    "Musik=music;Kunst=art;Erdkunde=geography;Informatik=computer science;Deutsch=German",
    "pain": "Kopfschmerzen=a headache;Halsschmerzen=a sore throat;Bauchschmerzen=a stomach ache;"
    "Zahnschmerzen=a toothache;Rückenschmerzen=back pain;Ohrenschmerzen=an earache;Husten=a cough;"
    "Schnupfen=a cold;Fieber=a fever",
    "med": "Tabletten=tablets;Tropfen=drops;eine Salbe=an ointment;einen Hustensaft=a cough syrup;"
    "Vitamine=vitamins;ein Spray=a spray;einen Verband=a bandage",
    "venue": "Kino=cinema;Theater=theatre;Restaurant=restaurant;Museum=museum;Stadion=stadium;"
    "Schwimmbad=swimming pool;Konzert=concert",
    "room": "in der Küche=in the kitchen;im Wohnzimmer=in the living room;im Schlafzimmer=in the bedroom;"
    "im Bad=in the bathroom;im Keller=in the basement;im Flur=in the hall;auf dem Balkon=on the balcony;"
    "im Esszimmer=in the dining room;in der Garage=in the garage",
    "color": "weiß=white;gelb=yellow;grün=green;blau=blue;grau=grey;rot=red;braun=brown",
    "nice": "nett=nice;freundlich=friendly;ruhig=quiet;jung=young;streng=strict;laut=loud;lustig=funny;"
    "hilfsbereit=helpful",
    "sport": "Fußball=football;Tennis=tennis;Handball=handball;Basketball=basketball;Volleyball=volleyball;"
    "Hockey=hockey;Schach=chess;Golf=golf;Tischtennis=table tennis",
    "adj": "neu=new;alt=old;groß=big;klein=small;schön=beautiful;billig=cheap;rot=red;blau=blue;grün=green;"
    "schwarz=black;weiß=white;gelb=yellow;braun=brown;grau=grey;bunt=colourful;modern=modern;hübsch=pretty",
}

NOUNS: dict[str, str] = {
    "veh": "m Zug=train;m Bus=bus;n Auto=car;n Fahrrad=bike;f Straßenbahn=tram;n Taxi=taxi;f Fähre=ferry;"
    "f U-Bahn=underground;n Motorrad=motorbike",
    "kin": "m Bruder=brother;f Schwester=sister;f Tante=aunt;m Onkel=uncle;f Oma=grandma;m Opa=grandpa;"
    "f Mutter=mother;m Vater=father;f Cousine=cousin;f Nichte=niece;m Sohn=son;f Tochter=daughter",
    "sib": "m Bruder=brother;f Schwester=sister;m Schwager=brother-in-law;f Schwägerin=sister-in-law;"
    "f Cousine=cousin;f Tante=aunt;m Onkel=uncle",
    "friend": "m Freund=friend;f Freundin=friend;f Nachbarin=neighbour;f Kollegin=colleague;"
    "m Lehrer=teacher;f Lehrerin=teacher;m Mitbewohner=flatmate;f Mitbewohnerin=flatmate",
    "sight": "m Dom=cathedral;n Schloss=castle;f Burg=fortress;m Hafen=harbour;n Museum=museum;m Zoo=zoo;"
    "m Turm=tower;f Brücke=bridge;n Rathaus=town hall;f Altstadt=old town",
    "gear": "m Koffer=suitcase;m Rucksack=backpack;m Hut=hat;f Kamera=camera;f Tasche=bag;n Zelt=tent;"
    "f Decke=blanket;n Hemd=shirt;n Handtuch=towel",
    "cloth": "m Mantel=coat;f Jacke=jacket;m Schal=scarf;f Mütze=cap;m Pullover=sweater;m Regenschirm=umbrella",
    "gift": "f Uhr=watch;f Vase=vase;n Buch=book;n Bild=picture;f Tasse=cup;m Ball=ball;n Spiel=game;"
    "f Puppe=doll;f Kerze=candle",
    "place": "m Bahnhof=station;f Kirche=church;n Rathaus=town hall;f Post=post office;f Bank=bank;"
    "f Schule=school;n Museum=museum;f Bibliothek=library;n Krankenhaus=hospital;m Brunnen=fountain;"
    "f Brücke=bridge;f Apotheke=pharmacy;m Supermarkt=supermarket;f Bäckerei=bakery",
    "doc": "m Bericht=report;m Vertrag=contract;m Brief=letter;f Rechnung=invoice;m Plan=plan;f Liste=list;"
    "f Einladung=invitation;m Antrag=application;n Angebot=offer;f Bestellung=order",
    "machine": "m Drucker=printer;m Computer=computer;m Aufzug=lift;f Heizung=heating;"
    "f Kaffeemaschine=coffee machine;n Telefon=phone;m Bildschirm=screen;m Kühlschrank=fridge",
    "sup": "m Stift=pen;m Bleistift=pencil;n Heft=notebook;n Lineal=ruler;m Apfel=apple;"
    "n Wörterbuch=dictionary;m Taschenrechner=calculator;f Flasche=bottle;m Radiergummi=eraser",
    "event": "m Film=film;n Konzert=concert;n Stück=play;f Oper=opera;n Spiel=game;f Lesung=reading;"
    "f Feier=party;m Tanzkurs=dance class;m Vortrag=talk",
    "furn": "m Tisch=table;m Stuhl=chair;n Sofa=sofa;n Bett=bed;m Schrank=cupboard;f Lampe=lamp;"
    "n Regal=shelf;m Spiegel=mirror;m Teppich=carpet;m Sessel=armchair;m Schreibtisch=desk",
    "nature": "m Wald=forest;m Park=park;f Stadt=town;n Dorf=village;n Tal=valley;f Heide=heath",
}
