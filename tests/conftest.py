"""Fixtures and options that all tests share."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import profiles
import pytest
from processes import chromium

if "PYTEST_XDIST_WORKER" in os.environ:  # one of several: threads of torch's would only wait for those of the others
    os.environ.setdefault("OMP_NUM_THREADS", "1")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell: programs would begin with that
    signal.signal(signal.SIGINT, signal.default_int_handler)

profiles.load()

_GOLDENS = Path(__file__).parent / "goldens"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true", help="write what tests see to tests/goldens")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips what needs a GPU or a browser if there is none, and leaves out tests of other Pythons than this one."""
    for item in items:
        if item.get_closest_marker("gpu") and not _has_gpu():
            item.add_marker(pytest.mark.skip(reason="gpu: there is no CUDA device"))
        if item.get_closest_marker("browser") and chromium() is None:
            item.add_marker(pytest.mark.skip(reason="browser: there is no Chromium"))
    of_another_python = [item for item in items if not _of_this_python(item)]
    config.hook.pytest_deselected(items=of_another_python)
    items[:] = [item for item in items if item not in of_another_python]


@functools.cache
def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _of_this_python(item: pytest.Item) -> bool:
    marks = item.iter_markers("python")
    return all(mark.kwargs.get("least", (3,)) <= sys.version_info < mark.kwargs.get("below", (4,)) for mark in marks)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` holds `text` to the file tests/goldens/NAME, which somebody has read and believed."""

    def check(name: str, text: str) -> None:
        path = _GOLDENS / name
        if request.config.getoption("--update-goldens"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        assert text == path.read_text("utf-8")

    return check
