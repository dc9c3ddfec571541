"""Draws predicted against measured step times, as SVG: both axes are logarithmic, with the diagonal
and a band of 10 % around it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median
from typing import Any

from benchmarks.svg import DARK, LETTER, LIGHT, Theme, line, opening, text

WIDTH, HEIGHT = 960, 780
LEFT, RIGHT, TOP, BOTTOM = 72, 20, 118, 64
TICKS_MS = (0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
BAND = 0.1
LINE_HEIGHT = 16
LABEL_DISTANCE = 30  # from the diagonal

EDITS = ("graph", "remove-syncs", "pin-copies", "overlap-copies", "keep-cache")
SEVERAL = "several of them"


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    edit: str
    label: str
    title: str


def draw(rows: Sequence[dict[str, Any]], *, dark: bool) -> str:
    """Returns the picture.

    Args:
        rows: The rows of the results. Those are drawn that come from recordings with stacks, with
            the plain step time given, and with edits made everywhere.
        dark: Whether the picture is for the dark theme.
    """
    shown = [row for row in rows if row["plain_given"] and row["stacks"] and not row["placed"]]
    return "\n".join(_svg(shown, DARK if dark else LIGHT)) + "\n"


def _svg(rows: list[dict[str, Any]], theme: Theme) -> Iterator[str]:
    low, high = _range(rows)

    def x(ms: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(ms / low) / math.log(high / low)

    def y(ms: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * math.log(ms / low) / math.log(high / low)

    errors = [abs(row["error"]) for row in rows]
    close = sum(error <= BAND for error in errors)
    about = (
        f"{len(rows)} programs, each predicted from a recording of the stalled one. Half are within "
        f"{median(errors):.1%}, {close} of {len(rows)} within {BAND:.0%}."
    )
    yield from opening(WIDTH, HEIGHT, "Predicted and measured step times", about, theme)
    yield text(LEFT, 34, "Predicted and measured step times", theme.ink, size=20, weight=600)
    yield text(LEFT, 58, about, theme.faint_ink, size=13)
    yield from _legend(theme)
    yield '<clipPath id="plot">'
    yield f'<rect x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" height="{HEIGHT - TOP - BOTTOM}"/></clipPath>'
    corners = ((low, low * (1 - BAND)), (low, low * (1 + BAND)), (high, high * (1 + BAND)), (high, high * (1 - BAND)))
    path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in corners)
    yield f'<g clip-path="url(#plot)"><polygon points="{path}" fill="{theme.band}"/>'
    for ms in TICKS_MS:
        if low <= ms <= high:
            yield line(x(ms), TOP, x(ms), HEIGHT - BOTTOM, theme.grid)
            yield line(LEFT, y(ms), WIDTH - RIGHT, y(ms), theme.grid)
    yield line(x(low), y(low), x(high), y(high), theme.diagonal, dash="5 4")
    yield "</g>"
    for ms in TICKS_MS:
        if low <= ms <= high:
            yield text(x(ms), HEIGHT - BOTTOM + 20, f"{ms:g}", theme.faint_ink, anchor="middle")
            yield text(LEFT - 10, y(ms) + 4, f"{ms:g}", theme.faint_ink, anchor="end")
    yield text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 18, "measured, ms a step", theme.ink, anchor="middle", size=13)
    middle = (TOP + HEIGHT - BOTTOM) / 2
    yield (
        f'<text x="22" y="{middle}" transform="rotate(-90 22 {middle})" text-anchor="middle" font-size="13" '
        f'fill="{theme.ink}">predicted, ms a step</text>'
    )
    points = [_point(row, x(row["measured_ms"]), y(row["predicted_ms"])) for row in rows]
    yield from _labels(points, theme)
    for point in points:
        yield _mark(point.x, point.y, point.edit, theme, title=point.title)
    yield "</svg>"


def _range(rows: list[dict[str, Any]]) -> tuple[float, float]:
    times = [row[key] for row in rows for key in ("measured_ms", "predicted_ms")]
    return min(times, default=1) * 0.75, max(times, default=10) * 2.6


def _point(row: dict[str, Any], x: float, y: float) -> Point:
    edit = row["label"] if row["label"] in EDITS else SEVERAL
    off = f" ({row['error']:+.0%})" if abs(row["error"]) > BAND else ""
    title = (
        f"{row['stalled']}, {row['label']}: from {row['stalled_ms']:.3g} ms, predicted {row['predicted_ms']:.3g} ms, "
        f"measured {row['measured_ms']:.3g} ms ({row['error']:+.1%})"
    )
    return Point(x, y, edit, _short(row["stalled"]) + off, title)


def _short(program: str) -> str:
    """Returns the name of a program without the words about its stall that the edit already
    says.
    """
    for ending in ("_pageable_item_nan", "_pageable_item", "_sequential", "_eager", "_in_order"):
        program = program.removesuffix(ending)
    return program


def _labels(points: list[Point], theme: Theme) -> Iterator[str]:
    """Yields the elements for the labels of the points. Labels stand beside the diagonal, by turns
    on either side, and are moved along it so that none covers another. A line leads from each label
    to its point.
    """
    ordered = sorted(points, key=lambda point: -point.y)
    left: list[Point] = []
    right: list[Point] = []
    for point in ordered:
        fits_right = point.x + LABEL_DISTANCE + LETTER * len(point.label) < WIDTH - RIGHT - 40
        fits_left = point.x - LABEL_DISTANCE - LETTER * len(point.label) > LEFT
        far = "(" in point.label and point.y < _diagonal_y(point.x) and fits_left
        side = right if fits_right and not far and (len(right) <= len(left) or not fits_left) else left
        side.append(point)
    for side, way in ((left, -1), (right, 1)):
        heights = _apart([point.y for point in side])
        for point, height in zip(side, heights, strict=True):
            # The diagonal's place at this height, or the point's own where it is farther out.
            base = min(_diagonal_x(height), point.x) if way < 0 else max(_diagonal_x(height), point.x)
            at = base + way * LABEL_DISTANCE
            colour = _colour(theme, point.edit)
            yield line(point.x, point.y, at - way * 4, height, colour, opacity=0.45)
            yield text(at, height + 4, point.label, colour, anchor="end" if way < 0 else "start")


def _diagonal_y(x: float) -> float:
    return HEIGHT - BOTTOM - (x - LEFT) * (HEIGHT - TOP - BOTTOM) / (WIDTH - LEFT - RIGHT)


def _diagonal_x(y: float) -> float:
    return LEFT + (HEIGHT - BOTTOM - y) * (WIDTH - LEFT - RIGHT) / (HEIGHT - TOP - BOTTOM)


def _apart(heights: list[float]) -> list[float]:
    """Returns heights that are at least a line of text apart, and moved as little as possible from
    the given ones (pools of equal spacing).

    Args:
        heights: The heights, in descending order.
    """
    pools: list[tuple[float, int]] = []  # the mean wish of a pool's middle, how many
    for height in heights:
        middle, count = height, 1
        while pools:
            before, many = pools[-1]
            if before - middle >= LINE_HEIGHT * (many + count) / 2:
                break
            pools.pop()
            # Each one's wish, corrected by where in the pool it stands.
            total = count + many
            middle = (before * many + middle * count + LINE_HEIGHT * (many * count - count * many) / 2) / total
            count = total
        pools.append((middle, count))
    return [middle + LINE_HEIGHT * ((count - 1) / 2 - i) for middle, count in pools for i in range(count)]


def _legend(theme: Theme) -> Iterator[str]:
    at = float(LEFT + 6)
    for name in (*EDITS, SEVERAL):
        yield _mark(at, 88, name, theme)
        yield text(at + 11, 92, name, theme.ink)
        at += 32 + LETTER * len(name)
    yield f'<rect x="{at}" y="81" width="22" height="14" fill="{theme.band}"/>'
    yield line(at, 88, at + 22, 88, theme.diagonal, dash="5 4")
    yield text(at + 29, 92, f"as measured, ±{BAND:.0%}", theme.ink)


def _colour(theme: Theme, edit: str) -> str:
    return theme.hues[(*EDITS, SEVERAL).index(edit)]


def _mark(x: float, y: float, edit: str, theme: Theme, title: str = "") -> str:
    about = f"<title>{escape(title)}</title>" if title else ""
    style = f'fill="{_colour(theme, edit)}" stroke="{theme.paper}" stroke-width="1.2"'
    if edit == SEVERAL:
        shape = f"M{x:.1f} {y - 6.5:.1f}l6.5 6.5l-6.5 6.5l-6.5 -6.5z"
        return f'<path d="{shape}" {style}>{about}</path>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" {style}>{about}</circle>'
