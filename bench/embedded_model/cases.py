"""Held-out cases of the four abilities, each one conversation whose last answers are judged word for word."""

from __future__ import annotations

import random
from dataclasses import dataclass

from bench.embedded_model import recall
from bench.embedded_model.conversation import Conversation, Mixture, conversation
from bench.embedded_model.split import Split
from shared.text.messages import Message

ABILITIES = ("engine", "tools", "recall", "numbers")
_TOKENS = {"engine": 200, "tools": 900, "recall": 200, "numbers": 200}
_DISTRACTORS = 8  # facts beside the one that is asked for, at least
_SENTENCE_TOKENS = 12.5


@dataclass(frozen=True, slots=True)
class Case:
    """One held-out conversation of an ability."""

    ability: str
    conversation: Conversation


def cases(ability: str, count: int, seed: int) -> list[Case]:
    """`count` cases with one question each; recall is near here, see `far_recall`."""
    source = random.Random(f"{ability} {seed}")
    shares = {name: float(name == ability) for name in ABILITIES}
    return [
        Case(
            ability,
            conversation(source, Split.HELD_OUT, Mixture(**shares), _TOKENS[ability], one_exchange=True),
        )
        for _ in range(count)
    ]


def far_recall(count: int, seed: int, tokens: int) -> list[Case]:
    """Cases whose fact stands about `tokens` tokens before the question, among at least eight others."""
    source = random.Random(f"far {tokens} {seed}")
    made = []
    for _ in range(count):
        others = _DISTRACTORS + tokens // 500
        fillers = max(0, round((tokens - 10 * others) / _SENTENCE_TOKENS))
        text = recall.document(source, Split.HELD_OUT, facts=others + 1, fillers=fillers)
        person, number = text.facts[0]
        exchange = recall.questions(source, Split.HELD_OUT, recall.Document(text.text, text.facts[:1]), 1)[0]
        assert exchange.answer == f"{person}={number}"
        messages = (
            Message("system", ""),
            Message("user", exchange.question),
            Message("assistant", exchange.answer, exchange.thought),
        )
        made.append(Case("recall", Conversation(messages, None, source.choice(("none", "high")))))
    return made
