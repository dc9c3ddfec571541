"""What torch's allocator tells of a process with several devices."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from unstall.guest import device

_PEAKS = {0: 10, 1: 70, 2: 900}
_CURRENT = 0


def _memory_stats(index: int = _CURRENT) -> dict[str, int]:
    return {"reserved_bytes.all.peak": _PEAKS[index], "allocated_bytes.all.current": index}


@pytest.fixture
def _torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch with three devices. The process has no context on the last one."""
    cuda = SimpleNamespace(is_initialized=lambda: True, memory_stats=_memory_stats, device_count=lambda: 3)
    has_context = SimpleNamespace(_cuda_hasPrimaryContext=lambda index: index < 2)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, _C=has_context))


@pytest.mark.usefixtures("_torch")
def test_the_peak_of_reserved_memory_is_that_of_the_device_with_the_highest_one() -> None:
    assert device.memory() == {"reserved_bytes.all.peak": 70, "allocated_bytes.all.current": 0}
