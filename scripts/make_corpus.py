#!/usr/bin/env python3
"""Writes data/dummy.txt: a corpus of small invented children's stories.

A model can learn the corpus in a minute. Its structure has a long range: names, pronouns, things and places stay
the same through a story, and every answer fits its question. The same size and seed give the same bytes under
every version of Python.

A story is one plot filled in with one world (who, where, which thing, ...). Plots are lists of
steps in a small template language:

    {slot}    a word of the world; {hero.his} and {place.spot} are attributes of a word
    <frame>   one of the sentences in FRAMES
    [a|b|c]   one of the alternatives, which may be empty and may nest

The last section of this file expands the templates, and corrects "a" to "an" and capital letters.
"""

import argparse
import re
from pathlib import Path

DEFAULT_OUTPUT = Path(__file__).resolve().parent.parent / "data" / "dummy.txt"
DEFAULT_SIZE = 300_000
DEFAULT_SEED = 1


class SplitMix64:
    """Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (OOPSLA 2014)."""

    MASK = (1 << 64) - 1

    def __init__(self, seed):
        self.state = seed & self.MASK

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & self.MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & self.MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & self.MASK
        return z ^ (z >> 31)

    def below(self, n):
        """An integer in [0, n)."""
        return (self.next() * n) >> 64

    def choice(self, items):
        return items[self.below(len(items))]

    def shuffled(self, items):
        items = list(items)
        for i in range(len(items) - 1, 0, -1):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]
        return items


# ---- words ---------------------------------------------------------------------------------------


class Word(str):
    """A string with attributes, for {thing} and {thing.part} in a template."""

    def __new__(cls, text, **attributes):
        word = super().__new__(cls, text)
        word.__dict__.update(attributes)
        return word


# The hero and the friend of a story come from different groups, so that each pronoun is unambiguous.
GROUPS = (
    (("Mia", "Lily", "Rosa", "Ella", "Nora", "Ruby", "Anna", "Daisy"),
     {"he": "she", "him": "her", "his": "her"}),
    (("Tom", "Ben", "Max", "Oscar", "Finn", "Leo", "Hugo", "Sam"),
     {"he": "he", "him": "him", "his": "his"}),
)

# Things are lost, found and built at the two landmarks of a place.
PLACES = (
    Word("forest", at="in the forest", landmarks=("old oak", "fallen log")),
    Word("pond", at="at the pond", landmarks=("tall willow", "round rock")),
    Word("meadow", at="in the meadow", landmarks=("stone wall", "berry bush")),
    Word("beach", at="on the beach", landmarks=("old boat", "white rock")),
    Word("hill", at="on the hill", landmarks=("big pine", "stone wall")),
    Word("farm", at="at the farm", landmarks=("red barn", "hay cart")),
    Word("river", at="by the river", landmarks=("old mill", "tall willow")),
)

THINGS = (
    Word("kite", part="tail", does="danced in the wind"),
    Word("wagon", part="wheel", does="rattled along the path"),
    Word("drum", part="strap", does="went boom, boom, boom"),
    Word("puppet", part="arm", does="waved at everyone"),
    Word("umbrella", part="handle", does="opened like a flower"),
    Word("bell", part="handle", does="rang loud and clear"),
)

FOODS = (
    Word("apple pie", fruit="apples"),
    Word("plum cake", fruit="plums"),
    Word("berry pie", fruit="berries"),
    Word("carrot cake", fruit="carrots"),
    Word("pear cake", fruit="pears"),
    Word("cherry pie", fruit="cherries"),
)

PROJECTS = (
    Word("hut", needs="sticks", use="sat inside the hut"),
    Word("bench", needs="boards", use="sat on the bench"),
    Word("swing", needs="ropes", use="sat on the swing"),
)

SKILLS = (
    Word("dance", past="danced", ing="dancing"),
    Word("juggle", past="juggled", ing="juggling"),
    Word("sing", past="sang", ing="singing"),
)

NIGHT_ACTS = (
    Word("count the stars", past="counted the stars", ing="counting the stars"),
    Word("look at the moon", past="looked at the moon", ing="looking at the moon"),
    Word("listen to the wind", past="listened to the wind", ing="listening to the wind"),
)

WORDS = {
    "place": PLACES,
    "thing": THINGS,
    "food": FOODS,
    "project": PROJECTS,
    "skill": SKILLS,
    "night_act": NIGHT_ACTS,
    "weather": ("sunny", "windy", "cloudy", "warm", "cool"),
    "time": ("morning", "afternoon", "day"),
    "color": ("red", "blue", "green", "yellow", "white", "orange"),
    "number": ("two", "three", "four", "five", "six"),
    "crop": ("carrots", "beans", "roses"),
    "tale": ("a dragon", "a giant", "an island", "the sea"),
    "tool": ("glue", "wire", "tape"),
    "paw": ("foot", "leg", "paw"),
    "size": ("little", "small", "young"),
    "night": ("dark", "quiet", "warm", "cool"),
}
KINDS = ("rabbit", "fox", "bear", "mouse", "squirrel", "otter", "badger", "cat", "mole")


# ---- frames: sentences that many plots share -----------------------------------------------------

FRAMES = {
    "day": (
        "One {weather} {time}, {hero} the {hero.kind} [walked|went|ran] to the {place}.",
        "It was a {weather} {time}, and {hero} the {hero.kind} was playing {place.at}.",
        "On a {weather} {time}, a {size} {hero.kind} called {hero} went to the {place}.",
        "The {time} was {weather}, and {hero} the {hero.kind} was {place.at}.",
        "Once, on a {weather} {time}, {hero} the {hero.kind} was {place.at}.",
        "{hero} the {hero.kind} [walked|went|ran] to the {place}, for it was a {weather} {time}.",
    ),
    "home": (
        "{hero} the {hero.kind} lived in a [little|small] house near the {place}.",
        "There was once a {size} {hero.kind} called {hero} who lived near the {place}.",
        "Near the {place}, in a [little|small] house, lived a {hero.kind} called {hero}.",
        "Not far from the {place} lived {hero}, a {size} {hero.kind}.",
    ),
    "night": (
        "One {night} night, {hero} the {hero.kind} could not sleep.",
        "The night was {night}, and {hero} the {hero.kind} could not sleep.",
        "It was a {night} night, and a {size} {hero.kind} called {hero} was still awake.",
        "There was once a {size} {hero.kind} called {hero} who could not sleep.",
    ),
    "meet": (
        "Soon {friend} the {friend.kind} came along.",
        "Just then, {friend} the {friend.kind} came by.",
        "After a while, {friend} the {friend.kind} came down the path.",
        "Then {hero} met {hero.his} friend {friend}, a {size} {friend.kind}.",
    ),
    "sad": (
        "{hero} was very sad.",
        "{hero} sat down and cried.",
        "{hero} did not know what to do.",
    ),
    "thanks": (
        '"Thank you, {friend}," said {hero}.',
        '"You are a good friend, {friend}," said {hero}.',
        '"Thank you for your help, {friend}," said {hero}.',
    ),
    "end": (
        "{hero} and {friend} walked home [side by side|together].",
        "They walked home together and sang [a song|all the way].",
        "From that day on, {hero} and {friend} were [good|best] friends.",
        "That night, {hero} the {hero.kind} [slept very well|fell asleep with a smile].",
        "{hero} the {hero.kind} and {friend} the {friend.kind} were very happy.",
        "They were both very happy.",
        "It was the best day {hero} had ever had.",
        "{hero} never forgot that day.",
    ),
}


# ---- plots ---------------------------------------------------------------------------------------

PLOTS = {
    "lost and found": (
        "<day>",
        "{hero.he} had a {color} {thing}, and {hero.he} took it everywhere.",
        "[But when|When] {hero.he} stopped to rest, the {thing} was gone.",
        "[{hero} looked behind the {place.other}, but the {thing} was not there.|<sad>]",
        "<meet>",
        '"[Why are you sad|What is wrong], {hero}?" asked {friend}. '
        '"I lost my {color} {thing}," said {hero}.',
        '"I saw a {color} {thing} behind the {place.spot}," said {friend}.',
        "[{hero}|They] ran to the {place.spot}, and there [it was|was the {color} {thing}].",
        "[<thanks>|Soon the {thing} {thing.does} again.|]",
        "[<end>|]",
    ),
    "a heavy basket": (
        "<home>",
        "Next door lived {friend}, an old {friend.kind}[ with a stick| who was good to everyone].",
        "One {weather} {time}, {friend} came by with a [big|heavy] basket of {food.fruit}.",
        '"That basket is too heavy for you," said {hero}. "May I carry it?"',
        '"Yes, please," said {friend}. "I want to sell the {food.fruit} at the market."',
        "{hero} carried the {food.fruit}, and {friend} told {hero.him} a story about {tale}.",
        '["I like your story," said {hero}. |]At the market, {friend} sold the {food.fruit} '
        "and gave {hero} the [last|best] ones.",
        "[All the way home, {hero} thought about {tale}.|That night, {hero} slept very well.|<end>]",
    ),
    "building": (
        "<day>",
        '"I want to build a {project} beside the {place.spot}," said {hero}.',
        "{hero.he} found some {project.needs}, but the work was [hard|very hard].",
        "[The {project} fell down again and again.|]",
        "<meet>",
        '"What are you building, {hero}?" asked {friend}. '
        '"A {project}," said {hero}, "but it fell down {number} times."',
        '"[I can help you|Let us build it together]," said {friend}[. '
        '"You hold the {project.needs}, and I will do the rest."|.]',
        "They worked [all day|until it was dark], and at last the {project} was ready.",
        "{hero} and {friend} {project.use} and ate {food.fruit}.",
        "[<thanks>|<end>|]",
    ),
    "a storm": (
        "<day>",
        "Then dark clouds came over the {place}, and the wind began to blow.",
        "[It rained and rained.|It rained very hard.|]",
        "{hero} ran behind the {place.spot}, "
        "but [soon {hero.he} was wet and cold|{hero.he} was still afraid].",
        '"Come into my house, {hero}!" called {friend} the {friend.kind}. "It is warm and dry."',
        '"Are you afraid of the storm?" asked {friend}. "[A little|Yes, I am afraid]," said {hero}.',
        '"Then I will tell you a story," said {friend}, and {friend.he} told {hero.him} about {tale}.',
        "When the story was over, the storm was over too.",
        "[The sun came out above the {place}.|<thanks>|]",
        "[That night, {hero} could only think about {tale}.|<end>|]",
    ),
    "a new friend": (
        "<home>",
        "{hero.he} had a {color} {thing}, but {hero.he} had no one to play with.",
        "One {weather} {time}, {hero.he} saw a new {friend.kind} {place.at}.",
        "The {friend.kind} was shy and stood behind the {place.spot}.",
        '"What is your name?" asked {hero}. "My name is {friend}," said the {friend.kind}.',
        '"Do you want to play with my {thing}, {friend}?" asked {hero}. '
        '"[Yes, please|Of course]," said {friend}.',
        "The {color} {thing} {thing.does}, and they both [laughed|laughed and laughed].",
        "[{friend} was not shy any more.|{hero} had a friend to play with at last.]",
        "[<end>|]",
    ),
    "baking": (
        "<home>",
        "One {weather} {time}, {hero.he} wanted to bake a {food}.",
        "{hero.he} had flour and eggs, but there were no {food.fruit} in the house.",
        "So {hero.he} went to see {friend} the {friend.kind}.",
        '"Do you have some {food.fruit}, {friend}?" asked {hero}. "I want to bake a {food}."',
        '"Yes, I have {number} baskets of {food.fruit}," said {friend}[. "May I help you bake?"|.]',
        "[{hero} made the dough, and {friend}|Then they] washed the {food.fruit}.",
        "Soon the {food} was in the oven, and the house smelled [good|very good].",
        '["This is the best {food} in the world," said [{friend}|{hero}].|<thanks>]',
        "[<end>|]",
    ),
    "a race": (
        "<day>",
        "{hero.his} friend {friend} the {friend.kind} was there too.",
        '"I can run faster than you," said {friend}. "Let us race to the {place.spot}!"',
        '"One, two, three, go!" called {hero}[, and they ran|].',
        "{friend} was fast, but near the {place.spot} {friend.he} fell and hurt {friend.his} {paw}.",
        "[{hero} could win now, but {hero.he} stopped.|{hero} stopped at once.|]",
        '"Does your {paw} hurt?" asked {hero}. "Yes, my {paw} hurts a little," said {friend}.',
        "{hero} helped {friend.him} up, and they walked to the {place.spot} together.",
        '["[We both won|You won, {hero}]," said {friend}[ with a smile|].|<end>]',
    ),
    "a garden": (
        "<home>",
        "In spring, {hero.he} planted {crop} in the garden.",
        "[Every [morning|day], {hero} gave the {crop} water and sang to them.|The {crop} were very small.]",
        "But then it did not rain, and the well was dry.",
        "<meet>",
        '"[What is wrong|Why are you sad], {hero}?" asked {friend}. '
        '"My {crop} need water," said {hero}, "and my well is dry."',
        '"My well is full," said {friend}. "We can carry the water to your {crop}."',
        "They carried {number} buckets every day, and the {crop} grew [and grew|tall|big].",
        "When the {crop} were ready, {hero} gave half of them to {friend}.",
        "[<end>|]",
    ),
    "a secret nest": (
        "<day>",
        "Behind the {place.spot}, {hero.he} found a nest with {number} eggs.",
        "[{hero} sat down and was very quiet.|{hero} wanted to keep the nest a secret.|]",
        "<meet>",
        '"What are you looking at, {hero}?" asked {friend}. "It is a secret," said {hero}.',
        '"I can keep a secret," said {friend}, so {hero} showed {friend.him} the nest.',
        "They [came back|went to see the nest] every day, and they told no one.",
        "Then, one {time}, there were {number} little birds in the nest.",
        '["Look, {friend}!" said {hero}. "Now we have {number} new friends."|<end>]',
    ),
    "a night walk": (
        "<night>",
        "So {hero.he} took a lamp and walked to the {place}.",
        "There was a sound behind the {place.spot}[, and {hero} stood still|, and {hero} was afraid].",
        '"Who is there?" asked {hero}. "It is only me, {friend}," said a small voice.',
        "It was {friend} the {friend.kind}[, and {friend.he} had a lamp too|].",
        '"Why are you awake, {friend}?" asked {hero}. "I am {night_act.ing}," said {friend}.',
        '"May I {night_act} with you?" asked {hero}. "[Yes, please|Of course]," said {friend}.',
        "So they {night_act.past} together[, and {hero} was not afraid any more|].",
        "[When {hero} came home, {hero.he} fell asleep at once.|They fell asleep beside the {place.spot}.|]",
    ),
    "a repair": (
        "<day>",
        "{hero.he} had {hero.his} {color} {thing} with {hero.him}.",
        "[But {hero.he}|{hero}] fell over a stone, and the {thing.part} of the {thing} broke.",
        "[<sad>|]",
        "<meet>",
        '"What is wrong, {hero}?" asked {friend}. "The {thing.part} of my {thing} broke," said {hero}.',
        '"I can mend it with {tool}," said {friend}[, and {friend.he} ran home|].',
        "[Soon|At last] {friend} came back with the {tool} and mended the {thing.part}.",
        "[The {color} {thing} {thing.does} again.|<thanks>]",
        "[<end>|]",
    ),
    "a gift": (
        "<home>",
        "{hero.his} [best friend was|friend was] {friend} the {friend.kind}, "
        "and it was almost {friend.his} birthday.",
        '"What can I give to {friend}?" thought {hero}. "I know! {friend.he} loves {color} things."',
        "For {number} days, {hero} worked [very hard|day and night].",
        "On {friend.his} birthday, {friend} opened a big box.",
        '"A {color} {thing}!" cried {friend}. "Did you make it?" "Yes, I made it for you," said {hero}.',
        "The {color} {thing} {thing.does}, and {friend} [laughed|sang] with joy.",
        "[Then they ate {food} until it was dark.|<end>|]",
    ),
    "sharing": (
        "<day>",
        "[Beside|Behind] the {place.spot} lay a {color} {thing}.",
        "{hero} saw it, and {friend} the {friend.kind} saw it too.",
        '"The {thing} is mine," said {hero}. "I saw it first." "No, it is mine," said {friend}.',
        "They pulled and pulled until the {thing.part} of the {thing} broke.",
        "[Now no one could play with the {color} {thing}.|Then they were both sad.|]",
        '"I am sorry, {friend}," said {hero}. "I am sorry too," said {friend}.',
        "They mended the {thing.part} with {tool}, and soon the {thing} {thing.does}.",
        "[From that day on, they played with the {thing} together.|<end>]",
    ),
    "learning": (
        "<day>",
        "{hero.he} saw {friend} the {friend.kind} {skill.ing} beside the {place.spot}.",
        '"Can you teach me to {skill}?" asked {hero}. '
        '"[Of course|Yes], I can teach you to {skill}," said {friend}.',
        "On the first day, {hero} tried {number} times, but {hero.he} could not {skill}.",
        '"It is too hard," said {hero}. "Try again," said {friend}[. "I could not {skill} at first."|.]',
        "So {hero} tried [again|every day], and at last {hero.he} {skill.past} [very well|all day].",
        "[Now they {skill} together {place.at}.|<thanks>|]",
        "[<end>|]",
    ),
    "a picnic": (
        "<day>",
        "{hero.he} had a {food} in {hero.his} basket[, and {hero.he} sat down beside the {place.spot}|].",
        "<meet>",
        '"Are you hungry, {friend}?" asked {hero}. "Yes, I am very hungry," said {friend}.',
        "There was only one {food}, but {hero} gave half of it to {friend}.",
        '"[This {food} is very good|I love {food}]," said {friend}. "Did you bake it?" '
        '"Yes, I did," said {hero}.',
        "The next day, {friend} came back with [a|a big|a heavy] basket of {food.fruit}.",
        '"These {food.fruit} are for you," said {friend}. ["Now we can bake another {food}."|<end>]',
    ),
    "hide and seek": (
        "<day>",
        "{hero.he} wanted to play hide and seek with {friend} the {friend.kind}.",
        '"[You hide|Go and hide], and I will count to {number}," said {hero}.',
        "{hero} counted to {number} and looked behind the {place.other}, but {friend} was not there.",
        "[Then {hero} heard a laugh behind the {place.spot}, and there {friend.he} was. "
        '"How did you find me?" asked {friend}. "I heard you laugh," said {hero}.|'
        "Then {hero} saw an ear behind the {place.spot}, and there {friend.he} was. "
        '"How did you find me?" asked {friend}. "I saw your ear," said {hero}.]',
        '["Now I will count to {number}," said {friend}, "and you can hide."|They played until it was dark.]',
        "[<end>|]",
    ),
    "a letter": (
        "<home>",
        "One {weather} {time}, there was a {color} letter at the door.",
        '"Come to the {place.spot} and bring {number} {food.fruit}," said the letter.',
        "So {hero.he} took {number} {food.fruit} and [ran|walked|went] to the {place}.",
        "[Behind|Beside] the {place.spot} stood {friend} the {friend.kind}.",
        '"Did you write the {color} letter, {friend}?" asked {hero}. "Yes, I did," said {friend}.',
        '"[Why do you need {number} {food.fruit}|What can we do with {number} {food.fruit}]?" asked {hero}. '
        '"I want to bake a {food} with you," said {friend}.',
        "[Soon the {food} was in the oven.|They baked and sang all day.]",
        "[They ate the {food} beside the {place.spot}.|It was a very good {food}.]",
        "[<end>|]",
    ),
}


# ---- writing -------------------------------------------------------------------------------------

FRAME = re.compile(r"<(\w+)>")
CHOICE = re.compile(r"\[([^\[\]]*)\]")  # the innermost choice
A_BEFORE_VOWEL = re.compile(r"\b([Aa]) (?=[aeiou])")
SENTENCE_START = re.compile(r'(?:^"?|[.!?] "?|[.!?]" "|\." )[a-z]')


def make_world(rng):
    """Chooses one word for every slot of the templates."""
    hero, friend = (Word(rng.choice(names), kind=kind, **pronouns)
                    for (names, pronouns), kind in zip(rng.shuffled(GROUPS), rng.shuffled(KINDS)))
    world = {slot: rng.choice(words) for slot, words in WORDS.items()}
    place = world["place"]
    spot, other = rng.shuffled(place.landmarks)
    return {**world, "hero": hero, "friend": friend,
            "place": Word(place, at=place.at, spot=spot, other=other)}


def expand(step, world, rng):
    """Expands one step: choices (innermost first), frames, slots, and then the spelling."""
    text = step
    while CHOICE.search(text) or FRAME.search(text):
        text = CHOICE.sub(lambda m: rng.choice(m[1].split("|")), text)
        text = FRAME.sub(lambda m: rng.choice(FRAMES[m[1]]), text)
    text = text.format_map(world)
    text = A_BEFORE_VOWEL.sub(r"\1n ", text)
    return SENTENCE_START.sub(lambda m: m[0].upper(), text)


def write_story(plot, rng):
    """Splits a story into one paragraph, or (about every third story) into two."""
    world = make_world(rng)
    steps = [text for text in (expand(step, world, rng) for step in PLOTS[plot]) if text]
    if rng.below(3) > 0:
        return " ".join(steps)
    middle = len(steps) // 2
    return " ".join(steps[:middle]) + "\n" + " ".join(steps[middle:])


def opening(story):
    return story.split(".", 1)[0]


def write_corpus(size, seed):
    """Generates stories until there are `size` characters. Each round uses all plots, in a new random order, so that
    all parts of the corpus are alike. All stories begin differently."""
    rng = SplitMix64(seed)
    stories, openings, length = [], set(), 0
    while True:
        for plot in rng.shuffled(PLOTS):
            story = write_story(plot, rng)
            while opening(story) in openings:
                story = write_story(plot, rng)
            openings.add(opening(story))
            stories.append(story)
            length += len(story) + 2  # plus a blank line
            if length >= size:
                return "\n\n".join(stories) + "\n"


def main():
    parser = argparse.ArgumentParser(description="Write a corpus of small made-up children's stories.")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT,
                        help="file to write (default: data/dummy.txt of this repository)")
    parser.add_argument("--size", type=int, default=DEFAULT_SIZE,
                        help="approximate size in bytes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED,
                        help="seed of the generator (default: %(default)s)")
    args = parser.parse_args()

    corpus = write_corpus(args.size, args.seed)
    args.output.write_bytes(corpus.encode("ascii"))
    print(f"{args.output.name}: {len(corpus)} bytes, {len(set(corpus))} distinct characters")


if __name__ == "__main__":
    main()
