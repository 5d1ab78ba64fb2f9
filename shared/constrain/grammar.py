"""Grammars of answers: JSON of a schema, JSON objects, one of several texts.

Owns how a schema is refused, with the place in it that is to blame. Knows no tokens and no endpoint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from shared.constrain.schema_shape import first_wrong_type, inner_schemas

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

# White space between JSON tokens. A grammar that allows any amount of it lets a model write nothing else.
_BETWEEN: Final = r"(\r?\n)?[ \t]{0,80}"
# Decided here, whatever a schema says about how it wants to be compiled.
_OPTIONS: Final[JsonCompileOptions] = {
    "whitespace_flexible": True,
    "whitespace_pattern": _BETWEEN,
    "coerce_one_of": False,
    "lenient": False,
}
_OPTIONS_KEY: Final = "x-guidance"
# How many parts of a refused schema are tried one by one to find the one to blame.
_MOST_PARTS: Final = 300

# A part alone may refer to one that is not with it: that is no fault of the schema.
_NO_TARGET: Final = "Pointer"
_DEFINITIONS: Final = ("$defs", "definitions")


class SchemaError(ValueError):
    """A schema that no answer can be held to. `place` leads to the part that is to blame, from its root."""

    def __init__(self, place: Sequence[str], reason: str) -> None:
        super().__init__(reason)
        self.place = tuple(place)


@dataclass(frozen=True, slots=True)
class Grammar:
    """What may be written, in the form that `Matcher` reads."""

    text: str


def json_grammar(schema: Mapping[str, Any]) -> Grammar:
    """JSON text that is valid against `schema`, without white space around it.

    Raises SchemaError for a schema that is wrong, that nothing can satisfy, or that uses what cannot be
    enforced token by token.
    """
    root = {key: value for key, value in schema.items() if key != _OPTIONS_KEY}
    if (wrong := first_wrong_type(root)) is not None:
        raise SchemaError(*wrong)
    if (reason := _refusal(root)) is not None:
        raise _blame(root, reason)
    return Grammar(_compile(root))


def any_json_object() -> Grammar:
    return json_grammar({"type": "object"})


def one_of(texts: Sequence[str]) -> Grammar:
    """Exactly one of `texts`, which must not be empty."""
    if not texts or not all(texts):
        raise ValueError("a choice needs texts")
    from llguidance import LLMatcher

    return Grammar(
        LLMatcher.grammar_from_lark("start: " + " | ".join(json.dumps(t, ensure_ascii=False) for t in texts))
    )


def _compile(schema: Mapping[str, Any]) -> str:
    from llguidance import LLMatcher

    return LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=_OPTIONS)


def _refusal(schema: Any) -> str | None:
    """Why a schema cannot be used, in one line; None if it can."""
    if isinstance(schema, bool):
        return None
    from llguidance import LLMatcher

    try:
        wrong, messages = LLMatcher.validate_grammar_with_warnings(_compile(schema))
    except BaseException as error:
        # What the engine throws when it fails inside is no Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        return _line(str(error))
    return _line(messages[0]) if wrong else None


def _line(message: str) -> str:
    """The engine's message on one line, without its advice on options that clients do not have. Of a pattern
    it shows the place with carets below, and the reason last."""
    lines = [line.strip() for line in message.partition(". Enable ")[0].splitlines() if line.strip(" ^")]
    if not lines:
        return "it cannot be used"
    text = lines[0] if len(lines) == 1 else f"a pattern cannot be used: {lines[-1].removeprefix('error: ')}"
    return text[:300]


def _blame(root: Mapping[str, Any], reason: str) -> SchemaError:
    """The innermost part of a schema that is refused on its own, for the reason it gives."""
    definitions = {key: root[key] for key in _DEFINITIONS if key in root}
    place: list[str] = []
    part: Any = root
    tried = 0
    while True:
        for step, inner in inner_schemas(part):
            tried += 1
            if tried > _MOST_PARTS:
                return SchemaError(place, reason)
            found = _refusal({**definitions, **inner} if isinstance(inner, Mapping) else inner)
            if found is not None and (found == reason or not found.startswith(_NO_TARGET)):
                place += step
                part, reason = inner, found
                break
        else:
            return SchemaError(place, reason)
