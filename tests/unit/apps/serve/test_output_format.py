"""The forms of answers that clients ask for, and how a wrong one is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.serve.schema.output_format import response_format, text_format
from shared.constrain.grammar import Grammar, any_json_object, json_grammar
from shared.errors import RequestError

_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def test_text_is_no_form() -> None:
    for value in (None, {"type": "text"}):
        assert response_format(value) is None
        assert text_format(value) is None


def test_any_object() -> None:
    for read in (response_format, text_format):
        assert read({"type": "json_object"}) == any_json_object()


def test_a_schema_stands_where_each_dialect_has_it() -> None:
    named = {"name": "answer", "strict": False, "schema": _SCHEMA}
    assert response_format({"type": "json_schema", "json_schema": named}) == json_grammar(_SCHEMA)
    assert text_format({"type": "json_schema"} | named) == json_grammar(_SCHEMA)


@pytest.mark.parametrize(
    ("read", "value", "place"),
    [
        (response_format, [], "response_format: "),
        (response_format, {}, "response_format.type: "),
        (response_format, {"type": "grammar"}, "response_format.type: "),
        (response_format, {"type": "json_schema", "json_schema": 3}, "response_format.json_schema: "),
        (response_format, {"type": "json_schema", "schema": _SCHEMA}, "response_format.json_schema: "),
        (
            response_format,
            {"type": "json_schema", "json_schema": {"schema": {"properties": {"a": {"not": {}}}}}},
            "response_format.json_schema.schema.properties.a: cannot be enforced: ",
        ),
        (text_format, {"type": "json_schema", "name": "x"}, "text.format.schema: "),
        (
            text_format,
            {"type": "json_schema", "schema": {"items": {"type": "int"}}},
            "text.format.schema.items: cannot be enforced: ",
        ),
    ],
)
def test_a_wrong_form_is_refused_with_its_place(
    read: Callable[[Any], Grammar | None], value: Any, place: str
) -> None:
    with pytest.raises(RequestError) as refused:
        read(value)
    assert str(refused.value).startswith(place)
    assert refused.value.param == place.partition(":")[0].partition(".")[0]
    assert refused.value.status == 400


_KEYWORDS = st.sampled_from(
    [
        *(
            "type",
            "properties",
            "required",
            "items",
            "prefixItems",
            "anyOf",
            "oneOf",
            "allOf",
            "enum",
            "const",
        ),
        *("pattern", "format", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "title"),
        *("multipleOf", "minItems", "maxItems", "additionalProperties", "patternProperties", "$ref", "$defs"),
        *("definitions", "x-guidance", "$schema", "$id", "minProperties", "maxProperties", "default"),
    ]
)
_VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["string", "integer", "object", "#", "#/$defs/a", "(", "[a-", "date-time", "a{99999}"])
    | st.text(max_size=5)
)
_SCHEMAS = st.recursive(
    _VALUES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_KEYWORDS | st.text(max_size=2), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(st.dictionaries(_KEYWORDS, _SCHEMAS, max_size=5))
def test_any_schema_is_taken_or_refused(schema: dict[str, Any]) -> None:
    with contextlib.suppress(RequestError):
        assert text_format({"type": "json_schema", "schema": schema}) is not None
