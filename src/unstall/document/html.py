"""Renders a document as one self-contained HTML file, which needs neither a server nor the network.

The interactive page is built from `web/` and committed as `page.html`. The data's schema tells the
page which kind of report to show. The page is a fixed text, to which the renderer adds two data
blocks in base64 and, for some documents, a waterfall with escaped texts. Names in the data blocks
reach the page as data, and the page's script shows these names only through `textContent`. The
page's content security policy allows only the page's own script and style, by their hashes, and
forbids any request. A document without an interactive page becomes a static page.
"""

from __future__ import annotations

import base64
import json
import zlib
from functools import cache
from importlib import resources

import msgspec

from unstall.document import static_page, waterfall
from unstall.document.document import Document, Page

_LEVEL = 6
_RESULT_SLOT = "{{result}}"
_ROOT = '<div id="page">'
_PICTURE_SLOT = "{{picture}}"


def render(document: Document, *, top: int = 10) -> str:
    """Returns a document as a whole HTML page. If the document has no picture, the page shows no
    timeline, and says why.
    """
    page = document.page
    if page is None:
        return static_page.render(document)
    before, between, after = _template()
    if page.waterfall is not None:
        before = before.replace(_ROOT, _ROOT + waterfall.drawing(page.waterfall), 1)
    drawn = "\n".join(map(block, page.draw()))
    return "".join((before, _result(document, page), between, drawn, after))


def block(data: bytes) -> str:
    """Returns data in the form in which the interactive page embeds it: deflated, then in base64.

    Base64 has no characters that could end the HTML element around the data.
    """
    return base64.b64encode(zlib.compress(data, _LEVEL)).decode("ascii")


def _result(document: Document, page: Page) -> str:
    return block(json.dumps({**msgspec.to_builtins(document.data), **page.fields}).encode())


@cache
def _template() -> tuple[str, str, str]:
    page = resources.files("unstall.document").joinpath("page.html").read_text("utf-8")
    before, _, rest = page.partition(_RESULT_SLOT)
    between, _, after = rest.partition(_PICTURE_SLOT)
    return before, between, after
