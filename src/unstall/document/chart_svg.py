"""Draws a chart as SVG. The page around the chart sets the colours."""

from __future__ import annotations

import html
from collections.abc import Iterator

from unstall.document.chart import Axis, Drawn, drawn, points_of
from unstall.document.document import Chart
from unstall.document.plain import in_html, plain

_WIDTH, _LEFT = 720, 64
_TOP, _ROW = 8, 24  # px
_BELOW = 32  # px: the mark, and the names of the parts of the run
_MOST_POINTS = 300
_WIDEST = 24  # px, of a bar
_LETTER = 12  # px, of a name on a phone
_SWATCH = '<svg class="swatch" viewBox="0 0 16 12" aria-hidden="true">{}</svg>'


def drawing(chart: Chart) -> str:
    """Returns a chart as HTML: its picture, then its legend. Returns "" for a chart without values."""
    if not chart.values:
        return ""
    shown = drawn(chart, _MOST_POINTS)
    wide = min((_WIDTH - _LEFT) / len(shown.points), _WIDEST)
    base = _TOP + _ROW * shown.axis.height
    inside = "\n".join([*_rows(shown.axis, base), *_bars(shown, wide, base), *_below(chart, shown, wide, base)])
    about = f"{in_html(chart.title)}. {html.escape(_facts(chart))}"
    return (
        f'<svg viewBox="0 0 {_WIDTH} {base + _BELOW}" role="img" aria-label="{about}">\n{inside}\n</svg>\n'
        f'<p class="legend">{_legend(chart, shown)}</p>\n'
    )


def _facts(chart: Chart) -> str:
    """Returns a text that describes the picture, for people who cannot see it."""
    points = points_of(chart)
    beyond = sum(point.is_beyond for point in points)
    finite = [point.value for point in points if 0 < point.value < float("inf")]
    facts = f"{len(points):,} values; {beyond:,} exceed their bound"
    facts += f"; values other than 0 are from {min(finite):.2g} to {max(finite):.2g}" if finite else ""
    if chart.mark is not None:
        number, text = chart.mark
        facts += f"; value {number + 1:,} is marked: {plain(''.join(span.text for span in text))}"
    return facts


def _rows(axis: Axis, base: int) -> Iterator[str]:
    for row in range(axis.height):
        if label := axis.label(row):
            y = base - _ROW * row
            yield f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH}" y1="{y}" y2="{y}"/>'
            raised = y - _ROW / 2 if row == axis.rows else y
            yield f'<text class="dim" x="{_LEFT - 8}" y="{raised + 4:.0f}" text-anchor="end">{label}</text>'


def _bars(shown: Drawn, wide: float, base: int) -> Iterator[str]:
    within, beyond, bounds = [], [], []
    for number, point in enumerate(shown.points):
        x = _LEFT + wide * number
        top, line = (_ROW * shown.axis.level(each) if each > 0 else 0.0 for each in point)
        if point.is_beyond:
            within.append(_bar(x, base, line, wide))
            beyond.append(_bar(x, base - line, max(top - line, 1.0), wide))
        elif point.value > 0:
            within.append(_bar(x, base, max(top, 1.0), wide))
        if point.bound > 0:
            bounds.append(f"M{x:.1f} {base - line:.1f}h{wide:.2f}")
    yield f'<path class="fill" d="{"".join(within)}"/>'
    yield f'<path class="beyond" d="{"".join(beyond)}"/>'
    yield f'<path class="bound" d="{"".join(bounds)}"/>'


def _bar(x: float, y: float, height: float, wide: float) -> str:
    bar = 0.8 * wide
    return f"M{x + 0.1 * wide:.1f} {y:.1f}v{-height:.1f}h{bar:.2f}v{height:.1f}z"


def _below(chart: Chart, shown: Drawn, wide: float, base: int) -> Iterator[str]:
    starts = [_LEFT + wide * shown.stretch_of(start) for start, _ in chart.sections]
    ends = [*starts[1:], _LEFT + wide * len(shown.points)]
    for (_, name), start, end in zip(chart.sections, starts, ends, strict=False):
        if _LETTER * (len(name) + 1) <= end - start:
            yield f'<line class="axis" x1="{start:.1f}" x2="{start:.1f}" y1="{base}" y2="{base + _BELOW}"/>'
            yield f'<text class="dim" x="{start + 5:.1f}" y="{base + 26}">{in_html(name)}</text>'
    if chart.mark is not None:
        x = _LEFT + wide * (shown.stretch_of(chart.mark[0]) + 0.5)
        yield f'<line class="leaves" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{base}"/>'
        yield f'<path class="beyond" d="M{x:.1f} {base + 1}l5 9h-10z"/>'


def _legend(chart: Chart, shown: Drawn) -> str:
    entries = [('<path class="fill" d="M2 0h12v12h-12z"/>', chart.within)]
    entries += [('<path class="beyond" d="M2 0h12v12h-12z"/>', chart.beyond)] if shown.has_beyond else []
    entries.append(('<path class="bound" d="M0 6h16"/>', chart.bound))
    parts = [f"<span>{_SWATCH.format(swatch)} {in_html(name)}</span>" for swatch, name in entries]
    if chart.mark is not None:
        swatch = _SWATCH.format('<path class="beyond" d="M8 1l6 10h-12z"/>')
        parts.append(f"<span>{swatch} {in_html(chart.mark[1])}</span>")
    return " ".join(parts)
