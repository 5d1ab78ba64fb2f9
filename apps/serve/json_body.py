"""Reading a JSON request body: strict grammar, bounded depth, clean text.

Knows no endpoint. Every fault is one `RequestError`; no input raises anything else.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from shared.errors import RequestError

_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def parse_object(body: bytes, *, depth: int) -> dict[str, Any]:
    """The JSON object in `body`. The last of duplicate keys wins; lone surrogates become U+FFFD.

    Raises RequestError (400) for an empty body, bytes that are not UTF-8, bad JSON (`NaN` and trailing
    text included), a number outside the double range, more than `depth` levels, or another JSON type.
    """
    if not body.strip():
        raise RequestError("the request body is empty: send a JSON object")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RequestError(f"the request body is not UTF-8 (byte {error.start})") from None
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise RequestError(
            f"the request body is not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        ) from None
    except RecursionError:
        raise _too_deep(depth) from None
    except ValueError:
        # Python refuses to convert integers of thousands of digits.
        raise RequestError("the request body holds a number that is too large") from None
    if not isinstance(value, dict):
        raise RequestError(f"the request body must be a JSON object, not {_kind(value)}")
    _check_depth(value, depth)
    members: dict[str, Any] = without_lone_surrogates(value) if _SURROGATE_ESCAPE.search(body) else value
    return members


def _check_depth(value: Any, depth: int) -> None:
    level = [value]
    for _ in range(depth):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise _too_deep(depth)


def without_lone_surrogates(value: Any) -> Any:
    """`value` with U+FFFD for what no UTF-8 can hold. It must not be deeper than Python recurses."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [without_lone_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {without_lone_surrogates(key): without_lone_surrogates(item) for key, item in value.items()}
    return value


def _too_deep(depth: int) -> RequestError:
    return RequestError(f"the request body nests more than {depth} levels deep")


def _refuse_constant(name: str) -> NoReturn:
    raise RequestError(f"the request body is not valid JSON: {name} is not a JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise RequestError("the request body holds a number that is too large")
    return value


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array"}
    return names[type(value)]
