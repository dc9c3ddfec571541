"""A headless Chromium, and reports opened in it from files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser.opened import READY, Opened
from playwright.sync_api import sync_playwright
from processes import chromium as program

_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

Open = Callable[..., Opened]


@pytest.fixture(scope="session")
def chromium() -> Iterator[object]:
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program(), args=list(_ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium: object, tmp_path: Path) -> Iterator[Open]:
    """Opens a file, or a page's text from one; afterwards it must have logged no error and fetched nothing."""
    pages: list[Opened] = []

    def opens(
        html: str | Path, *, width: int = 1280, height: int = 800, theme: str = "light", ready: str = READY
    ) -> Opened:
        file = html if isinstance(html, Path) else tmp_path / f"report{len(pages)}.html"
        if isinstance(html, str):
            file.write_text(html, encoding="utf-8")
        pages.append(Opened.at(chromium, file, width, height, theme, ready))
        return pages[-1]

    yield opens
    for page in pages:
        page.close()
        assert page.errors == []
        assert page.fetched == []
