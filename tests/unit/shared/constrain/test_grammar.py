"""Schemas that are refused, and where they are to blame."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared.constrain.grammar import SchemaError, json_grammar, one_of

_UNIQUE = {"type": "array", "uniqueItems": True}
_EMPTY_RANGE = {"type": "integer", "minimum": 3, "maximum": 2}


@pytest.mark.parametrize(
    ("schema", "place", "reason"),
    [
        ({"type": "strin"}, (), "strin"),
        (_UNIQUE, (), "uniqueItems"),
        ({"properties": {"a": {"items": _UNIQUE}}}, ("properties", "a", "items"), "uniqueItems"),
        ({"anyOf": [{"type": "null"}, {"not": {}}]}, ("anyOf", "1"), "not"),
        ({"$defs": {"q": {"not": {}}}, "items": {"$ref": "#/$defs/q"}}, ("$defs", "q"), "not"),
        (
            {"properties": {"a": {"$ref": "#/properties/b"}, "b": {"type": "x"}}},
            ("properties", "b"),
            "type: x",
        ),
        ({"properties": {"a": {"$ref": "#/$defs/gone"}}}, ("properties", "a"), "/$defs/gone"),
        ({"properties": {"a": 3}}, ("properties", "a"), "a schema is an object"),
        ({"items": {"minLength": "é" * 90}}, ("items", "minLength"), "a whole number"),
        ({"minItems": -1}, ("minItems",), "a whole number"),
        ({"anyOf": [{}, {"minimum": True}]}, ("anyOf", "1", "minimum"), "a number"),
        ({"items": {"required": ["a", 3]}}, ("items", "required"), "an array of names"),
        ({"$defs": []}, ("$defs",), "an object"),
        ({"enum": {}}, ("enum",), "an array"),
        ({"type": 3}, ("type",), "a name"),
        ({"properties": {"x": {"pattern": 3}}}, ("properties", "x", "pattern"), "a text"),
        ({"type": "string", "pattern": "a(?=b)"}, (), "look-ahead"),
        (
            {"type": "object", "required": ["a"], "properties": {"a": _EMPTY_RANGE}},
            ("properties", "a"),
            "minimum",
        ),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, (), "oneOf"),
        ({"additionalProperties": {"format": "no-such"}}, ("additionalProperties",), "no-such"),
    ],
)
def test_a_schema_is_refused_where_it_is_wrong(schema: Any, place: tuple[str, ...], reason: str) -> None:
    with pytest.raises(SchemaError) as refused:
        json_grammar(schema)
    assert refused.value.place == place
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "coerce" not in str(refused.value)


def test_a_huge_schema_that_is_wrong_is_refused_quickly() -> None:
    wide = {"properties": {f"k{n}": {"type": "string"} for n in range(5000)} | {"z": {"not": {}}}}
    with pytest.raises(SchemaError, match="not"):
        json_grammar(wide)


def test_a_schema_does_not_choose_how_it_is_compiled() -> None:
    lenient = {"type": "array", "uniqueItems": True, "x-guidance": {"lenient": True}}
    with pytest.raises(SchemaError, match="uniqueItems"):
        json_grammar(lenient)


def test_annotations_and_references_are_taken() -> None:
    json_grammar(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "t",
            "description": "d",
            "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
            "type": "object",
            "properties": {"tree": {"$ref": "#/$defs/tree", "default": []}},
        }
    )


def test_a_choice_takes_any_text() -> None:
    assert json.dumps('a"\\') in one_of(['a"\\', "b"]).text
    with pytest.raises(ValueError, match="texts"):
        one_of([])
    with pytest.raises(ValueError, match="texts"):
        one_of(["a", ""])
