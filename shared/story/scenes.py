"""The prose of the story: scenes of a harbour town in which nothing of importance is numbered."""

from __future__ import annotations

from typing import Final

# Slots: two people of the story, and details that a random stream chooses.
TEMPLATES: Final = (
    "{lead} came down to the quay before the bakers had opened, because the {weather} of the night had "
    "torn two boats from their rings. The harbour master had already written a notice, but nobody reads"
    " a notice in the dark. {friend} was there with a lantern and a coil of rope that was far too "
    "short, and they laughed about it before they did anything useful. They pulled the smaller boat "
    "along the wall by hand, talking about the {thing} that the {trade} had promised to mend since "
    "spring. When it grew light the water lay as flat as a table, and one could think that the storm "
    "had been told by someone who likes to exaggerate. {friend} said that this is how most stories are "
    "made here. {lead} did not answer, and tied the last knot twice.",
    "The archive of the town is a room above the fire station, and the fire station has not burned for "
    "so long that people store apples in it. {lead} had been asked to find a map of the old canal. "
    "There were maps of everything else: of the {place}, of a railway that was never built, of the "
    "gardens of a man who had owned no gardens. {friend} brought coffee and sat down on a box of "
    "letters. They read some of them aloud. A {trade} complained about the {weather}; a widow asked for"
    " the return of a {thing}; a child had drawn a whale and called it the mayor. In the evening the "
    "map was found under the coffee. It showed the canal exactly where everyone had thought that it "
    "was.",
    "On market day the {place} smells of fish and oranges, and the two smells have never come to an "
    "agreement. {lead} was looking for a {thing}, a cheap one, and found only dear ones and one that "
    "was broken in a way that made it interesting. The {trade} who sold it swore that it had come "
    "through the great {weather} without a scratch. {friend} turned it around and showed the scratches."
    " There was some bargaining, which both sides enjoyed, and in the end the thing changed hands "
    "together with a bag of nuts that nobody had mentioned. They ate the nuts on the steps of the old "
    "customs house and counted the gulls until the gulls took offence.",
    "The choir meets in the back room of the inn, since the church is too cold and the school too warm."
    " {lead} sings low, {friend} sings high, and between them stands the {trade}, who hums. That "
    "evening they tried a new piece about the {weather} on the open sea. It went badly at first. "
    "Somebody had copied the notes from a book with a torn page, so that the song stopped in the middle"
    " of a word, and each of them ended it in another way. The innkeeper clapped all the same and "
    "brought a {thing} that had been forgotten there in winter. No one would own to it. It stands now "
    "on the shelf near the door to the {place}, beside the clock that is wrong.",
    "It is a long walk from the lighthouse to the {place}, and longer when the {weather} stands against"
    " you. {lead} made it every week with a bag of post, and every week {friend} offered to come along "
    "and then found a reason to stay. This time the reason was a {thing} that had to be painted, and "
    "the paint would not wait. So {lead} went alone, and met the {trade} half way, sitting on a stone "
    "with one boot off. They shared a pear and spoke about dogs. Later it rained a little, not enough "
    "to complain of. The post arrived dry. At the door {friend} stood with paint on both hands and "
    "wanted to know everything, and there was nothing to tell.",
)

DETAILS: Final[dict[str, tuple[str, ...]]] = {
    "weather": ("wind", "fog", "rain", "hail", "frost", "thunder"),
    "thing": ("lamp", "barometer", "ladder", "kettle", "violin", "wheelbarrow", "compass", "mirror"),
    "trade": ("cooper", "tailor", "ferryman", "chemist", "postman", "sailmaker"),
    "place": ("square", "bridge", "weigh house", "rope walk", "fish hall"),
}

NAMES: Final = (
    *("Adela", "Borys", "Celine", "Dario", "Edda", "Fabian", "Greta", "Hakon"),
    *("Imani", "Jorun", "Kalle", "Livia", "Mirko", "Nadia", "Oskar", "Petra"),
)

INTRODUCTION: Final = (
    "What follows is the chronicle of one year in a small harbour town. The council of the town "
    "formally assigns a number to each of its rowers, once, and writes it into the register. Only a "
    "number that is formally assigned counts. Rumours, prices, signs and guesses mean nothing, whoever "
    "repeats them.\n\n"
)

BRIDGE: Final = (
    "Then, without any hurry, the clerk opened the register of the council, and the talk around the "
    "table stopped. "
)
FACT: Final = "{name} was formally assigned the number {words}."
RUMOUR: Final = (
    "Somebody at the next table had heard that {name} would get the number {words}, but it was only a "
    "rumour, and the clerk shook his head."
)
DISCOUNT: Final = (
    "In the window behind {name} a sign offered a discount of {words} percent on everything blue."
)

TASK: Final = (
    "\n\nThis is the end of the chronicle. List every number that the council formally assigned, one line "
    "for each person, in the form Name=number with the number in digits, and nothing else. The first "
    "line is:\n"
    "{name}={number}\n"
)
SYSTEM: Final = "You read long texts with care and answer exactly."
