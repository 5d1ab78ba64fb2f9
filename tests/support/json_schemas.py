"""Random JSON schemas of the kinds that clients send and that can be enforced."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

_KEYS = st.text('abé"\\ <｜', min_size=1, max_size=4)
_WORDS = st.text("abx<>`｜\n", max_size=6) | st.sampled_from(["<think>", "</think>", "<｜DSML｜tool_calls>"])


@st.composite
def _objects(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    properties = draw(st.dictionaries(_KEYS, inner, max_size=4))
    required = draw(st.sets(st.sampled_from(sorted(properties)))) if properties else set()
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": sorted(required)}
    more = draw(st.sampled_from([None, False]) | inner)
    return schema if more is None else schema | {"additionalProperties": more}


@st.composite
def _arrays(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    least = draw(st.integers(0, 3))
    return {
        "type": "array",
        "items": draw(inner),
        "minItems": least,
        "maxItems": least + draw(st.integers(0, 3)),
    }


@st.composite
def _strings(draw: st.DrawFn) -> dict[str, Any]:
    least = draw(st.integers(0, 5))
    sizes = {"minLength": least, "maxLength": least + draw(st.integers(0, 20))}
    return {"type": "string"} | draw(
        st.sampled_from([{}, sizes, {"pattern": "^[a-f]{2,7}$"}, {"pattern": "^x.?y$"}, {"format": "date"}])
    )


@st.composite
def _integers(draw: st.DrawFn) -> dict[str, Any]:
    least = draw(st.integers(-1000, 1000))
    return {"type": "integer", "minimum": least, "maximum": least + draw(st.integers(0, 5000))}


_VALUES = st.none() | st.booleans() | st.integers(-99, 99) | _WORDS | st.lists(_WORDS, max_size=2)
_LEAVES = (
    _strings()
    | _integers()
    | st.sampled_from(["boolean", "null", "number", "integer"]).map(lambda kind: {"type": kind})
    | st.lists(_VALUES, min_size=1, max_size=4).map(lambda values: {"enum": values})
    | _VALUES.map(lambda value: {"const": value})
)


def json_schemas() -> st.SearchStrategy[Any]:
    """Objects, arrays, choices and leaves, a few levels deep."""
    return st.recursive(
        _LEAVES,
        lambda inner: (
            _objects(inner)
            | _arrays(inner)
            | st.lists(inner, min_size=1, max_size=3).map(lambda s: {"anyOf": s})
        ),
        max_leaves=8,
    )
