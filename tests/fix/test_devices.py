"""Devices that torch does not have are refused by name, before anything is iterated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fix.on_a_gpu import on_virtual_gpu

import unstall
from unstall.errors import UsageError

_TAKES_DEVICES: list[Callable[[Any], Any]] = [
    lambda device: unstall.prefetch([], device=device),
    lambda device: unstall.stream_map(abs, [], device=device),
]

_ONE_TOO_MANY = """
import unstall
from unstall.errors import UsageError

for take in (lambda: unstall.prefetch([], device="cuda:1"), lambda: unstall.stream_map(abs, [], device=1)):
    try:
        take()
    except UsageError as error:
        assert "torch has 1 cuda device" in str(error), error
    else:
        raise SystemExit("nothing was refused")
"""


@pytest.mark.parametrize("take", _TAKES_DEVICES)
@pytest.mark.parametrize("device", ["foo", "cuda:x", 1.5])
def test_what_is_no_device_is_refused(take: Callable[[Any], Any], device: Any) -> None:
    with pytest.raises(UsageError, match="is no device that torch has a name for"):
        take(device)


@pytest.mark.parametrize("take", _TAKES_DEVICES)
def test_that_there_is_none_at_all_is_no_error(take: Callable[[Any], Any]) -> None:
    assert list(take("cuda:9")) == []


def test_one_device_too_many_is_refused(tmp_path: Path) -> None:
    on_virtual_gpu(tmp_path, _ONE_TOO_MANY)
