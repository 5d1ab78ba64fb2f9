"""The arrays that values are made of. Must not know: what they stand for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

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
