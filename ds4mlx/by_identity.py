"""What was made for objects of a model, found again by which objects they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ByIdentity:
    """Makes something once for a pair of objects: for weights, telling what they are like would take longer
    than launching a kernel."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make
        self._made: dict[tuple[int, int], tuple[Any, Any, Any]] = {}

    def __call__(self, first: object, second: object, *others: Any) -> Any:
        """What `make` made of both and of the `others` that came with them the first time."""
        key = (id(first), id(second))
        found = self._made.get(key)
        if found is None:
            # The objects are kept too, so that no other one can take their identity.
            found = self._made[key] = (self._make(first, second, *others), first, second)
        return found[0]
