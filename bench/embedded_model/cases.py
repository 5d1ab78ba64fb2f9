"""Held-out cases of the four abilities, each one conversation whose last answers are judged word for word."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

from bench.embedded_model import recall, vocabulary
from bench.embedded_model.conversation import Conversation, Mixture, conversation
from bench.embedded_model.names import names
from bench.embedded_model.prose import sentence
from bench.embedded_model.split import Split
from shared.text.messages import Message
from shared.text.tokenizer import Tokenizer

ABILITIES = ("engine", "tools", "recall", "numbers")
_TOKENS = {"engine": 200, "tools": 900, "recall": 200, "numbers": 200}
_DISTRACTORS = 8  # facts beside the one that is asked for, at least
_FACT_TOKENS = 16  # at most, about


@dataclass(frozen=True, slots=True)
class Case:
    """One held-out conversation of an ability."""

    ability: str
    conversation: Conversation


def cases(ability: str, count: int, seed: int) -> list[Case]:
    """`count` different cases with one question each; recall is near here, see `far_recall`."""
    source = random.Random(f"{ability} {seed}")
    shares = {name: float(name == ability) for name in ABILITIES}
    found: dict[tuple[str, str], Case] = {}
    while len(found) < count:
        drawn = conversation(source, Split.HELD_OUT, Mixture(**shares), _TOKENS[ability], one_exchange=True)
        found.setdefault((drawn.messages[1].content, drawn.effort), Case(ability, drawn))
    return list(found.values())


def far_recall(count: int, seed: int, tokens: int) -> list[Case]:
    """Cases with at least `tokens` tokens of text, and at most a sentence more, between the name in a fact
    and the question for it, and at least eight other facts, before it and behind it."""
    source = random.Random(f"far {tokens} {seed}")
    made = []
    for _ in range(count):
        text, person, number = _text_with_a_fact(source, tokens)
        document = recall.Document(text, ((person, number),))
        exchange = recall.questions(source, Split.HELD_OUT, document, 1)[0]
        assert exchange.answer == f"{person}={number}"
        messages = (
            Message("system", ""),
            Message("user", exchange.question),
            Message("assistant", exchange.answer, exchange.thought),
        )
        made.append(Case("recall", Conversation(messages, None, source.choice(("none", "high")))))
    return made


def _text_with_a_fact(source: random.Random, tokens: int) -> tuple[str, str, int]:
    """A text with a fact that stands `tokens` before its end, and the fact."""
    others = _DISTRACTORS + tokens // 500
    people = names(source, Split.HELD_OUT, others + 1)
    numbers = source.sample(range(10, 100), others + 1)
    facts = [
        source.choice(recall.FACTS).format(name=person, number=number)
        for person, number in zip(people, numbers, strict=True)
    ]
    behind = source.randint(1, min(others - 1, max(1, tokens // _FACT_TOKENS - 1)))
    opening = [
        *facts[1 + behind :],
        *(sentence(source, Split.HELD_OUT) for _ in range(source.randint(2, 10))),
    ]
    source.shuffle(opening)
    rest = facts[1 : 1 + behind]
    own = facts[0][facts[0].index(people[0]) :]
    size = _length(own) + sum(map(_length, rest))
    while size < tokens:
        rest.append(sentence(source, Split.HELD_OUT))
        size += _length(rest[-1])
    source.shuffle(rest)
    introduction = recall.document(source, Split.HELD_OUT, facts=0, fillers=0).text
    return introduction + " ".join([*opening, facts[0], *rest]), people[0], numbers[0]


def _length(text: str) -> int:
    """Tokens of a sentence inside a text."""
    return len(_tokenizer().encode_text(" " + text))


@cache
def _tokenizer() -> Tokenizer:
    return vocabulary.tokenizer()
