"""Every kernel's complete Metal text, as Apple's compiler would get it for models of real dimensions."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import product
from math import prod

import pytest

from tests.ksim import clang_missing
from tests.ksim.address_spaces import address_space_errors
from tests.ksim.metal_lint import MAX_THREADS, lint
from tests.ksim.signature import mlx_source
from tests.support.traced_models import EACH_AND_PROOF, EVERYDAY, MODELS, PROOF, launches
from tests.support.traced_steps import Launch

# MLX copies header and body at each call.
LONGEST = 9 * 1024
# What counts on whole simdgroups, and what on whole threadgroups.
_LANES = re.compile(r"\bsimd_\w+|\bsimdgroup\w+|\bthread_index_in_simdgroup\b")
_MEMORY = re.compile(r"\bthreadgroup_barrier\b")


@cache
def sources(name: str) -> dict[str, Launch]:
    """The different texts of a model's kernels, each with a launch."""
    different = {(launch.text, launch.signature): launch for launch in launches(name)}
    return {mlx_source(launch.small_call()): launch for launch in different.values()}


def threadgroups(launch: Launch) -> set[tuple[int, ...]]:
    """Sizes of the threadgroups of a launch: at the far ends of a grid there can be smaller ones."""
    axes = [
        {min(group, threads), (threads - 1) % group + 1}
        for threads, group in zip(launch.grid, launch.threadgroup, strict=True)
    ]
    return set(product(*axes))


def geometry_faults(launch: Launch) -> list[str]:
    """What is wrong with how many threads are launched."""
    text, sizes = "".join(launch.text), threadgroups(launch)
    found = []
    if min(launch.grid) < 1 or prod(launch.threadgroup) > MAX_THREADS:
        found.append(f"grid {launch.grid}, threadgroups {launch.threadgroup}")
    if _LANES.search(text) and any(prod(size) % 32 for size in sizes):
        found.append(f"threadgroups of {sizes} are not of whole simdgroups")
    if _MEMORY.search(text) and sizes != {launch.threadgroup}:
        found.append(f"threadgroups of {sizes} share memory as if of {launch.threadgroup}")
    return found


@pytest.mark.parametrize("name", EACH_AND_PROOF)
def test_texts_are_metal(name: str) -> None:
    found = {launch.name: lint(source, launch.threads) for source, launch in sources(name).items()}
    assert {kernel: faults for kernel, faults in found.items() if faults} == {}


@pytest.mark.parametrize("name", EACH_AND_PROOF)
def test_launches_are_whole_threadgroups(name: str) -> None:
    found = {launch.name: geometry_faults(launch) for launch in launches(name)}
    assert {kernel: faults for kernel, faults in found.items() if faults} == {}


def test_wrong_launches_are_seen() -> None:
    launch = next(launch for launch in launches("tiny") if launch.kernel == "hyper_collapse")
    x, y, z = launch.grid
    wide, group = launch.threadgroup[0], launch.threadgroup
    assert geometry_faults(launch) == []
    assert geometry_faults(replace(launch, grid=(x, y, 0)))
    assert geometry_faults(replace(launch, threadgroup=(1025, 1, 1)))
    assert geometry_faults(replace(launch, threadgroup=(2 * x, *group[1:])))
    assert geometry_faults(replace(launch, grid=(x + wide // 2, y, z)))
    lanes = replace(launch, text=("", "simd_sum(1)"), grid=(32, 9, 1), threadgroup=(32, 8, 1))
    assert geometry_faults(lanes) == []
    assert geometry_faults(replace(lanes, grid=(31, 9, 1)))
    assert geometry_faults(replace(lanes, text=("", "simd_sum(1) threadgroup_barrier")))


@pytest.mark.parametrize("name", EACH_AND_PROOF)
def test_texts_are_short(name: str) -> None:
    long = {launch.name: len("".join(launch.text)) for launch in launches(name)}
    assert {kernel: length for kernel, length in long.items() if length > LONGEST} == {}


def without_numbers(source: str) -> str:
    """A text whose constants hide which dimensions it is for; a flag, which may leave out code, stays."""
    return re.sub(r"(constexpr const (?:int|float) \w+ = )[^;]+;", r"\1;", source)


@pytest.mark.skipif(clang_missing() is not None, reason=str(clang_missing()))
@pytest.mark.parametrize(
    "names", [tuple(EVERYDAY), pytest.param((PROOF, *MODELS), marks=pytest.mark.long)], ids=["few", "all"]
)
def test_pointers_have_their_address_spaces(names: tuple[str, ...]) -> None:
    """Of texts that differ in numbers alone one is checked."""
    different = {
        without_numbers(source): (launch.name, source)
        for name in names
        for source, launch in sources(name).items()
    }
    found = {kernel: address_space_errors(source) for kernel, source in different.values()}
    assert {kernel: faults for kernel, faults in found.items() if faults} == {}
