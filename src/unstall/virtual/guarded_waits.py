"""Tells the guards (`unstall.guarding`) of the virtual GPU's waits, which the shim announces (`shim/waits.h`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from unstall.guarding.kinds import Kind
from unstall.guarding.regions import add_source
from unstall.guarding.state import Pending, on_wait


class WaitingShim(Protocol):
    """The part of the shim that this module uses."""

    def set_wait_watcher(self, watcher: object) -> None: ...

    def set_guarding(self, on: bool) -> None: ...


class Clock(Protocol):
    """The part of the simulator that this module uses."""

    def here_ns(self) -> int:
        """Returns the calling thread's clock."""


class GuardedWaits:
    """What the shim calls around each wait, while any thread is guarded."""

    def __init__(self, shim: WaitingShim, clock: Clock) -> None:
        self._clock = clock
        self.switch = shim.set_guarding

    def settle(self) -> None:
        """Has nothing to do: waits are reported as they end."""

    def before(self, kind: Kind, operators: Sequence[str], size_bytes: int, staged: int) -> tuple[Pending, int] | None:
        pending = on_wait(kind, operators)
        return None if pending is None else (pending, self._clock.here_ns())

    def after(self, token: tuple[Pending, int]) -> None:
        pending, start_ns = token
        pending.waited(self._clock.here_ns() - start_ns)


def connect(shim: WaitingShim, clock: Clock) -> None:
    """Makes the shim announce its waits whenever a thread is guarded."""
    waits = GuardedWaits(shim, clock)
    shim.set_wait_watcher(waits)
    add_source(waits)
