"""Renders the first graph of a document as an SVG file, which browsers and editors open."""

from __future__ import annotations

from unstall.document import graph_svg
from unstall.document.document import Document, Graph

_NAMESPACE = '"http://www.w3.org/2000/svg"'


def render(document: Document, *, top: int = 10) -> str:
    """Returns the first graph of a document as an SVG file. Its colours follow the system's light
    or dark theme. `top` has no effect.
    """
    drawn = next((graph_svg.drawing(block) for block in document.blocks if isinstance(block, Graph)), "")
    head, _, rest = (drawn or '<svg class="graph">\n</svg>').partition(">\n")
    style = f"<style>svg {{ background: var(--g-page); }}{graph_svg.STYLE}</style>"
    return f"{head.replace('<svg', f'<svg xmlns={_NAMESPACE}', 1)}>\n{style}\n{rest}\n"
