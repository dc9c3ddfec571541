"""The HTML report: one file that needs nothing else, neither a server nor the network.

The page is built from `web/` and committed as `page.html`; the schema of the result tells it what it is about. It is
a fixed text but for two data blocks, which hold only base64: whatever a trace names reaches the page as data, and
is shown by `textContent` alone. Its content security policy allows its own script and style by their hashes, and
nothing to be fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from unstall.report.payload import encode_picture, encode_result
from unstall.report.picture import Picture
from unstall.report.wording import unplanned
from unstall.result import Result

if TYPE_CHECKING:
    import msgspec

_RESULT_SLOT = "{{result}}"
_PICTURE_SLOT = "{{picture}}"


def render(result: Result, picture: Picture | None = None, *, scrub: Callable[[str], str] | None = None) -> str:
    """The whole page. Without a picture it has no timeline, and says why.

    `scrub` is applied to every text of the picture; the result is expected to be scrubbed already.
    """
    return page_of(result, [] if picture is None else [picture], scrub=scrub, unplanned=unplanned(result))


def page_of(
    result: msgspec.Struct,
    pictures: Sequence[Picture],
    *,
    scrub: Callable[[str], str] | None = None,
    **besides: object,
) -> str:
    """The page for any result that has a schema; `besides` is what it is given beside the result."""
    before, between, after = _page()
    drawn = "\n".join(encode_picture(picture, scrub) for picture in pictures)
    return "".join((before, encode_result(result, **besides), between, drawn, after))


@cache
def _page() -> tuple[str, str, str]:
    page = resources.files("unstall.report").joinpath("page.html").read_text("utf-8")
    before, _, rest = page.partition(_RESULT_SLOT)
    between, _, after = rest.partition(_PICTURE_SLOT)
    return before, between, after
