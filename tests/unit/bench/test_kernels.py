"""bench/kernels.md is what its generator gives, and adds up."""

from __future__ import annotations

import pytest

pytest.importorskip("mlx.core")

from bench.kernels import CONTEXTS, PAGE, page


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m bench.kernels`"


def test_the_page_says_that_nothing_was_measured() -> None:
    assert "**Nothing on this page was measured on a Mac**" in page()


@pytest.mark.parametrize("context", CONTEXTS)
def test_floors_and_shares_add_up(context: int) -> None:
    _, section = page().split(f"## Decoding after {context:,} tokens, kernel by kernel")
    table = section.split("\n## ")[0].splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table if line.startswith("| ")]
    heads, *lines, whole = (row for row in rows if row[0] != "---")
    for name in heads[3:]:
        column = heads.index(name)
        parts = [float(line[column].replace(",", "").removesuffix(" %")) for line in lines]
        expected = float(whole[column].replace(",", "").removesuffix(" %"))
        assert sum(parts) == pytest.approx(expected, rel=1e-3, abs=0.06 * len(parts)), name
    # Milliseconds of the whole token are those of the first table.
    (line,) = (line for line in page().splitlines() if line.startswith(f"| Flash q2 | {context:,} |"))
    at_546 = float(whole[heads.index("us at 546 GB/s")].replace(",", ""))
    assert f"| {at_546 / 1e3:.2f} (" in line
