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
def tab() -> Iterator[object]:
    """One tab for all tests of a process: a new one costs more than all that a test does with a page."""
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program(), args=list(_ARGUMENTS))
        yield browser.new_context(reduced_motion="reduce").new_page()
        browser.close()


@pytest.fixture
def opened(tab: object, tmp_path: Path) -> Iterator[Open]:
    """Opens a file, or a page's text from one, in place of the one before.

    Each must have logged no error and fetched nothing.
    """
    pages: list[Opened] = []

    def opens(
        html: str | Path, *, width: int = 1280, height: int = 800, theme: str = "light", ready: str = READY
    ) -> Opened:
        file = html if isinstance(html, Path) else tmp_path / f"report{len(pages)}.html"
        if isinstance(html, str):
            file.write_text(html, encoding="utf-8")
        for page in pages[-1:]:
            page.close()
        pages.append(Opened.at(tab, file, width, height, theme, ready))
        return pages[-1]

    yield opens
    for page in pages[-1:]:
        page.close()
    for page in pages:
        assert page.errors == []
        assert page.fetched == []
