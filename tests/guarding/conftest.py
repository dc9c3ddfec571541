"""Tests of guards run event loops of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_other_loop() -> Iterator[None]:
    """Hides the loop that stands still while this thread runs tests: that of the browser in which other tests open
    pages."""
    other = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    yield
    asyncio._set_running_loop(other)
