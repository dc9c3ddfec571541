"""Draws histograms of measured times as SVG. The page around the histograms sets the colours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unstall.document.document import Histograms, Sample
from unstall.document.plain import in_html

WIDTH = 720
_ROW, _HEIGHT, _TICKS = 96, 64, 40  # px: a distribution with its label, the distribution, a group's times
_BINS = 120
_FEWEST_TICKS = 4
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_EDGE = 25  # px; closer to the edge a tick's text would be cut off
_CAPTION = "Each shape is a histogram of the samples; the line is their median, the band its 95 % interval."


@dataclass(frozen=True, slots=True)
class _Axis:
    """A linear scale that converts ns to px."""

    low: float
    high: float

    def at(self, ns: float) -> float:
        return (ns - self.low) / (self.high - self.low) * WIDTH


def drawing(histograms: Histograms) -> str:
    """Returns a drawing of all histograms as HTML, with a caption."""
    blocks: list[str] = []
    top = 0
    for group in histograms.groups:
        axis = _axis(group)
        for sample in group:
            blocks.append(f'<g transform="translate(0 {top})">{_row(sample, axis)}</g>')
            top += _ROW
        blocks.append(f'<g transform="translate(0 {top})">{_ticks(axis)}</g>')
        top += _TICKS
    rows = "\n".join(blocks)
    return (
        f'<svg viewBox="0 0 {WIDTH} {top}" role="img" aria-label="distribution of the samples">\n{rows}\n</svg>\n'
        f'<p class="dim">{_CAPTION}</p>'
    )


def _axis(group: Sequence[Sample]) -> _Axis:
    low, high = min(each.values[0] for each in group), max(each.values[-1] for each in group)
    room = 0.03 * (high - low) or 0.05 * high or 1.0
    return _Axis(max(0.0, low - room), high + room)


def _row(sample: Sample, axis: _Axis) -> str:
    counts, edges = np.histogram(sample.values, bins=_BINS, range=(axis.low, axis.high))
    scale = _HEIGHT / max(int(counts.max()), 1)
    bars = "".join(
        f"M{axis.at(edge):.1f} {_ROW - 4}v{-scale * count:.1f}h{WIDTH / _BINS:.2f}v{scale * count:.1f}z"
        for edge, count in zip(edges[:-1].tolist(), counts.tolist(), strict=True)
        if count
    )
    left, right, middle = axis.at(sample.low), axis.at(sample.high), axis.at(sample.median)
    return (
        f'<text x="0" y="18">{in_html(sample.name)} <tspan class="dim">{in_html(sample.about)}</tspan></text>'
        f'<rect class="band" x="{left:.1f}" y="26" width="{max(right - left, 1):.1f}" height="{_ROW - 30}"/>'
        f'<path class="fill" d="{bars}"/>'
        f'<line class="middle" x1="{middle:.1f}" x2="{middle:.1f}" y1="26" y2="{_ROW - 4}"/>'
        f'<line class="axis" x1="0" x2="{WIDTH}" y1="{_ROW - 4}" y2="{_ROW - 4}"/>'
    )


def _ticks(axis: _Axis) -> str:
    """Returns the tick labels below a group, at round times."""
    marks = []
    for ns, text in _round_times(axis.low, axis.high):
        x = axis.at(ns)
        within = min(max(x, _EDGE), WIDTH - _EDGE)
        marks.append(
            f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="-4" y2="1"/>'
            f'<text class="dim" x="{within:.1f}" y="15" text-anchor="middle">{text}</text>'
        )
    return "".join(marks)


def _round_times(low: float, high: float) -> list[tuple[float, str]]:
    """Returns at least four round times between `low` and `high` ns, each with its label.

    The distance between the times is 1, 2 or 5 times a power of ten. No two labels are equal.
    """
    wide = (high - low) / _FEWEST_TICKS
    power = 10.0 ** math.floor(math.log10(wide))
    step = max(each * power for each in (1, 2, 5) if each * power <= wide)
    scale, unit = next(((scale, unit) for scale, unit in _UNITS if high >= scale), _UNITS[-1])
    digits = max(0, -math.floor(math.log10(step / scale) + 1e-9))
    times = [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return [(ns, f"{ns / scale:,.{digits}f} {unit}") for ns in times]
