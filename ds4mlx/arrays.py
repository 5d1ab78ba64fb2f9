"""The arrays that values are made of. Must not know: what they stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import mlx.core as mx


def arrays(value: object) -> Iterator[mx.array]:
    """All arrays below an array, a tuple, a list or a dataclass, in order; anything else holds none."""
    if isinstance(value, mx.array):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from arrays(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from arrays(getattr(value, field.name))


def rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """`value` with what `change` makes of its parts, in the order of `arrays`. Of what it makes None it gets
    the parts below, and what has none below stays as it is."""
    changed = change(value)
    if changed is not None:
        return changed
    if isinstance(value, tuple | list):
        return type(value)(rebuilt(item, change) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: rebuilt(getattr(value, field.name), change) for field in fields(value)}
        return replace(value, **parts)
    return value
