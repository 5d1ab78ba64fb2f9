"""What a JSON schema is made of: the schemas inside it, and keywords whose values have the wrong type.

Checked here because the grammar engine trips over some of them. Knows no grammar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

_NAMED: Final = ("properties", "patternProperties", "$defs", "definitions")
_LISTED: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE: Final = ("items", "additionalProperties", "additionalItems")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


_KINDS: Final[list[tuple[str, Callable[[Any], bool], tuple[str, ...]]]] = [
    ("an object", lambda value: isinstance(value, Mapping), _NAMED),
    ("an array", lambda value: isinstance(value, list), ("enum", *_LISTED)),
    ("an array of names", _are_texts, ("required",)),
    ("a name or an array of names", lambda value: _is_text(value) or _are_texts(value), ("type",)),
    ("a text", _is_text, ("$ref", "$id", "$schema", "$anchor", "pattern", "format")),
    (
        "a number",
        _is_number,
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    ),
    (
        "a whole number from 0 on",
        _is_count,
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
    ),
]
_EXPECTED: Final = {keyword: (kind, fits) for kind, fits, keywords in _KINDS for keyword in keywords}


def inner_schemas(schema: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The schemas that stand directly in a schema, each with the keys that lead to it."""
    if not isinstance(schema, Mapping):
        return
    for key in _NAMED:
        named = schema.get(key)
        if isinstance(named, Mapping):
            yield from (((key, name), inner) for name, inner in named.items())
    for key in (*_LISTED, *_SINGLE):
        value = schema.get(key)
        if isinstance(value, list):
            yield from (((key, str(index)), inner) for index, inner in enumerate(value))
        elif key in _SINGLE and key in schema:
            yield (key,), value


def first_wrong_type(schema: Any) -> tuple[tuple[str, ...], str] | None:
    """The place of a keyword whose value cannot be its value, or of what is no schema, and what is wanted."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((), schema)]
    while waiting:
        place, part = waiting.pop()
        if isinstance(part, bool):
            continue
        if not isinstance(part, Mapping):
            return place, "a schema is an object"
        for keyword, value in part.items():
            kind, fits = _EXPECTED.get(keyword, ("", _anything))
            if not fits(value):
                return (*place, keyword), f"must be {kind}"
        waiting += [((*place, *step), inner) for step, inner in inner_schemas(part)]
    return None


def _anything(value: Any) -> bool:
    return True
