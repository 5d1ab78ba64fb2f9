from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import ds4mlx
from ds4mlx.settings import BUFFER_SETTINGS, prepare_environment, set_wired_limit, touches_weights


class FakeMlx:
    """Stands for `mlx.core` on a machine with Metal."""

    def __init__(self, available: bool = True, recommended: int = 1000) -> None:
        self.metal: Any = self
        self.limits: list[int] = []
        self._available = available
        self._recommended = recommended

    def is_available(self) -> bool:
        return self._available

    def device_info(self) -> dict[str, int]:
        return {"max_recommended_working_set_size": self._recommended}

    def set_wired_limit(self, limit: int) -> None:
        self.limits.append(limit)


@pytest.mark.parametrize("chip", ["Apple M1", "Apple M2 Ultra", "Apple M3 Max", "Apple M4 Pro"])
def test_buffers_grow_on_tuned_chips(chip: str) -> None:
    environment: dict[str, str] = {}
    prepare_environment(environment, chip)
    assert environment == BUFFER_SETTINGS


@pytest.mark.parametrize("chip", ["Apple M5", "Apple M10", "Apple M40", "Intel(R) Core(TM) i9", ""])
def test_other_chips_are_left_alone(chip: str) -> None:
    environment: dict[str, str] = {}
    prepare_environment(environment, chip)
    assert environment == {}


def test_the_users_value_wins() -> None:
    environment = {"MLX_MAX_OPS_PER_BUFFER": "7"}
    prepare_environment(environment, "Apple M3")
    assert environment["MLX_MAX_OPS_PER_BUFFER"] == "7"


@pytest.mark.parametrize(("needed", "limit"), [(600, 600), (5000, 1000)])
def test_the_wired_limit_is_what_is_needed_and_never_more_than_recommended(needed: int, limit: int) -> None:
    fake = FakeMlx()
    assert set_wired_limit(fake, needed, {}) == limit
    assert fake.limits == [limit]


def test_the_wired_limit_can_be_switched_off() -> None:
    fake = FakeMlx()
    assert set_wired_limit(fake, 10, {"DS4_NO_WIRED": "1"}) == 0
    assert fake.limits == []
    assert set_wired_limit(fake, 10, {"DS4_NO_WIRED": "0"}) == 10


def test_without_metal_there_is_no_wired_limit() -> None:
    fake = FakeMlx(available=False)
    assert set_wired_limit(fake, 10, {}) == 0
    assert fake.limits == []


def test_weights_are_touched_unless_switched_off() -> None:
    assert touches_weights({})
    assert touches_weights({"DS4_NO_TOUCH": "0"})
    assert not touches_weights({"DS4_NO_TOUCH": "1"})


def test_memory_limits_are_set_in_one_place() -> None:
    """A wired limit that is set here and there, or changed while buffers come and go, has brought whole
    machines down."""
    limits = ("set_wired_limit", "set_memory_limit", "set_cache_limit")
    root = Path(ds4mlx.__file__).parents[1]
    found = [
        (path.relative_to(root).as_posix(), ast.unparse(node))
        for package in ("apps", "shared", "ds4mlx", "ds4cuda", "bench")
        for path in sorted((root / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node).split(".")[-1] in limits
    ]
    assert found == [("ds4mlx/engine.py", "set_wired_limit"), ("ds4mlx/settings.py", "mx.set_wired_limit")]
