"""The samples as a picture: an HTML page by itself, in the light or the dark theme of whoever looks at it."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unstall.measuring.comparison import Comparison
from unstall.measuring.measurement import Measurement
from unstall.measuring.statistics import Spread
from unstall.measuring.wording import precise
from unstall.report.wording import plain

_WIDTH, _ROW, _HEIGHT = 720, 96, 64  # px: the plot, a distribution with its label, the distribution
_BINS = 120
_TAIL = 0.98  # of the samples: what is beyond is told in words, or one sample would flatten all
_FAR, _LEAST_WIDE = 8, 0.02  # widths of the middle half, at least that share of the median: beyond, too
_FEWEST_TICKS = 4
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_EDGE = 25  # px: nearer to it a tick's text would be cut off

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --back: #ffffff; --text: #1b1f24; --dim: #59636e; --line: #d1d9e0; --fill: #0969da;
  --middle: #cf222e; --band: #cf222e33; }}
@media (prefers-color-scheme: dark) {{ :root {{ --back: #0d1117; --text: #e6edf3; --dim: #9198a1; --line: #3d444d;
  --fill: #4493f8; --middle: #ff7b72; --band: #ff7b7244; }} }}
body {{ background: var(--back); color: var(--text); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: {width}px; padding: 0 1rem; }}
h1 {{ font-size: 1.2rem; overflow-wrap: anywhere; }}
pre {{ font: 13px/1.45 ui-monospace, monospace; overflow-x: auto; }}
svg {{ display: block; width: 100%; height: auto; }}
text {{ fill: var(--text); font: 13px system-ui, sans-serif; }}
.dim {{ fill: var(--dim); color: var(--dim); }}
p {{ font-size: 13px; }}
.axis {{ stroke: var(--line); }}
.fill {{ fill: var(--fill); }}
.band {{ fill: var(--band); }}
.middle {{ stroke: var(--middle); stroke-width: 2; }}
</style>
<h1>{title}</h1>
<svg viewBox="0 0 {width} {height}" role="img" aria-label="distribution of the samples">
{rows}
</svg>
<p class="dim">Each shape is a histogram of the samples; the line is their median, the band its 95 % interval.</p>
<pre>{text}</pre>
</html>
"""


@dataclass(frozen=True, slots=True)
class _Axis:
    """ns to px."""

    low: float
    high: float

    def at(self, ns: float) -> float:
        return (ns - self.low) / (self.high - self.low) * _WIDTH


def page(found: Measurement | Comparison) -> str:
    """The samples of each time of a measurement, or of each function of a comparison, with the text below."""
    groups = _groups(found)
    blocks: list[str] = []
    top = 0
    for group in groups:
        axis = _axis([spread for _, spread in group])
        for name, spread in group:
            blocks.append(f'<g transform="translate(0 {top})">{_row(name, spread, axis)}</g>')
            top += _ROW
        blocks.append(f'<g transform="translate(0 {top})">{_ticks(axis)}</g>')
        top += 40
    title = found.label or (
        " or ".join(each.name for each in found.candidates) if isinstance(found, Comparison) else ""
    )
    return _PAGE.format(
        title=_safe(title), width=_WIDTH, height=top, rows="\n".join(blocks), text=html.escape(str(found))
    )


def _groups(found: Measurement | Comparison) -> list[list[tuple[str, Spread]]]:
    """Those of one group share an axis."""
    if isinstance(found, Comparison):
        return [[(each.name, each.time) for each in found.candidates]]
    times = [(name, getattr(found, name)) for name in ("device", "host", "wall", "throughput")]
    there = [(name, spread) for name, spread in times if spread is not None]
    return [there] if found.device is not None else [[("wall", found.wall)]]


def _axis(spreads: list[Spread]) -> _Axis:
    shown = [_shown(spread) for spread in spreads]
    low, high = min(float(each[0]) for each in shown), max(float(each[-1]) for each in shown)
    room = 0.03 * (high - low) or 0.05 * high or 1.0
    return _Axis(max(0.0, low - room), high + room)


def _shown(spread: Spread) -> NDArray[np.float64]:
    """All but the tail, in order; the median's interval in any case."""
    ordered = np.sort(spread.samples)
    far = spread.q3 + _FAR * max(spread.iqr, _LEAST_WIDE * spread.median)
    near = min(int(np.ceil(_TAIL * spread.n)), int(np.searchsorted(ordered, far, side="right")))
    return ordered[: max(near, int(np.searchsorted(ordered, spread.high, side="right")), 1)]


def _row(name: str, spread: Spread, axis: _Axis) -> str:
    shown = _shown(spread)
    counts, edges = np.histogram(shown, bins=_BINS, range=(axis.low, axis.high))
    scale = _HEIGHT / max(int(counts.max()), 1)
    bars = "".join(
        f"M{axis.at(edge):.1f} {_ROW - 4}v{-scale * count:.1f}h{_WIDTH / _BINS:.2f}v{scale * count:.1f}z"
        for edge, count in zip(edges[:-1].tolist(), counts.tolist(), strict=True)
        if count
    )
    left, right, middle = axis.at(spread.low), axis.at(spread.high), axis.at(spread.median)
    beyond = spread.n - len(shown)
    more = f", {beyond:,} beyond, up to {precise(float(spread.samples.max()))}" if beyond else ""
    about = f"{precise(spread.median)} · {spread.n:,} samples{more}"
    return (
        f'<text x="0" y="18">{_safe(name)} <tspan class="dim">{_safe(about)}</tspan></text>'
        f'<rect class="band" x="{left:.1f}" y="26" width="{max(right - left, 1):.1f}" height="{_ROW - 30}"/>'
        f'<path class="fill" d="{bars}"/>'
        f'<line class="middle" x1="{middle:.1f}" x2="{middle:.1f}" y1="26" y2="{_ROW - 4}"/>'
        f'<line class="axis" x1="0" x2="{_WIDTH}" y1="{_ROW - 4}" y2="{_ROW - 4}"/>'
    )


def _ticks(axis: _Axis) -> str:
    """Round times below the group."""
    marks = []
    for ns, text in _round_times(axis.low, axis.high):
        x = axis.at(ns)
        within = min(max(x, _EDGE), _WIDTH - _EDGE)
        marks.append(
            f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="-4" y2="1"/>'
            f'<text class="dim" x="{within:.1f}" y="15" text-anchor="middle">{text}</text>'
        )
    return "".join(marks)


def _round_times(low: float, high: float) -> list[tuple[float, str]]:
    """Between both, ns, by steps of 1, 2 or 5 times a power of ten: four of them or more, in digits that differ."""
    wide = (high - low) / _FEWEST_TICKS
    power = 10.0 ** math.floor(math.log10(wide))
    step = max(each * power for each in (1, 2, 5) if each * power <= wide)
    scale, unit = next(((scale, unit) for scale, unit in _UNITS if high >= scale), _UNITS[-1])
    digits = max(0, -math.floor(math.log10(step / scale) + 1e-9))
    times = [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return [(ns, f"{ns / scale:,.{digits}f} {unit}") for ns in times]


def _safe(text: str) -> str:
    return html.escape(plain(text))
