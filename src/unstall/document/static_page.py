"""Renders the blocks of a document as a self-contained HTML page, in the reader's light or dark
theme.

The colours and fonts are the same as on the interactive pages (`web/src/style/`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatch
from itertools import repeat

from unstall.document import area_lines, chart_svg, graph_svg, heat_map, histograms
from unstall.document.document import (
    Area,
    Bars,
    Block,
    Bullets,
    Chart,
    Code,
    Document,
    Entries,
    Entry,
    Graph,
    HeatMap,
    Histograms,
    LaneSets,
    Prose,
    Role,
    Row,
    Table,
    Waterfall,
    Words,
)
from unstall.document.plain import in_html, text_of
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
_WIDTH = 960  # px
_AREA_WIDTH = 100  # columns
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --page: #f6f7f9; --panel: #ffffff; --text: #161b22; --muted: #5b6675;
  --line: #e2e6ec; --accent: #1f5fbf; --fill: #2b6fd0; --middle: #c2185b; --band: #c2185b33; --good: #12805c;
  --bad: #c0392b; --warning: #8a6100; }}
@media (prefers-color-scheme: dark) {{ :root {{ --page: #0e1217; --panel: #151a21; --text: #e4e9f0; --muted: #94a0b0;
  --line: #262e38; --accent: #7ab0f5; --fill: #4480d8; --middle: #ff6fa5; --band: #ff6fa544; --good: #45cf98;
  --bad: #ff7a66; --warning: #d29922; }} }}
* {{ box-sizing: border-box; }}
body {{ background: var(--page); color: var(--text); margin: 0 auto; max-width: {width}px; padding: 0 24px 48px;
  font: 14px/1.5 ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere; -webkit-text-size-adjust: 100%; }}
header {{ display: flex; flex-wrap: wrap; align-items: baseline; gap: 6px 14px; padding: 12px 0;
  border-bottom: 1px solid var(--line); }}
.wordmark {{ font-weight: 750; letter-spacing: -0.02em; font-size: 16px; color: var(--accent); }}
h1 {{ font-size: clamp(19px, 2.2vw, 25px); line-height: 1.35; font-weight: 620; letter-spacing: -0.011em;
  margin: 26px 0 0; }}
h2 {{ font-size: 13px; font-weight: 650; margin: 28px 0 10px; color: var(--muted); }}
p {{ margin: 6px 0 0; }}
.panel + p {{ margin-top: 14px; }}
.panel {{ margin: 20px 0 0; padding: 12px 16px; background: var(--panel); border: 1px solid var(--line);
  border-radius: 8px; overflow-x: auto; }}
.rows, .graph-panel {{ max-height: 90vh; overflow: auto; }}
@media print {{ .rows {{ max-height: none; }} }}
svg {{ display: block; width: 100%; height: auto; }}
text {{ fill: var(--text); font: 13px ui-sans-serif, system-ui, sans-serif; }}
table {{ border-collapse: collapse; width: 100%; font-size: 13px; }}
td, th {{ padding: 4px 20px 4px 0; text-align: left; vertical-align: baseline; font-weight: normal;
  border-top: 1px solid var(--line); white-space: nowrap; }}
td:last-child, th:last-child {{ padding-right: 0; }}
tr:first-child > * {{ border-top: 0; }}
td:first-child, th:first-child {{ white-space: normal; min-width: 120px; }}
th {{ color: var(--muted); font-weight: 600; position: sticky; top: -12px; background: var(--panel);
  overflow-wrap: normal; }}
.numbered {{ list-style: none; padding: 12px 16px; }}
.numbered > li + li {{ margin-top: 12px; padding-top: 12px; border-top: 1px solid var(--line); }}
.detail {{ display: grid; grid-template-columns: 3.2em minmax(0, 1fr); gap: 8px; margin-top: 3px; }}
.right {{ text-align: right; }}
.dim {{ fill: var(--muted); color: var(--muted); }}
.strong {{ font-weight: 600; }}
.code {{ font: 0.92em ui-monospace, "SF Mono", "Cascadia Code", Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
.good {{ color: var(--good); }}
.bad {{ color: var(--bad); font-weight: 600; }}
.warning {{ color: var(--warning); font-weight: 600; }}
.same {{ color: var(--accent); }}
.axis {{ stroke: var(--line); }}
.fill {{ fill: var(--fill); }}
.band {{ fill: var(--band); }}
.middle {{ stroke: var(--middle); stroke-width: 2; }}
.beyond {{ fill: var(--bad); }}
.heat, .wait {{ fill: var(--bad); }}
.mark {{ font-size: 11px; }}
.work {{ fill: var(--good); }}
.transfer {{ fill: var(--fill); }}
summary {{ cursor: pointer; padding: 4px 0; }}
.bound {{ fill: none; stroke: var(--text); stroke-width: 1.5; }}
.leaves {{ stroke: var(--bad); stroke-dasharray: 3 4; }}
.legend {{ display: flex; flex-wrap: wrap; gap: 2px 20px; font-size: 13px; }}
.graph-panel svg {{ width: auto; max-width: none; }}
{graph}
.swatch {{ display: inline-block; width: 16px; height: 12px; }}
@media (max-width: 640px) {{ body {{ padding: 0 12px 32px; }} .panel {{ margin-inline: -12px; padding: 8px 12px;
  border-radius: 0; border-inline: 0; }} text {{ font-size: 22px; }} }}
</style>
<header><span class="wordmark">unstall</span></header>
<main>
<h1>{title}</h1>
{blocks}
</main>
</html>
"""


def render(document: Document) -> str:
    """Returns a document as a whole HTML page. Tables are shown with all of their rows."""
    blocks = [_paragraph(document.about), *map(_block, document.caveats)]
    blocks += [f"<p>{in_html(document.summary)}</p>"] if document.summary else []
    blocks += map(_block, document.blocks)
    graph = graph_svg.STYLE if any(isinstance(block, Graph) for block in document.blocks) else ""
    return _PAGE.format(title=in_html(document.title), width=_WIDTH, graph=graph, blocks="\n".join(blocks))


def _inline(line: Words) -> str:
    return "".join(
        f'<span class="{_CLASSES[span.role]}">{in_html(span.text)}</span>' if span.role else in_html(span.text)
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
    rows = [(in_html(part.label), *map(in_html, figures)) for part, figures in block.legend]
    return _grid(block.title, (in_html(block.title), *map(in_html, block.names)), rows, ["right"] * len(block.names))


@_block.register
def _table(block: Table) -> str:
    header = _inline(block.title), *(in_html(column.name) for column in block.columns)
    title = text_of(block.title)
    return _grid(title, header, map(_cells, block.rows), [column.align for column in block.columns])


def _cells(row: Row) -> list[str]:
    text = "<br>".join(map(_inline, (row.text, *row.below)))
    return [text, *(in_html(each) if isinstance(each, str) else _inline(each) for each in row.figures)]


@_block.register
def _waterfall(block: Waterfall) -> str:
    return _table(as_table(block))


@_block.register
def _entries(block: Entries) -> str:
    numbers = [f"{in_html(block.before_number)}{number}. " for number in range(1, len(block.entries) + 1)]
    items = "".join(map(_entry, numbers, block.entries, repeat(block.names)))
    return f'<h2>{_inline(block.title)}</h2><ol class="panel numbered">{items}</ol>'


def _entry(number: str, entry: Entry, names: Sequence[str]) -> str:
    figures = ", ".join(f"{in_html(name)} {in_html(figure)}" for name, figure in zip(names, entry.figures, strict=True))
    details = "".join(
        f'<div class="detail"><span class="dim">{in_html(label)} </span><span>{_inline(text)}</span></div>'
        for label, text in entry.details
    )
    return f"<li>{number}{_inline(entry.title)}{figures and ': ' + figures}{details}</li>"


@_block.register
def _code(block: Code) -> str:
    lines = "\n".join(in_html(line.expandtabs()) for line in block.lines)
    return f"<h2>{_inline(block.title)}</h2><pre>{lines}</pre>"


@_block.register
def _histograms(block: Histograms) -> str:
    return f'<div class="panel" tabindex="0" role="region" aria-label="histograms">{histograms.drawing(block)}</div>'


@_block.register
def _chart(block: Chart) -> str:
    drawing = chart_svg.drawing(block)
    return f'<h2>{_inline(block.title)}</h2><div class="panel">{drawing}</div>' if drawing else ""


@_block.register
def _graph(block: Graph) -> str:
    if not block.nodes:
        return ""
    label = '<div class="panel graph-panel" tabindex="0" role="region" aria-label="graph">'
    return f"<h2>{_inline(block.title)}</h2>{label}{graph_svg.drawing(block)}</div>"


@_block.register
def _area(block: Area) -> str:
    lines = "\n".join(in_html(line) for line in area_lines.as_lines(block, _AREA_WIDTH))
    return f"<h2>{_inline(block.title)}</h2><pre>{lines}</pre>"


@_block.register
def _heat_map(block: HeatMap) -> str:
    return (
        f'<h2>{_inline(block.title)}</h2><div class="panel"{_region(block.title)}>{heat_map.map_drawing(block)}</div>'
    )


@_block.register
def _lane_sets(block: LaneSets) -> str:
    drawings = heat_map.lane_drawings(block)
    return f'<h2>{_inline(block.title)}</h2><div class="panel"{_region(block.title)}>{drawings}</div>'


def _region(title: Words) -> str:
    """Returns the attributes of a panel that may scroll by itself, so that a key can reach it."""
    return f' tabindex="0" role="region" aria-label="{in_html(text_of(title))}"'


def _grid(title: str, header: Sequence[str], rows: Iterable[Sequence[str]], align: Sequence[str]) -> str:
    """Returns an HTML table. The cells must already be HTML. `title` names the table to those who cannot see it."""
    sides = ["left", *align]

    def row(cells: Sequence[str], tag: str) -> str:
        # An empty header cell would be announced as the header of its column.
        tags = [tag if cell else "td" for cell in cells]
        shown = (f'<{t} class="{s}">{cell}</{t}>' for t, s, cell in zip(tags, sides, cells, strict=True))
        return f"<tr>{''.join(shown)}</tr>"

    head = row(header, "th") if any(header) else ""
    table = f"<table>{head}{''.join(row(cells, 'td') for cells in rows)}</table>"
    # A wide or long table scrolls by itself, so that the page never does; a key can reach it.
    label = in_html(title) or "table"
    return f'<div class="panel rows" tabindex="0" role="region" aria-label="{label}">{table}</div>'
