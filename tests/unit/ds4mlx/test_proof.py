"""Kernels that do not hold on a device are found out, whatever the way in which they fail."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

mx = pytest.importorskip("mlx.core")

from ds4mlx.kernel_choice import SWITCH, choose_kernels  # noqa: E402
from ds4mlx.kernels import registry  # noqa: E402
from ds4mlx.kernels.kernel import Example  # noqa: E402
from ds4mlx.kernels.proof import Verdict, verdicts  # noqa: E402
from ds4mlx.kernels.registry import OPERATIONS  # noqa: E402

DOUBLED = [2.0, 4.0, 6.0]


def double(x: Any) -> Any:
    return x * 2


def built(maker: Callable[[], Callable[[Any], Any]]) -> Callable[[Any], Any]:
    return maker()


def example(tolerance: float = 0.0) -> Example:
    return Example("three numbers", built, double, (mx.array([1.0, 2.0, 3.0]),), tolerance)


def failure(kernel: Callable[[Any], Any], tolerance: float = 0.0) -> str | None:
    """What the proof says of a kernel that should double three numbers."""
    [verdict] = verdicts(
        lambda: kernel,
        None,
        operations=["double"],
        examples=lambda name: [example(tolerance)],
        clock=lambda: 0.0,
    )
    assert verdict.operation == "double"
    return verdict.failure


def refused(_: Any) -> Any:
    raise RuntimeError("program_source:3:\n  error: address space")


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (lambda x: mx.array([2.0, 4.0, 6.5]), "off by 0.5, 0 allowed"),
        (lambda x: mx.array([2.0, mx.nan, 6.0]), "infinities or NaN"),
        (lambda x: mx.array([2.0, mx.inf, 6.0]), "infinities or NaN"),
        (lambda x: mx.array(DOUBLED).astype(mx.float16), "mlx.core.float16"),
        (lambda x: mx.array([DOUBLED]), r"\(1, 3\), not"),
        (lambda x: (mx.array(DOUBLED), mx.array(DOUBLED)), "2 results, not 1"),
        (refused, "RuntimeError: program_source:3: error: address space"),
    ],
)
def test_a_failing_kernel_is_found(kernel: Callable[[Any], Any], said: str) -> None:
    found = failure(kernel)
    assert found is not None
    assert "\n" not in found
    assert re.search(said, found)


def test_a_kernel_that_agrees_passes() -> None:
    assert failure(lambda x: x + x) is None
    assert failure(lambda x: mx.array([2.0, 4.0, 6.005]), tolerance=1e-3) is None
    assert failure(lambda x: mx.array([2.0, 4.0, 6.007]), tolerance=1e-3) is not None


def test_infinities_that_the_fallback_has_too_are_right() -> None:
    values = mx.array([1.0, -mx.inf])
    agreeing = Example("infinite", built, double, (values,), 0.0)
    [verdict] = verdicts(lambda: double, None, operations=["d"], examples=lambda name: [agreeing])
    assert verdict.failure is None


def test_verdicts_are_kept_and_asked_for_once(tmp_path: Path) -> None:
    asked: list[str] = []

    def examples(name: str) -> list[Example]:
        asked.append(name)
        return [example()]

    cache = tmp_path / "deep" / "v.json"
    prove = partial(verdicts, lambda: double, cache, examples=examples, clock=lambda: 0.0)
    first = prove(operations=["a", "b"])
    assert prove(operations=["a", "b"]) == first
    assert asked == ["a", "b"]
    prove(operations=["a", "c"])  # another set of operations: the file does not answer for it
    assert asked == ["a", "b", "a", "c"]


@pytest.mark.parametrize("content", ["", "{", "[]", "[1]", '[{"operation": "a"}]', "null"])
def test_a_damaged_file_of_verdicts_is_made_anew(content: str, tmp_path: Path) -> None:
    cache = tmp_path / "v.json"
    cache.write_text(content)
    found = verdicts(lambda: double, cache, operations=["a"], examples=lambda name: [example()])
    assert [verdict.failure for verdict in found] == [None]
    assert json.loads(cache.read_text())[0]["operation"] == "a"


def test_a_cache_that_cannot_be_written_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = tmp_path / "file" / "v.json"
    found = verdicts(lambda: double, cache, operations=["a"], examples=lambda name: [example()])
    assert [verdict.failure for verdict in found] == [None]


def device(metal: bool) -> Any:
    """An `mlx.core` on a machine of one's choice."""
    return SimpleNamespace(
        metal=SimpleNamespace(is_available=lambda: metal),
        fast=SimpleNamespace(metal_kernel=lambda **_: None),
        cpu="cpu",
        Device=lambda kind: kind,
        default_device=lambda: "gpu" if metal else "cpu",
        device_info=lambda: {"device_name": "Apple M9"},
        __version__="9.9",
    )


def outcomes(**failures: str) -> Callable[[Any, Path], list[Verdict]]:
    return lambda maker, cache: [Verdict(name, failures.get(name), 1.0) for name in OPERATIONS]


def test_without_metal_every_operation_falls_back_without_a_warning() -> None:
    choice = choose_kernels(device(metal=False), {})
    assert {found.status for found in choice.statuses} == {"fallback"}
    assert [found.operation for found in choice.statuses] == list(OPERATIONS)
    assert choice.warnings() == []
    assert choice.maker("route") is None


def test_kernels_that_failed_fall_back_with_one_warning(tmp_path: Path) -> None:
    choice = choose_kernels(device(metal=True), {}, outcomes(route="off by 3", top_k="no"), tmp_path)
    assert choice.maker("route") is None
    assert choice.maker("attend") is not None
    (warning,) = choice.warnings()
    assert "(top_k: no; route: off by 3)" in warning
    assert "ds4 doctor" in warning


def test_kernels_can_be_switched_off(tmp_path: Path) -> None:
    everything = choose_kernels(device(metal=True), {SWITCH: "all"}, outcomes(), tmp_path)
    assert all(everything.maker(name) is None for name in OPERATIONS)
    some = choose_kernels(device(metal=True), {SWITCH: "route, attend"}, outcomes(route="off"), tmp_path)
    assert [name for name in OPERATIONS if some.maker(name) is None] == ["attend", "route"]
    assert everything.warnings() == some.warnings() == []


@pytest.mark.parametrize("metal", [False, True])
def test_a_name_that_no_operation_has_is_told_and_the_others_hold(metal: bool, tmp_path: Path) -> None:
    switched = {SWITCH: "route,rout, ,ALL"}
    choice = choose_kernels(device(metal=metal), switched, outcomes(), tmp_path)
    (warning,) = choice.warnings()
    assert warning.startswith("DS4_KERNELS_OFF names no operation with 'ALL', 'rout': write all, or some of")
    assert choice.maker("route") is None
    assert (choice.maker("attend") is not None) == metal
    assert choose_kernels(device(metal=metal), {SWITCH: " all "}, outcomes(), tmp_path).warnings() == []


def test_the_verdicts_file_depends_on_device_system_and_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def prove(maker: Any, cache: Path) -> list[Verdict]:
        asked.append(cache)
        return []

    choose_kernels(device(metal=True), {}, prove, tmp_path)
    other = device(metal=True)
    other.device_info = lambda: {"device_name": "Apple M8"}
    choose_kernels(other, {}, prove, tmp_path)
    newer = device(metal=True)
    newer.__version__ = "10"
    choose_kernels(newer, {}, prove, tmp_path)
    monkeypatch.setattr("ds4mlx.kernel_choice.digest", lambda: "other texts")
    choose_kernels(device(metal=True), {}, prove, tmp_path)
    choose_kernels(device(metal=True), {}, prove, tmp_path)
    assert len(set(asked)) == 4
    assert asked[3] == asked[4]


@pytest.mark.parametrize("changed", ["route/kernel.metal", "route/__init__.py", "headers/sums.metal"])
def test_the_digest_is_of_texts_launchers_and_headers(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "PACKAGE", tmp_path)
    for name in ("route/kernel.metal", "route/__init__.py", "headers/sums.metal"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")
    before = registry.digest()
    (tmp_path / "route" / "compiled.pyc").write_text("2")
    assert registry.digest() == before
    (tmp_path / changed).write_text("2")
    assert registry.digest() != before


def test_an_operation_that_ended_the_process_is_not_tried_again(tmp_path: Path) -> None:
    cache = tmp_path / "v.json"
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from ds4mlx.kernels.proof import verdicts\n"
        "def examples(name):\n"
        "    if name == 'b':\n"
        "        os._exit(9)\n"
        "    return []\n"
        "verdicts(None, Path(sys.argv[1]), operations=['a', 'b', 'c'], examples=examples)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(cache)], check=False)
    assert ended.returncode == 9
    found = verdicts(lambda: double, cache, operations=["a", "b", "c"], examples=lambda name: [example()])
    assert [verdict.failure for verdict in found] == [
        None,
        "the process ended while its kernels were tried",
        None,
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["v.json"]


def test_the_note_of_a_living_process_is_left_alone(tmp_path: Path) -> None:
    note = tmp_path / f"v.trying-{os.getppid()}"
    note.write_text("a")
    found = verdicts(lambda: double, tmp_path / "v.json", operations=["a"], examples=lambda name: [example()])
    assert found[0].failure is None
    assert note.exists()


def test_a_failure_is_tried_again_by_the_next_process(tmp_path: Path) -> None:
    cache = tmp_path / "v.json"
    prove = partial(verdicts, cache=cache, operations=["a"], examples=lambda name: [example()])
    assert prove(refused)[0].failure is not None
    assert not cache.exists()
    assert prove(lambda: double)[0].failure is None
    assert prove(refused)[0].failure is None  # kept
