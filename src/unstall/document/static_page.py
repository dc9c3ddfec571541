"""Renders the document's blocks as a self-contained HTML page, in the reader's light or dark theme."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from functools import singledispatch

from unstall.document import histograms
from unstall.document.document import (
    Bars,
    Block,
    Bullets,
    Document,
    Entries,
    Entry,
    Histograms,
    Prose,
    Role,
    Row,
    Table,
    Waterfall,
    Words,
)
from unstall.document.plain import plain
from unstall.document.waterfall import as_table

_CLASSES: dict[Role, str] = {
    "strong": "strong",
    "subject": "strong",
    "dim": "dim",
    "place": "code",
    "name": "code",
    "good": "good",
    "bad": "bad",
    "warning": "warning",
    "same": "same",
}
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --back: #ffffff; --text: #1b1f24; --dim: #59636e; --line: #d1d9e0; --fill: #0969da;
  --middle: #cf222e; --band: #cf222e33; --good: #1a7f37; --bad: #cf222e; --warning: #9a6700; }}
@media (prefers-color-scheme: dark) {{ :root {{ --back: #0d1117; --text: #e6edf3; --dim: #9198a1; --line: #3d444d;
  --fill: #4493f8; --middle: #ff7b72; --band: #ff7b7244; --good: #3fb950; --bad: #ff7b72; --warning: #d29922; }} }}
body {{ background: var(--back); color: var(--text); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: {width}px; padding: 0 1rem; overflow-wrap: anywhere; }}
h1 {{ font-size: 1.2rem; }}
h2 {{ font-size: 1rem; }}
svg {{ display: block; width: 100%; height: auto; }}
text {{ fill: var(--text); font: 13px system-ui, sans-serif; }}
table {{ border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }}
td, th {{ padding: 0.1rem 1.2rem 0.1rem 0; text-align: left; vertical-align: top; font-weight: normal; }}
th {{ color: var(--dim); }}
.right {{ text-align: right; white-space: nowrap; }}
.dim {{ fill: var(--dim); color: var(--dim); }}
.strong {{ font-weight: 600; }}
.code {{ font: 13px ui-monospace, monospace; }}
.good {{ color: var(--good); }}
.bad {{ color: var(--bad); font-weight: 600; }}
.warning {{ color: var(--warning); font-weight: 600; }}
.same {{ color: var(--fill); }}
.axis {{ stroke: var(--line); }}
.fill {{ fill: var(--fill); }}
.band {{ fill: var(--band); }}
.middle {{ stroke: var(--middle); stroke-width: 2; }}
</style>
<h1>{title}</h1>
{blocks}
</html>
"""


def render(document: Document) -> str:
    """Returns the whole page, with every row."""
    blocks = [_paragraph(document.about), *map(_block, document.caveats)]
    blocks += [f"<p>{_safe(document.summary)}</p>"] if document.summary else []
    blocks += map(_block, document.blocks)
    return _PAGE.format(title=_safe(document.title), width=histograms.WIDTH, blocks="\n".join(blocks))


def _safe(text: str) -> str:
    return html.escape(plain(text))


def _inline(line: Words) -> str:
    return "".join(
        f'<span class="{_CLASSES[span.role]}">{_safe(span.text)}</span>' if span.role else _safe(span.text)
        for span in line
    )


def _paragraph(lines: Iterable[Words], *, small: bool = False) -> str:
    opening = '<p class="dim">' if small else "<p>"
    return f"{opening}{'<br>'.join(map(_inline, lines))}</p>"


@singledispatch
def _block(block: Block) -> str:
    raise NotImplementedError(type(block))


@_block.register
def _prose(block: Prose) -> str:
    return _paragraph(block.lines, small=block.small)


@_block.register
def _bullets(block: Bullets) -> str:
    items = "".join(f"<li>{_inline(item)}</li>" for item in block.items)
    return f"<h2>{_inline(block.title)}</h2><ul>{items}</ul>"


@_block.register
def _bars(block: Bars) -> str:
    rows = [(_safe(part.label), *map(_safe, figures)) for part, figures in block.legend]
    return _grid((_safe(block.title), *map(_safe, block.names)), rows, ["right"] * len(block.names))


@_block.register
def _table(block: Table) -> str:
    header = _inline(block.title), *(_safe(column.name) for column in block.columns)
    return _grid(header, map(_cells, block.rows), [column.align for column in block.columns])


def _cells(row: Row) -> list[str]:
    text = "<br>".join(map(_inline, (row.text, *row.below)))
    return [text, *(_safe(each) if isinstance(each, str) else _inline(each) for each in row.figures)]


@_block.register
def _waterfall(block: Waterfall) -> str:
    return _table(as_table(block))


@_block.register
def _entries(block: Entries) -> str:
    items = "".join(_entry(entry, block.names) for entry in block.entries)
    return f"<h2>{_inline(block.title)}</h2><ol>{items}</ol>"


def _entry(entry: Entry, names: Sequence[str]) -> str:
    figures = ", ".join(f"{_safe(name)} {_safe(figure)}" for name, figure in zip(names, entry.figures, strict=True))
    details = "".join(f'<br><span class="dim">{_safe(label)}</span> {_inline(text)}' for label, text in entry.details)
    return f"<li>{_inline(entry.title)}{figures and ': ' + figures}{details}</li>"


@_block.register
def _histograms(block: Histograms) -> str:
    return histograms.drawing(block)


def _grid(header: Sequence[str], rows: Iterable[Sequence[str]], align: Sequence[str]) -> str:
    """Returns an HTML table. Cells are already HTML."""
    sides = ["left", *align]

    def row(cells: Sequence[str], tag: str) -> str:
        shown = (f'<{tag} class="{side}">{cell}</{tag}>' for cell, side in zip(cells, sides, strict=True))
        return f"<tr>{''.join(shown)}</tr>"

    head = row(header, "th") if any(header) else ""
    return f"<table>{head}{''.join(row(cells, 'td') for cells in rows)}</table>"
