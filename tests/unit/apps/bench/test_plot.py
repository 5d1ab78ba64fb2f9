"""The chart of a sweep."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.bench.plot import PlotError, Point, draw, read_points, rounded_maximum, write_chart

SWEEP = """ctx_tokens,prefill_tokens,prefill_tps,gen_tokens,gen_tps,kvcache_bytes
4096,2048,375.45,128,13.84,80373132
2048,2048,402.88,128,14.20,52184460
"""
SVG = "{http://www.w3.org/2000/svg}"


def test_rows_are_sorted_and_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "m4.csv"
    path.write_text(SWEEP, encoding="utf-8-sig")
    assert read_points(path) == [Point(2048, 402.88, 14.2), Point(4096, 375.45, 13.84)]


def test_the_chart_has_both_lines_on_their_own_axes(tmp_path: Path) -> None:
    path = tmp_path / "m4_max.csv"
    path.write_text(SWEEP)
    output = write_chart(path, None, None, 960, 540)
    assert output == tmp_path / "m4_max_ts.svg"
    root = ElementTree.fromstring(output.read_text())
    lines = {line.get("stroke"): line.get("points") for line in root.iter(f"{SVG}polyline")}
    # x from 0 to 4096 over 80..880; 500 and 15 are the axis maxima over 480..60.
    assert lines == {"#1f5fbf": "480.0,141.6 880.0,164.6", "#c0392b": "480.0,82.4 880.0,92.5"}
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"m4_max t/s", "ctx size", "prefill", "generation", "4k", "500", "15"} <= set(texts)


def test_a_title_cannot_break_the_document(tmp_path: Path) -> None:
    points = [Point(1, 1, 1), Point(2, 2, 2)]
    root = ElementTree.fromstring(draw(points, "<&>\"'"))
    assert "<&>\"'" in [text.text for text in root.iter(f"{SVG}text")]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a,b\n1,2\n", "has no column ctx_tokens, prefill_tps, gen_tps"),
        ("ctx_tokens,prefill_tps,gen_tps\n1,2,3\n", "has 1 rows"),
        ("ctx_tokens,prefill_tps,gen_tps\n1,2,x\n", "line 2: a number is missing"),
        ("ctx_tokens,prefill_tps,gen_tps\n1,2\n", "line 2: a number is missing"),
        ("ctx_tokens,prefill_tps,gen_tps\n1,nan,3\n", "positive and finite"),
        ("", "has no column"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "sweep.csv"
    path.write_text(text)
    with pytest.raises(PlotError, match=problem):
        read_points(path)


@given(st.floats(min_value=1e-6, max_value=1e12))
def test_an_axis_leaves_headroom_and_wastes_less_than_half(value: float) -> None:
    top = rounded_maximum(value)
    assert value * 1.05 <= top * (1 + 1e-12)
    assert top <= 2.1 * value * 1.0001
