"""The library that makes calls fail."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from faults.failing import library


@pytest.fixture(scope="session")
def failing_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, compiled once."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc: not installed")
    return library(tmp_path_factory.mktemp("failing"))
