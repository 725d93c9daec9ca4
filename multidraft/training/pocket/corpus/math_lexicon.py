"""Names, things and instructions of the word problems."""

from __future__ import annotations


def _table(text: str) -> dict[str, tuple[str, ...]]:
    """Read paragraphs of ``slot: choice, choice, ...``."""
    rows = (paragraph.partition(":") for paragraph in text.strip().split("\n\n"))
    return {slot: tuple(" ".join(word.split()) for word in words.split(",")) for slot, _, words in rows}


NAMES = _table("""
female: Mia, Emma, Lena, Clara, Sofia, Anna, Laura, Nora, Ida, Greta, Paula, Julia, Marie, Lucy, Alice,
Grace, Ruby, Chloe, Ella, Zoe, Hannah, Sarah, Leah, Maya, Nina, Rosa, Olga, Vera, Tara, Amina, Fatima,
Leila, Priya, Anita, Mei, Yuki, Sakura, Elena, Carmen, Lucia, Ines, Helena, Martha, Frieda, Johanna, Katrin,
Sabine, Monika, Petra, Ulla

male: Ben, Tom, Paul, Leon, Max, Felix, Jonas, Lukas, Noah, Finn, Oscar, Emil, Anton, Karl, Theo, Jack,
Henry, Sam, Adam, Ryan, Luke, Owen, Eric, Hugo, Victor, Omar, Ali, Hassan, Karim, Ravi, Arjun, Kenji, Hiro,
Chen, Diego, Pablo, Carlos, Marco, Luca, Pietro, Stefan, Martin, Jan, Peter, Klaus, Dieter, Uwe, Rolf,
Georg, Walter
""")
"""First names; a story's other people have the other gender, so that he and she are never unclear."""

LEXICON = _table("""
goods: notebooks, pens, shirts, candles, mugs, puzzles, scarves, posters, cushions, towels, brushes, plates,
caps, belts, toy cars, bracelets, vases, baskets

thing: lamp, jacket, backpack, kettle, radio, blanket, chair, mirror, clock, football, helmet, suitcase

dear: bicycle, guitar, camera, tent, skateboard, telescope, tablet, keyboard, drum set, sewing machine

items: shells, marbles, chestnuts, stickers, stamps, coins, cards, pebbles, feathers, acorns, buttons,
badges, beads, pine cones

fruit: apples, pears, plums, peaches, oranges, lemons, mangoes, melons, kiwis, apricots, figs, limes

crop: potatoes, carrots, onions, cabbage, beans, pumpkins, corn, beets, turnips, tomatoes

baked: rolls, muffins, bagels, cookies, pretzels, croissants, cupcakes, buns, tarts, scones

ware: flour, sugar, rice, oats, butter, cheese, nuts, lentils, pasta, yogurt

dish: soup, cake, stew, curry, salad, gratin, pudding, pie, casserole, pizza

place: the coast, the lake, the mountains, the city, the valley, the border, the harbour, the castle

vehicle: train, bus, truck, van, car, coach, motorbike, taxi

show: zoo, museum, circus, cinema, theatre, concert, fair, aquarium, castle tour, puppet show

reading: novel, comic, biography, travel guide, history book, detective story, fairy tale, diary

job: cafe, bakery, garage, bookshop, garden centre, hotel, workshop, supermarket, office, kitchen

hall: school hall, theatre, tent, church, gym, library hall, cinema, lecture room

drinker: horses, cows, goats, sheep, donkeys, camels, ponies, pigs

tank: rain barrel, water tank, fish pond, garden pool, cistern, boiler

game: quiz, card game, board game, spelling contest, dart match, computer game, treasure hunt
""")
"""The words for each slot of a story; one word per slot and story."""

INSTRUCTIONS = (
    "Solve this word problem step by step.",
    "Please show every step of the calculation.",
    "Work it out step by step and give the final number.",
    "Can you help me solve this? I need all the steps.",
    "List what is known, then calculate step by step.",
    "Explain the solution with one calculation per step.",
    "Here is a math exercise; write down each step and the answer.",
    "Calculate the answer and show how you got there.",
    "I am stuck on this homework question, please work through it.",
    "Give a worked solution that ends with the answer.",
    "Do the arithmetic one step at a time.",
    "What is the result? Show the working.",
)
