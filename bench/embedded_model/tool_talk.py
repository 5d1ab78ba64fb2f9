"""Tools with JSON schemas, requests that need one of them, and answers that use what the tool gave back.

Tool and parameter names are two words joined, so there are many; each belongs to one side of the split.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from bench.embedded_model.exchange import Exchange
from bench.embedded_model.names import name
from bench.embedded_model.prose import thing
from bench.embedded_model.split import Split, split_of

VERBS = (
    *("find", "open", "close", "book", "send", "read", "write", "delete", "start", "stop", "move", "rename"),
    *("check", "count", "order", "cancel", "print", "update", "search", "share"),
)
OBJECTS = (
    *("ticket", "room", "file", "letter", "recipe", "table", "car", "invoice", "meeting", "picture", "song"),
    *("report", "message", "door", "alarm", "package", "note", "task", "account", "photo"),
)
QUALITIES = ("new", "first", "last", "main", "old", "guest", "start", "end", "total", "max")
TEXT_KINDS = ("name", "city", "title", "colour", "path", "target", "owner", "street")
NUMBER_KINDS = ("number", "size", "amount", "floor", "price", "level")

_REQUESTS = {
    Split.TRAIN: (
        "{Verb} the {object} with {values}.",
        "Please {verb} a {object}: {values}.",
        "I want to {verb} the {object}, {values}.",
        "{Verb} a {object} with {values}",
        "Can you {verb} the {object} with {values}?",
        "{Verb} this {object}: {values}",
        "With {values}, {verb} a {object}.",
        "There is a {object} to {verb}: {values}.",
        "For the {object}: {values}. Please {verb} it.",
        "Could the {object} be handled? I need you to {verb} it with {values}.",
        "A {object}, please {verb} it: {values}.",
        "Let us {verb} another {object} with {values}.",
        "Now {verb} that {object}: {values}",
        "You should {verb} the {object}, the details are {values}.",
        "I would like you to {verb} this {object} now, {values}",
        "Next, {verb} a {object} ({values}).",
        "The {object} has {values}. {Verb} it.",
        "We must {verb} some {object}: {values}",
        "{values}: {verb} the {object} with that.",
        "Use {values} and {verb} the {object}.",
        "About the {object}: please {verb} it now with {values}.",
        "The {object}? {Verb} it with {values}.",
        "Our {object} - {verb} it: {values}.",
        "I have a {object}. {Verb} it ({values}).",
        "This {object} waits, so {verb} it. It has {values}.",
        "Take the {object} and {verb} it, {values}!",
        "{Verb} it, the {object}, {values}.",
        "One {object} more: {verb} it, then tell me. {values}",
        "Your {object}: I want to {verb} that, {values}.",
        "There it is, the {object}: {verb} this one, {values}.",
        "As for the {object}, {verb} it and take {values}.",
    ),
    Split.HELD_OUT: (
        "It is time to {verb} one {object}. Use {values}.",
        "My {object}: {verb} it, {values}.",
        "Would you {verb} my {object} for me, {values}?",
    ),
}

# Parts that training requests are also put together from, so that no order and no mark is learnt by heart.
_ORDERS = (
    "{lead}{verb} {which} {object}{tail}{before}{values}{end}",
    "{Which} {object}{between}{verb} {it}{tail}{before}{values}{end}",
    "{values}{between}{verb} {which} {object}{tail}{end}",
)
_PARTS = {
    "lead": (
        "",
        "please ",
        "could you ",
        "I want to ",
        "you must ",
        "time to ",
        "just ",
        "let us ",
        "go and ",
    ),
    "which": ("the", "a", "this", "that", "our", "your", "her", "his", "another"),
    "it": ("it", "that", "this one"),
    "tail": ("", "", "", " now", " today", " again", ", please", " for us", " soon"),
    "before": (
        " with ",
        ", ",
        ", ",
        ": ",
        " - ",
        "; ",
        " using ",
        ". It has ",
        ", I mean ",
        " where we have ",
    ),
    "between": (": ", ", ", " - ", "? ", ". ", "; "),
    "end": (".", ".", "?", "!", ""),
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter as the schema declares it; the words of its name, joined by a blank, are what users say."""

    name: str
    number: bool

    @property
    def words(self) -> str:
        return self.name.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool `verb_object` with its parameters, all of them required."""

    verb: str
    thing: str
    parameters: tuple[Parameter, ...]

    @property
    def name(self) -> str:
        return f"{self.verb}_{self.thing}"

    def schema(self) -> dict[str, Any]:
        """The function object that a client sends."""
        properties = {
            parameter.name: {
                "type": "integer" if parameter.number else "string",
                "description": f"The {parameter.words}",
            }
            for parameter in self.parameters
        }
        return {
            "name": self.name,
            "description": f"{self.verb.capitalize()} a {self.thing}",
            "parameters": {"type": "object", "properties": properties, "required": list(properties)},
        }


def tools(source: random.Random, split: Split, count: int) -> list[Tool]:
    """`count` tools that differ in verb and object."""
    made: list[Tool] = []
    while len(made) < count:
        verb, noun = source.choice(VERBS), source.choice(OBJECTS)
        if split_of(f"{verb}_{noun}") is not split or any(
            tool.verb == verb or tool.thing == noun for tool in made
        ):
            continue
        made.append(Tool(verb, noun, _parameters(source, split)))
    return made


def request(source: random.Random, split: Split, offered: list[Tool]) -> Exchange:
    """A request for one of the offered tools, the call, its result and what the model says of it."""
    tool = source.choice(offered)
    values = {parameter: _value(source, split, parameter) for parameter in tool.parameters}
    spoken = [f"{parameter.words} {value}" for parameter, value in values.items()]
    frame = source.choice(_REQUESTS[split])
    if split is Split.TRAIN and source.random() < 0.6:
        frame = _composed(source)
    question = frame.format(
        verb=tool.verb,
        Verb=tool.verb.capitalize(),
        object=tool.thing,
        values=" and ".join([", ".join(spoken[:-1]), spoken[-1]] if spoken[1:] else spoken),
    )
    outcome = _parameters(source, split)[0]
    found = _value(source, split, outcome)
    return Exchange(
        "tools",
        question,
        f"I need the tool {tool.name}.",
        "",
        call=(tool.name, json.dumps({parameter.name: value for parameter, value in values.items()})),
        result=json.dumps({outcome.name: found}),
        last_thought="I have the result.",
        last_answer=f"The {outcome.words} is {found}.",
    )


def _composed(source: random.Random) -> str:
    """A frame of a request, its first letter a capital."""
    parts = {name: source.choice(choices) for name, choices in _PARTS.items()}
    places = {name: f"{{{name}}}" for name in ("verb", "object", "values")}
    order = source.choice(_ORDERS)
    if (parts["between"], parts["before"]) == (": ", ", "):
        parts["between"] = " - "  # with the colon it would come close to a frame that is kept back
    frame = order.format(**parts, **places, Which=parts["which"].capitalize())
    return (
        frame.replace("{verb}", "{Verb}", 1) if frame.startswith("{verb}") else frame[0].upper() + frame[1:]
    )


def _parameters(source: random.Random, split: Split) -> tuple[Parameter, ...]:
    wanted = source.choice((1, 1, 2, 2, 3))
    found: dict[str, Parameter] = {}
    while len(found) < wanted:
        number = source.random() < 0.4
        kind = source.choice(NUMBER_KINDS if number else TEXT_KINDS)
        if kind in found:
            continue
        named = f"{source.choice(QUALITIES)}_{kind}"
        if split_of(named) is split:
            found[kind] = Parameter(named, number)
    return tuple(found.values())


def _value(source: random.Random, split: Split, parameter: Parameter) -> str | int:
    if parameter.number:
        return source.randint(1, 99)
    if parameter.name.endswith("path"):
        return name(source, split).lower() + source.choice((".txt", ".md", ".py"))
    if parameter.name.endswith("colour"):
        return thing(source)
    return name(source, split)
