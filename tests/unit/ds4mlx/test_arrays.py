"""Arrays below values are found in order, and exchanged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

mx = pytest.importorskip("mlx.core")

from ds4mlx.arrays import arrays, rebuilt  # noqa: E402


@dataclass(frozen=True)
class Pair:
    first: Any
    second: Any


def test_parts_are_exchanged_in_their_order_and_all_else_is_kept() -> None:
    value = (Pair(mx.array(1), "name"), [mx.array(2), None, Pair(mx.array(3), 4)])

    def doubled(part: Any) -> Any:
        return 2 * part if isinstance(part, mx.array) else None

    changed = rebuilt(value, doubled)
    assert [array.item() for array in arrays(changed)] == [2, 4, 6]
    assert changed[0].second == "name"
    assert changed[1][1] is None
    assert changed[1][2].second == 4
    assert [array.item() for array in arrays(value)] == [1, 2, 3]


def test_what_is_exchanged_as_a_whole_is_not_looked_into() -> None:
    changed = rebuilt([Pair(mx.array(1), mx.array(2))], lambda part: 5 if isinstance(part, Pair) else None)
    assert changed == [5]
