"""The call of one test that waits on a real GPU: torch tells in words of its own that the driver refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from unstall.errors import SyncError
from unstall.guarding import regions, state
from unstall.testing import call
from unstall.testing.call import Call
from unstall.testing.counts_of_test import from_properties
from unstall.testing.limits import MarkerLimit
from unstall.testing.sources import Seen

NO_SYNC = {"no_sync": MarkerLimit("no_sync", "no_sync")}


class OneGpu:
    """A source that counted one launch."""

    def end(self) -> Seen:
        return Seen("H200", launches=1)


@pytest.fixture
def item(monkeypatch: pytest.MonkeyPatch) -> pytest.Item:
    monkeypatch.setattr(call, "source", lambda wanted: OneGpu())
    return cast(pytest.Item, SimpleNamespace(nodeid="test_it", user_properties=[("unstall_color", "red")]))


def waits() -> None:
    """As `guarding/driver.py` refuses a wait, and torch says so."""
    region = regions.innermost()
    assert region is not None
    assert region.guard is not None
    try:
        state.on_wait("value", "aten::item")
    except SyncError as error:
        region.guard.refused = error
        raise RuntimeError("CUDA error: operation not permitted") from None


def test_a_wait_that_the_driver_refused_is_a_sync_error(item: pytest.Item) -> None:
    with pytest.raises(SyncError), Call(item, NO_SYNC, None):
        waits()


def test_its_figures_are_reported(item: pytest.Item) -> None:
    with pytest.raises(SyncError), Call(item, NO_SYNC, None):
        waits()
    counts = from_properties(item.user_properties)
    assert (counts.gpu, counts.syncs, counts.launches, counts.broken) == ("H200", 1, 1, ("no_sync",))


def test_the_guard_is_left(item: pytest.Item) -> None:
    with pytest.raises(SyncError), Call(item, NO_SYNC, None):
        waits()
    assert not regions.is_guarded()


def test_properties_of_its_own_stay(item: pytest.Item) -> None:
    with Call(item, {}, None):
        pass
    assert item.user_properties[0] == ("unstall_color", "red")
