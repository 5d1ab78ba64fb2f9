"""`ds4 bench plot`: a sweep's CSV as an SVG chart, written with the standard library alone.

Spec: apps §2.2. Prefill on the left axis in blue, generation on the right axis in red.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from shared.errors import Ds4Error

BLUE, RED, GRID, INK = "#1f5fbf", "#c0392b", "#e3e3e3", "#222222"
_TICKS = 6
_HEADROOM = 1.05
_NEEDED = ("ctx_tokens", "prefill_tps", "gen_tps")


class PlotError(Ds4Error):
    """The CSV cannot be drawn."""


@dataclass(frozen=True, slots=True)
class Point:
    context: float
    prefill: float
    generation: float


@dataclass(frozen=True, slots=True)
class Frame:
    """The drawing area and its scales; pixels grow downwards."""

    width: int
    height: int
    right_value: float
    left_maximum: float
    right_maximum: float

    left, right, top, bottom = 80, 80, 60, 60

    def x(self, context: float) -> float:
        return self.left + (self.width - self.left - self.right) * context / self.right_value

    def y(self, share: float) -> float:
        """Height of a value given as a share of its axis' maximum."""
        return self.height - self.bottom - (self.height - self.top - self.bottom) * share


def read_points(path: Path) -> list[Point]:
    """The rows of a sweep, by context. Accepts a byte-order mark; needs two rows. Raises PlotError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise PlotError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise PlotError(f"cannot read {path}: it is not UTF-8 text") from error
    reader = csv.DictReader(text.splitlines())
    missing = [name for name in _NEEDED if name not in (reader.fieldnames or ())]
    if missing:
        raise PlotError(f"{path} has no column {', '.join(missing)}: is it a `ds4 bench` CSV?")
    points = []
    for row in reader:
        try:
            values = [float(row[name]) for name in _NEEDED]
        except (TypeError, ValueError):
            raise PlotError(f"{path}, line {reader.line_num}: a number is missing or unreadable") from None
        if not all(math.isfinite(value) and value >= 0 for value in values) or values[0] == 0:
            raise PlotError(f"{path}, line {reader.line_num}: numbers must be positive and finite")
        points.append(Point(*values))
    if len(points) < 2:
        raise PlotError(f"{path} has {len(points)} rows: a chart needs at least 2")
    return sorted(points, key=lambda point: point.context)


def rounded_maximum(value: float) -> float:
    """The next round number (1, 1.5, 2, ... times a power of ten) at or above `value` plus headroom."""
    wanted = value * _HEADROOM
    if wanted <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(wanted))
    return next(step * power for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if step * power >= wanted)


def draw(points: list[Point], title: str, width: int = 960, height: int = 540) -> str:
    """The SVG document."""
    frame = Frame(
        width,
        height,
        points[-1].context,
        rounded_maximum(max(point.prefill for point in points)),
        rounded_maximum(max(point.generation for point in points)),
    )
    prefill = [(point.context, point.prefill / frame.left_maximum) for point in points]
    generation = [(point.context, point.generation / frame.right_maximum) for point in points]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(width / 2, 32, title, size=18, bold=True),
        *_horizontal_grid(frame),
        *_context_axis(frame),
        _line(frame, prefill, BLUE),
        _line(frame, generation, RED),
        *_legend(frame),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def write_chart(path: Path, output: Path | None, title: str | None, width: int, height: int) -> Path:
    """Draw `path` into `output` (default: STEM_ts.svg beside it); returns where it went."""
    points = read_points(path)
    output = output or path.with_name(f"{path.stem}_ts.svg")
    output.write_text(draw(points, title or f"{path.stem} t/s", width, height), encoding="utf-8")
    return output


def _horizontal_grid(frame: Frame) -> list[str]:
    parts = []
    for tick in range(_TICKS):
        share = tick / (_TICKS - 1)
        y = frame.y(share)
        right_edge = frame.width - frame.right
        parts.append(f'<line x1="{frame.left}" y1="{y:.1f}" x2="{right_edge}" y2="{y:.1f}" stroke="{GRID}"/>')
        parts.append(
            _text(frame.left - 8, y + 4, f"{frame.left_maximum * share:g}", anchor="end", colour=BLUE)
        )
        parts.append(
            _text(right_edge + 8, y + 4, f"{frame.right_maximum * share:g}", anchor="start", colour=RED)
        )
    middle = frame.y(0.5)
    parts.append(_turned(22, middle, "prefill t/s", -90, BLUE))
    parts.append(_turned(frame.width - 22, middle, "generation t/s", 90, RED))
    return parts


def _context_axis(frame: Frame) -> list[str]:
    parts = []
    step = rounded_maximum(frame.right_value / _TICKS / _HEADROOM)
    count = int(frame.right_value / step)
    floor = frame.y(0)
    for tick in range(count + 1):
        x = frame.x(tick * step)
        parts.append(f'<line x1="{x:.1f}" y1="{frame.top}" x2="{x:.1f}" y2="{floor}" stroke="{GRID}"/>')
        parts.append(_text(x, floor + 20, _thousands(tick * step)))
    parts.append(_text((frame.left + frame.width - frame.right) / 2, frame.height - 16, "ctx size"))
    return parts


def _legend(frame: Frame) -> list[str]:
    x, y = frame.width - frame.right - 150, frame.top + 10
    parts = [f'<rect x="{x}" y="{y}" width="140" height="48" fill="white" stroke="{INK}"/>']
    for row, (label, colour) in enumerate((("prefill", BLUE), ("generation", RED))):
        middle = y + 16 + 18 * row
        parts.append(
            f'<line x1="{x + 10}" y1="{middle}" x2="{x + 36}" y2="{middle}" stroke="{colour}" '
            'stroke-width="2"/>'
        )
        parts.append(_text(x + 44, middle + 4, label, anchor="start"))
    return parts


def _line(frame: Frame, series: list[tuple[float, float]], colour: str) -> str:
    points = " ".join(f"{frame.x(context):.1f},{frame.y(share):.1f}" for context, share in series)
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "middle",
    colour: str = INK,
    size: int | None = None,
    bold: bool = False,
) -> str:
    style = f' font-size="{size}"' if size else ""
    style += ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{style}>{escape(text)}</text>'
    )


def _turned(x: float, y: float, text: str, degrees: int, colour: str) -> str:
    return (
        f'<text x="{x}" y="{y}" text-anchor="middle" fill="{colour}" '
        f'transform="rotate({degrees} {x} {y})">{escape(text)}</text>'
    )


def _thousands(value: float) -> str:
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"
