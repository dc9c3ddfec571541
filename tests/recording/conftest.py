"""A folder to record to."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recording's folder, apart from where the program is."""
    path = tmp_path / "recording"
    path.mkdir()
    return path
