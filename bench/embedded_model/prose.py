"""Filler prose: sentences that say nothing about the facts among which they stand.

Training and held-out prose share words but no sentence frame, hence no sentence. Some sentences hold names
and numbers, so that neither alone marks a fact.
"""

from __future__ import annotations

import random

from bench.embedded_model.names import name
from bench.embedded_model.split import Split

WORDS = {
    "place": "harbour market garden bridge river station library kitchen school tower village forest island "
    "mill square field bakery workshop valley theatre",
    "thing": "lamp chair book stone apple bread window mirror candle engine violin basket ladder pencil "
    "anchor clock letter kettle carpet wheel",
    "kind": "old small green quiet heavy yellow broken narrow bright wooden empty warm round dusty blue",
    "time": "morning evening winter summer afternoon night autumn spring weekend noon",
    "weather": "rain wind snow fog sunshine thunder frost mist",
    "person": "baker doctor teacher captain farmer painter tailor gardener miller sailor",
    "act": "walked waited slept worked sang rested stopped looked read talked",
}
_LISTS = {key: words.split() for key, words in WORDS.items()}

_FRAMES = {
    Split.TRAIN: (
        "In the {time} the {person} {act} near the {place}.",
        "The {kind} {thing} stood in the {place} all {time}.",
        "{name} {act} by the {place} and thought of the {thing}.",
        "There was {weather} over the {place} that {time}.",
        "A {person} sold a {kind} {thing} to {name}.",
        "Nobody in the {place} had seen such a {kind} {thing}.",
        "The road to the {place} was {kind} after the {weather}.",
        "{name} carried a {thing} from the {place} to the {place}.",
        "Every {time} the {person} cleaned the {kind} {thing}.",
        "A sign at the {place} offered {number} pieces of {thing}.",
        "The {person} counted {number} steps to the {place}.",
        "They talked about the {weather} and the {kind} {place}.",
        "{name} forgot the {thing} beside the {place}.",
        "Behind the {place} grew a {kind} tree.",
        "The {person} said that {weather} would come in the {time}.",
        "Someone left {number} pages on the {kind} {thing}.",
        "At {time} the {place} was {kind} and the {person} {act}.",
        "The {thing} of the {person} was {kind}.",
    ),
    Split.HELD_OUT: (
        "Long before {time}, {name} and the {person} left for the {place}.",
        "Children drew the {place} with its {kind} {thing}.",
        "It is said that {weather} once closed the {place}.",
        "With a {kind} {thing} under one arm, a {person} {act} outside.",
        "No {thing} was as {kind} as that from the {place}.",
        "After {number} days of {weather} the {place} opened again.",
        "How {kind} the {place} looked in the {time}!",
        "Only {name} knew why the {person} {act} there.",
        "People brought {number} sacks for the {person}.",
        "Some {kind} letters lay between the {thing} and the door.",
    ),
}


def sentence(source: random.Random, split: Split) -> str:
    """One sentence of filler."""
    frame = source.choice(_FRAMES[split])
    parts = frame.split("{")
    written = [parts[0]]
    for part in parts[1:]:
        slot, _, rest = part.partition("}")
        written += [_fill(slot, source, split), rest]
    return "".join(written)


def word(source: random.Random) -> str:
    """Any word of the prose."""
    return source.choice(_LISTS[source.choice(("place", "thing", "kind", "person", "weather"))])


def thing(source: random.Random) -> str:
    """A word for an object."""
    return source.choice(_LISTS["thing"])


def _fill(slot: str, source: random.Random, split: Split) -> str:
    if slot == "name":
        return name(source, split)
    if slot == "number":
        return str(source.randint(10, 99))
    return source.choice(_LISTS[slot])
