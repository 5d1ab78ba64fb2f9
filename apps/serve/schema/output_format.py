"""The form that a client wants its answer in: `response_format` of chat, `text.format` of responses,
`output_config.format` of messages.

Spec: chat §5.4. Knows no HTTP and no tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shared.constrain.grammar import Grammar, SchemaError, any_json_object, json_grammar
from shared.errors import RequestError


def response_format(value: Any) -> Grammar | None:
    """Of chat: `{"type": "json_schema", "json_schema": {"schema": ...}}`. None: the answer is free text.

    Raises RequestError naming the place that is wrong, or that cannot be enforced.
    """
    kind = _kind(value, "response_format")
    if kind != "json_schema":
        return _simple(kind, "response_format")
    wrapped = value.get("json_schema")
    if not isinstance(wrapped, Mapping):
        raise _wrong("response_format.json_schema", "send an object with the schema")
    return _schema(wrapped, "response_format.json_schema")


def text_format(value: Any, field: str = "text.format") -> Grammar | None:
    """Of responses and messages, the value of `field`: `{"type": "json_schema", "schema": ...}`. None: free
    text.

    Raises RequestError naming the place that is wrong, or that cannot be enforced.
    """
    kind = _kind(value, field)
    return _schema(value, field) if kind == "json_schema" else _simple(kind, field)


def _kind(value: Any, field: str) -> str:
    """The type that a format says it has; text where there is none."""
    if value is None:
        return "text"
    if not isinstance(value, Mapping):
        raise _wrong(field, "must be an object")
    kind = value.get("type")
    if not isinstance(kind, str):
        raise _wrong(f"{field}.type", "must be text, json_object or json_schema")
    return kind


def _simple(kind: str, field: str) -> Grammar | None:
    if kind == "text":
        return None
    if kind == "json_object":
        return any_json_object()
    raise _wrong(f"{field}.type", f"{kind[:50]!r} is not supported: use text, json_object or json_schema")


def _schema(holder: Mapping[str, Any], field: str) -> Grammar:
    schema = holder.get("schema")
    if not isinstance(schema, Mapping):
        raise _wrong(f"{field}.schema", "send the JSON schema, an object")
    try:
        return json_grammar(schema)
    except SchemaError as error:
        raise _wrong(f"{field}.schema", f"cannot be enforced: {error}", error.place) from None


def _wrong(field: str, reason: str, place: Sequence[str] = ()) -> RequestError:
    where = ".".join((field, *place))
    return RequestError(f"{where[:300]}: {reason}", param=field.partition(".")[0])
