"""docs/kernels.md says of each operation and each kernel what a traced step really launches."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("mlx.core")

from bench.flash_graph import flash_graph
from bench.host_overhead import mean_launches
from ds4mlx.costs.workload import Moment
from ds4mlx.kernel_choice import SWITCH
from ds4mlx.kernels.registry import OPERATIONS, operation
from ds4mlx.model import STAGES
from shared.gguf.types import TensorType
from shared.model.known_shapes import FLASH
from tests.support.traced_steps import Launch, traced_step

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/kernels.md"
TEXT = PAGE.read_text(encoding="utf-8")
RATIOS = (0, 4, 128)
# A layer before those of the three ratios: the first one begins differently.
SHAPE = replace(FLASH, layer_count=4, compress_ratios=(0, *RATIOS), hash_layers=3)
# (position, tokens) of the tables: no window ends, all end; the same with many tokens; as sizes are told.
NO_WINDOW, ALL_WINDOWS, MANY = (4096, 1), (4095, 1), (4000, 100)
SIZES = (32_767, 1), (28_672, 4096)
MOST_FIGURE_LINES = 12


@cache
def launches(position: int, count: int) -> list[Launch]:
    """Of a step, but for those that put rows below one another for the state."""
    traced = traced_step(SHAPE, (TensorType.IQ2_XXS, TensorType.Q2_K), Moment(position, count))
    return [launch for launch in traced.sequence if launch.operation != "stack_rows"]


def table(title: str) -> list[list[str]]:
    """Cells of the table behind the comment `title`, without its head."""
    behind = TEXT.split(f"<!-- {title} -->\n")[1].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in behind.splitlines()[2:]]


def names(cell: str) -> set[str]:
    """Kernels in a cell; a star stands for the block types that experts may have."""
    found = re.findall(r"`([a-z0-9_]+\*?)`", cell)
    return {name.replace("*", kind) for name in found for kind in ("iq2_xxs", "q2_k", "q4_k")}


def section(name: str) -> str:
    found = re.search(rf"^### {name}\n(.*?)(?=^##)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, name
    return found[1]


@pytest.mark.parametrize(("title", "step"), [("one token", NO_WINDOW), ("many tokens", MANY)])
def test_launches_of_a_layer(title: str, step: tuple[int, int]) -> None:
    *rows, last = table(f"launches of {title}")
    found = [launch for launch in launches(*step) if launch.layer is not None]
    for column, ratio in enumerate(RATIOS):
        told: Counter[str] = Counter()
        for _, operation_cell, _, *counts in rows:
            told[operation_cell.strip("`")] += int(counts[column] or 0)
        layer = column + 1
        traced = Counter(launch.operation for launch in found if launch.layer == layer)
        assert traced == +told, ratio
        assert last[3 + column] == f"**{traced.total()}**"
    # The first layer mixes streams that nothing joins.
    first = [launch.kernel for launch in found if launch.layer == 0]
    second = [launch.kernel for launch in found if launch.layer == 1]
    assert first == ["hyper_mix", *second[1:]]


@pytest.mark.parametrize(("title", "step"), [("one token", NO_WINDOW), ("many tokens", MANY)])
def test_kernels_of_an_operation(title: str, step: tuple[int, int]) -> None:
    rows = table(f"launches of {title}")[:-1]
    told = {(cells[1].strip("`"), name) for cells in rows for name in names(cells[2])}
    traced = {
        ("hyper_join" if launch.operation == "hyper_mix" else launch.operation, launch.kernel)
        for launch in launches(*step)
        if launch.layer is not None
    }
    assert traced <= told
    of_other_types = {pair for pair in told - traced if pair[1].endswith(("iq2_xxs", "q2_k", "q4_k"))}
    assert told - traced == of_other_types


def test_stages_are_those_of_the_model() -> None:
    for title in ("one token", "many tokens"):
        told = {name for cells in table(f"launches of {title}")[:-1] for name in cells[0].split(", ") if name}
        # The embedding is MLX's; the head comes after the layers; compress depends on the step.
        assert told <= set(STAGES)
        assert set(STAGES) - told <= {"embed", "output_head", "compress"}


def test_an_ending_window_adds_a_launch() -> None:
    for layer, kernel in ((2, "compress_rows_and_index"), (3, "compress_rows")):
        without, ending = (
            Counter(launch.kernel for launch in launches(*step) if launch.layer == layer)
            for step in (NO_WINDOW, ALL_WINDOWS)
        )
        assert ending - without == {kernel: 1}
        assert not without - ending


def test_after_the_last_layer() -> None:
    last = [launch.kernel for launch in launches(*NO_WINDOW) if launch.layer is None]
    assert f"After the last layer: {', '.join(f'`{name}`' for name in last[:-1])} and `{last[-1]}`" in TEXT


def test_launches_of_a_step_add_up() -> None:
    of_layers = Counter(FLASH.compress_ratios)
    counts = [int(cell.strip("*")) for cell in table("launches of one token")[-1][3:]]
    terms = [f"{of_layers[ratio]} × {count}" for ratio, count in zip(RATIOS, counts, strict=True)]
    total = sum(of_layers[ratio] * count for ratio, count in zip(RATIOS, counts, strict=True)) + 3 + 4
    assert f"{' + '.join(terms)} + 3 + 4 = **{total}**" in " ".join(TEXT.split())
    found = mean_launches(flash_graph(raw=True, kernels=True))
    assert f"**{found['no window']}** in all, and **{found['mean']:.0f}** on the average" in " ".join(
        TEXT.split()
    )


def test_choosing_begins_where_it_is_told() -> None:
    said = re.search(r"from token ([\d,]+) on\)", TEXT)
    assert said
    first = int(said[1].replace(",", ""))
    kernels = [{launch.kernel for launch in launches(first - back, 1)} for back in (2, 1)]
    assert ["top_k" in found for found in kernels] == [False, True]


def test_sizes_of_launches() -> None:
    def cell(found: list[int]) -> str:
        return "; ".join(f"{number:,}" for number in sorted(set(found)))

    steps = [launches(*step) for step in SIZES]
    told = {cells[0].strip("`"): cells[1:] for cells in table("sizes of launches")}
    assert set(told) == {launch.kernel for step in steps for launch in step}
    for kernel, (threads, *groups) in told.items():
        traced = [[launch for launch in step if launch.kernel == kernel] for step in steps]
        assert groups == [cell([launch.groups for launch in step]) for step in traced], kernel
        every = {launch.threads for step in traced for launch in step}
        assert {int(number.replace(",", "")) for number in re.findall(r"[\d,]+", threads)} == every, kernel


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_is_drawn_and_its_kernels_named(name: str) -> None:
    text = section(name)
    assert {kernel.name for kernel in operation(name).KERNELS} <= names(text)
    figures = re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert figures
    for figure in figures:
        lines = figure.splitlines()
        assert len(lines) <= MOST_FIGURE_LINES
        assert max(map(len, lines)) <= 120


def test_operations_come_in_the_order_of_the_page() -> None:
    told = re.findall(r"^### (\w+)$", TEXT, re.MULTILINE)
    assert sorted(told) == sorted(OPERATIONS)
    assert f"made of {len(told)} *operations*" in TEXT
    assert f"the {len(told)} operations" in (ROOT / "docs/architecture.md").read_text(encoding="utf-8")


def test_files_and_switches_exist() -> None:
    for path in re.findall(r"`((?:tests|ds4mlx|bench)/[\w./*-]+)`", TEXT):
        assert list(ROOT.glob(path.rstrip("/"))), path
    for link in re.findall(r"\]\(([\w./-]+\.md)\)", TEXT):
        assert (PAGE.parent / link).is_file(), link
    assert f"`{SWITCH}=all`" in TEXT


def test_links_within_the_page_lead_somewhere() -> None:
    heads = {
        re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-")
        for head in re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([\w-]+)\)", TEXT)) <= heads
