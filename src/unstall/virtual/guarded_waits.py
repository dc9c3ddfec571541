"""Tells the guards (`unstall.guarding`) when the host waits for the virtual GPU. The shim announces these waits
(`shim/waits.h`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from unstall.guarding.kinds import Kind
from unstall.guarding.regions import add_source, is_guarded
from unstall.guarding.state import Pending, on_wait
from unstall.virtual.simulation.simulator import Simulator


class WaitingShim(Protocol):
    """The methods of the shim that this module uses."""

    def set_wait_watcher(self, watcher: GuardedWaits) -> None: ...

    def set_guarding(self, on: bool) -> None: ...

    def set_cached(self, device: int, stream: int, small: int, large: int) -> None: ...


class Begun:
    """A wait that has not ended. `start_ns` is its start on the virtual clock."""

    def __init__(self, pending: Pending, start_ns: int) -> None:
        self.pending = pending
        self.start_ns = start_ns


class GuardedWaits:
    """Checks calls that may wait. While any thread is guarded, the shim calls one of these methods before each call
    that may wait.

    The methods that return `Begun | None` raise SyncError if the guard forbids the wait. They return None if the call
    does not wait, or if this thread is not guarded. Otherwise they return a `Begun`, which the shim passes to `after`.
    """

    def __init__(self, shim: WaitingShim, simulator: Simulator) -> None:
        self._shim = shim
        self._simulator = simulator

    def before(self, operators: Sequence[str], kind: Kind, size_bytes: int, staged: int) -> Begun | None:
        """Checks a wait. `staged` is 1 for a non-blocking copy from or to pageable memory. The driver stages the bytes
        of such a copy.
        """
        if kind == "upload" and staged and not self._simulator.waits_for_upload(size_bytes):
            return None
        return self._begin(operators, kind)

    def allocating(self, operators: Sequence[str], device: int, stream: int, size_bytes: int) -> Begun | None:
        """Checks a request for device memory. The shim does not call this method if it knows that the caching allocator
        serves the request from its cache.
        """
        if not is_guarded():
            return None
        kind = self._simulator.foresee_request(device, stream, size_bytes)
        self._shim.set_cached(device, stream, *self._simulator.largest_cached(device, stream))
        return self._begin(operators, kind)

    def launching(self, operators: Sequence[str], device: int, stream: int, signature: int) -> Begun | None:
        """Checks the launch of an operator."""
        if not is_guarded():
            return None
        return self._begin(operators, self._simulator.foresee_launch(signature, device, stream))

    def emptying_cache(self, operators: Sequence[str], device: int) -> Begun | None:
        """Checks torch.cuda.empty_cache() for one device."""
        if not is_guarded():
            return None
        return self._begin(operators, self._simulator.foresee_empty_cache(device))

    def switch(self, on: bool) -> None:
        """Turns the shim's announcements of waits on or off."""
        self._shim.set_guarding(on)

    def settle(self) -> None:
        """Does nothing, because this source of waits reports each wait when the wait ends."""

    def begins(self, begun: Begun) -> None:
        """Sets the start of a wait to the current time. The shim calls this method if the wait starts after `begun` was
        created.
        """
        begun.start_ns = self._simulator.here_ns()

    def after(self, begun: Begun) -> None:
        """Reports the length of a wait to the guard. The shim calls this method when the wait ends."""
        begun.pending.waited(self._simulator.here_ns() - begun.start_ns)

    def _begin(self, operators: Sequence[str], kind: Kind | None) -> Begun | None:
        pending = on_wait(kind, operators) if kind is not None else None
        return Begun(pending, self._simulator.here_ns()) if pending is not None else None


def connect(shim: WaitingShim, simulator: Simulator) -> None:
    """Makes the shim announce its waits while any thread is guarded."""
    waits = GuardedWaits(shim, simulator)
    shim.set_wait_watcher(waits)
    add_source(waits)
