"""Draws a graph as SVG: its nodes in layers, with the critical path highlighted. The drawing is
readable on light and dark pages.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from itertools import pairwise

from unstall.document.document import Graph, GraphLine, GraphNode
from unstall.document.layered import Layout, laid_out
from unstall.document.plain import in_html, short

_NODE_WIDTH, _NODE_HEIGHT, _GAP, _LAYER = 216, 46, 22, 88  # px
_MARGIN = 12
_LETTERS = 31  # that fit into a node
_MOST_TEXTS = 80  # edges; if there are more, only those that are highlighted have their text beside them
_LANES = 5
STYLE = """
.graph { font: 12px ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; --g-page: #ffffff;
  --g-text: #161b22; --g-muted: #5b6675; --g-line: #a9b3c0; --g-node: #f3f5f8; --g-hot: #c0392b; --g-warm: #fdeeeb;
  --g-0: #2b6fd0; --g-1: #22b597; --g-2: #8d6fd3; --g-3: #e0a12e; --g-4: #c2477f; }
@media (prefers-color-scheme: dark) { .graph { --g-page: #151a21; --g-text: #e4e9f0; --g-muted: #94a0b0;
  --g-line: #4a5666; --g-node: #1e2530; --g-hot: #ff7a66; --g-warm: #3a211f; --g-0: #4480d8; --g-1: #2bd0aa;
  --g-2: #a58bea; --g-3: #e5b04a; --g-4: #e06a9f; } }
.graph text { fill: var(--g-text); font: inherit; }
.graph .below, .graph .beside { fill: var(--g-muted); font-size: 11px; }
.graph .beside { paint-order: stroke; stroke: var(--g-page); stroke-width: 4px; }
.graph .box { fill: var(--g-node); stroke: var(--g-line); }
.graph path { fill: none; stroke: var(--g-line); stroke-width: 1.3; }
.graph .dashed { stroke-dasharray: 5 4; }
.graph .hot .box { fill: var(--g-warm); stroke: var(--g-hot); stroke-width: 1.8; }
.graph .hot text:first-of-type { font-weight: 650; }
.graph path.hot { stroke: var(--g-hot); stroke-width: 2.6; }
.graph .lane0 { fill: var(--g-0); } .graph .lane1 { fill: var(--g-1); } .graph .lane2 { fill: var(--g-2); }
.graph .lane3 { fill: var(--g-3); } .graph .lane4 { fill: var(--g-4); }
"""


def drawing(graph: Graph) -> str:
    """Returns a graph as an SVG element; "" if it has no nodes.

    The caller adds `STYLE` to the page or the file that contains the element.
    """
    if not graph.nodes:
        return ""
    pairs = [(edge.earlier, edge.later) for edge in graph.edges]
    strong = [(edge.earlier, edge.later) for edge in graph.edges if edge.strong]
    layout = laid_out(len(graph.nodes), pairs, _NODE_WIDTH, _GAP, strong)
    height = (max(layout.layer) + 1) * _LAYER - (_LAYER - _NODE_HEIGHT) + 2 * _MARGIN
    width = layout.width + 2 * _MARGIN
    shown = [edge for edge in graph.edges if (edge.earlier, edge.later) in layout.routes]
    # What is highlighted is drawn last, so that nothing covers it.
    shown.sort(key=lambda edge: edge.strong)
    parts = [_edge(edge, layout, beside=edge.strong or len(shown) <= _MOST_TEXTS) for edge in shown]
    parts += [_node(node, layout.x[number], layout.layer[number]) for number, node in enumerate(graph.nodes)]
    about = in_html(graph.title)
    return (
        f'<svg class="graph" viewBox="0 0 {width:.0f} {height}" '
        f'width="{width:.0f}" height="{height}" role="img" aria-label="{about}">\n' + "\n".join(parts) + "\n</svg>"
    )


def _top(layer: int) -> int:
    return _MARGIN + layer * _LAYER


def _edge(edge: GraphLine, layout: Layout, *, beside: bool) -> str:
    route = layout.routes[edge.earlier, edge.later]
    first = layout.layer[edge.earlier]
    points = list(_points(route, first))
    x, y = points[0]
    path = f"M{x:.1f} {y}"
    for before, (x, y) in pairwise(points):
        if x == before[0]:
            path += f"V{y}"
        else:
            half = (before[1] + y) / 2
            path += f"C{before[0]:.1f} {half} {x:.1f} {half} {x:.1f} {y}"
    classes = " ".join(name for name, on in (("hot", edge.strong), ("dashed", edge.dashed)) if on)
    text = in_html(edge.text)
    middle = points[len(points) // 2 - 1], points[len(points) // 2]
    at = ((middle[0][0] + middle[1][0]) / 2, (middle[0][1] + middle[1][1]) / 2)
    label = f'<text class="beside" x="{at[0] + 5:.1f}" y="{at[1] + 4:.0f}">{text}</text>' if beside and text else ""
    return f'<path class="{classes}" d="{path}"><title>{text}</title></path>{label}'


def _points(route: tuple[float, ...], first: int) -> Iterator[tuple[float, int]]:
    """Yields the points of an edge, from top to bottom.

    The edge starts at the bottom of its earlier node and ends at the top of its later node. In each layer between the
    two nodes, the edge is vertical.
    """
    yield _MARGIN + route[0], _top(first) + _NODE_HEIGHT
    for layer, x in enumerate(route[1:-1], first + 1):
        yield _MARGIN + x, _top(layer)
        yield _MARGIN + x, _top(layer) + _NODE_HEIGHT
    yield _MARGIN + route[-1], _top(first + len(route) - 1)


def _node(node: GraphNode, middle: float, layer: int) -> str:
    left, top = _MARGIN + middle - _NODE_WIDTH / 2, _top(layer)
    lane = f'<rect class="lane{node.lane % _LANES}" x="{left:.1f}" y="{top}" width="5" height="{_NODE_HEIGHT}" rx="2"/>'
    return (
        f'<g class="{"hot" if node.strong else ""}"><title>{in_html(node.about)}</title>'
        f'<rect class="box" x="{left:.1f}" y="{top}" width="{_NODE_WIDTH}" height="{_NODE_HEIGHT}" rx="5"/>{lane}'
        f'<text x="{left + 14:.1f}" y="{top + 19}">{html.escape(short(node.text, _LETTERS))}</text>'
        f'<text class="below" x="{left + 14:.1f}" y="{top + 36}">{html.escape(short(node.below, _LETTERS + 4))}</text>'
        "</g>"
    )
