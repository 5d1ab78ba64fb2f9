"""Conversations of a wanted length, made of exchanges, in the product's own message form.

What a stage of the curriculum asks for is told by `Mixture`. Knows nothing of token ids.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from bench.embedded_model import engine_talk, numbers, recall, tool_talk
from bench.embedded_model.exchange import Exchange
from bench.embedded_model.split import Split
from shared.text.effort import Effort
from shared.text.messages import Message, ToolCall, ToolSet
from shared.text.prompt_texts import DEFAULT_SYSTEM

_SYSTEMS = (DEFAULT_SYSTEM, DEFAULT_SYSTEM, "", "You are a friendly assistant.")
# Characters that one token of our vocabulary stands for, on average; used to aim, never to cut.
CHARACTERS_PER_TOKEN = 3.2
_TOKENS_PER_TURN = 6


@dataclass(frozen=True, slots=True)
class Mixture:
    """Shares of the kinds of conversation; they need not add up to 1."""

    engine: float
    numbers: float
    recall: float
    tools: float
    longest_repeat: int = 12


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages that end with the assistant's answer, the tools they offer and the effort."""

    messages: tuple[Message, ...]
    tools: ToolSet | None
    effort: Effort


def conversation(
    source: random.Random, split: Split, mixture: Mixture, tokens: int, *, one_exchange: bool = False
) -> Conversation:
    """A conversation of at most about `tokens` tokens, of one kind or of engine talk and numbers mixed."""
    kind = source.choices(
        ("talk", "recall", "tools"), (mixture.engine + mixture.numbers, mixture.recall, mixture.tools)
    )[0]
    thinking = source.random() < 0.5
    if kind == "tools" and tokens >= 700:
        return _tool_conversation(source, split, tokens, thinking, one_exchange)
    if kind == "recall":
        exchanges: Iterator[Exchange] = iter(_recall(source, split, tokens, one_exchange))
    else:
        exchanges = _talk(source, split, mixture)
    messages = [Message("system", source.choice(_SYSTEMS))]
    _fill(messages, exchanges, tokens, 1 if one_exchange else None, all_thoughts=False)
    return Conversation(tuple(messages), None, "high" if thinking else "none")


def _talk(source: random.Random, split: Split, mixture: Mixture) -> Iterator[Exchange]:
    while True:
        if source.random() * (mixture.engine + mixture.numbers) < mixture.engine:
            unknown = source.random() < engine_talk.UNKNOWN_SHARE[split]
            yield engine_talk.unknown(source, split) if unknown else engine_talk.known(source, split)
        elif source.random() < 0.35:
            yield numbers.repeat(source, split, longest=mixture.longest_repeat)
        else:
            yield numbers.add(source, split)


def _recall(source: random.Random, split: Split, tokens: int, one: bool) -> list[Exchange]:
    """Mostly a text of many facts which are all asked for: once the window has passed them, only compressed
    rows can answer. Else fewer facts among more prose."""
    dense = not one and source.random() < 0.7
    asked = 1 if one else min(24, max(2, tokens // (30 if dense else 60)))
    room = max(30, tokens - 24 * asked - 24)
    facts = min(source.randint(2, max(3, tokens // 64)), 24) if one else asked + source.randint(0, 3)
    fillers = max(0, round((room - 10 * facts) / 12.5))
    text = recall.document(source, split, facts=facts, fillers=fillers)
    return recall.questions(source, split, text, asked)


def _tool_conversation(
    source: random.Random, split: Split, tokens: int, thinking: bool, one: bool
) -> Conversation:
    offered = tool_talk.tools(source, split, source.randint(1, 3))

    def exchanges() -> Iterator[Exchange]:
        while True:
            if not one and source.random() < 0.15:
                yield engine_talk.known(source, split)
            else:
                yield tool_talk.request(source, split, offered)

    messages = [Message("system", source.choice(_SYSTEMS))]
    head = 420 + 75 * len(offered)
    _fill(messages, exchanges(), tokens - head, 1 if one else None, all_thoughts=True)
    schemas = ToolSet([tool.schema() for tool in offered])
    return Conversation(tuple(messages), schemas, "high" if thinking else "none")


def _fill(
    messages: list[Message],
    exchanges: Iterator[Exchange],
    tokens: int,
    most: int | None,
    *,
    all_thoughts: bool,
) -> None:
    """Appends exchanges while they fit, at least one. Thoughts of all but the last answer are only rendered
    where tools are in play; leaving them out here keeps the estimate right."""
    used = 0.0
    for number, exchange in enumerate(exchanges):
        if number == most:
            break
        turn = _messages(exchange, number)
        size = sum(
            len(m.content) + (len(m.reasoning) if all_thoughts else 0) + 40 * len(m.tool_calls) for m in turn
        )
        size += sum(2 * len(call.arguments) for m in turn for call in m.tool_calls)
        used += size / CHARACTERS_PER_TOKEN + _TOKENS_PER_TURN * len(turn) / 2
        if number and used > tokens:
            break
        messages += turn


def _messages(exchange: Exchange, number: int) -> list[Message]:
    turn = [Message("user", exchange.question)]
    if exchange.call is None:
        turn.append(Message("assistant", exchange.answer, exchange.thought))
        return turn
    tool, arguments = exchange.call
    call = ToolCall(f"call_{number}", tool, arguments)
    turn += [
        Message("assistant", exchange.answer, exchange.thought, tool_calls=(call,)),
        Message("tool", exchange.result, tool_call_ids=(call.id,)),
        Message("assistant", exchange.last_answer, exchange.last_thought),
    ]
    return turn
