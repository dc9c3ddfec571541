"""Tells the guards (`unstall.no_sync`) when the host is about to wait for the virtual GPU. The shim
announces such waits (`shim/waits.h`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from unstall.guarding.kinds import Kind
from unstall.guarding.regions import add_source, is_guarded
from unstall.guarding.state import Pending, on_wait
from unstall.virtual.simulation.foresight import Foresight
from unstall.virtual.simulation.simulator import Simulator


class WaitingShim(Protocol):
    """The functions of the shim that this module calls."""

    def set_wait_watcher(self, watcher: GuardedWaits) -> None: ...

    def set_guarding(self, on: bool) -> None: ...

    def set_cached(self, device: int, stream: int, small: int, large: int) -> None: ...


class Begun:
    """A wait of the host that has not ended.

    Attributes:
        pending: The same wait, as the guard knows it.
        start_ns: When the call that waits began, in ns of the virtual clock.
        first: The number of the first instruction that was simulated after that.
    """

    def __init__(self, pending: Pending, start_ns: int, first: int) -> None:
        self.pending = pending
        self.start_ns = start_ns
        self.first = first


class GuardedWaits:
    """Tells the guards of each wait for the virtual GPU. While any thread is in a block of
    `unstall.no_sync`, the shim calls one of these methods before each call that may wait.

    `before`, `allocating`, `launching` and `emptying_cache` raise SyncError if the guard forbids
    the wait. They return None if the call does not wait, or if the calling thread is not guarded.
    Otherwise they return the wait, and the shim passes it to `after` when the wait ends. `operators`
    are the names of the operators that the calling thread is in.
    """

    def __init__(self, shim: WaitingShim, simulator: Simulator) -> None:
        self._shim = shim
        self._simulator = simulator
        self._foresight = Foresight(simulator)

    def before(self, operators: Sequence[str], kind: Kind, size_bytes: int, staged: int) -> Begun | None:
        """Announces a copy, a synchronisation or another call of the given kind that waits for the
        device.

        Args:
            kind: The kind of wait.
            size_bytes: The number of bytes that are copied.
            staged: 1 for a non-blocking copy from or to pageable memory, which the driver copies
                through buffers of its own; else 0. A small upload of this sort does not wait.
        """
        if kind == "upload" and staged and size_bytes <= self._simulator.costs.limits.staged_at_once_bytes:
            return None  # its bytes travel in the launch queue
        return self._begin(operators, kind)

    def allocating(self, operators: Sequence[str], device: int, stream: int, size_bytes: int) -> Begun | None:
        """Announces a request for device memory, which waits if the caching allocator has to ask
        the driver. The shim does not announce requests that it knows to be served from the
        allocator's cache.
        """
        if not is_guarded():
            return None
        with self._simulator.allocator(device) as allocator:
            kind = self._foresight.request(device, stream, size_bytes)
            self._shim.set_cached(device, stream, *allocator.largest_cached(stream))
        return self._begin(operators, kind)

    def launching(self, operators: Sequence[str], device: int, stream: int, signature: int) -> Begun | None:
        """Announces the launch of an operator's work, which may wait. `signature` is the number of the
        operator's signature in the shim's log.
        """
        if not is_guarded():
            return None
        return self._begin(operators, self._foresight.launch(device, stream, signature))

    def emptying_cache(self, operators: Sequence[str], device: int) -> Begun | None:
        """Announces that torch.cuda.empty_cache() is about to give back the free memory of one
        device, which may wait.
        """
        if not is_guarded():
            return None
        with self._simulator.allocator(device) as allocator:
            kind: Kind | None = "free" if allocator.waits_to_empty() else None
        return self._begin(operators, kind)

    def switch(self, on: bool) -> None:
        """Sets whether the shim announces waits. The guards turn this on while any thread is guarded."""
        self._shim.set_guarding(on)

    def settle(self) -> None:
        """Does nothing. The guards call it so that a source of waits can report waits that have
        ended; this source reports each wait as soon as it ends.
        """

    def after(self, begun: Begun) -> None:
        """Reports to the guard how long a wait took: its synchronisations, as in a report of the run, or else the
        whole call. The shim calls this when the call ends.
        """
        end_ns = self._simulator.here_ns()
        begun.pending.waited(self._simulator.synchronised_ns(begun.first) or end_ns - begun.start_ns)

    def _begin(self, operators: Sequence[str], kind: Kind | None) -> Begun | None:
        pending = on_wait(kind, operators) if kind is not None else None
        if pending is None:
            return None
        start_ns = self._simulator.here_ns()
        return Begun(pending, start_ns, self._simulator.simulation.history.done.length)


def connect(shim: WaitingShim, simulator: Simulator) -> None:
    """Makes the shim announce its waits to the guards (`unstall.no_sync`) while any thread is guarded."""
    waits = GuardedWaits(shim, simulator)
    shim.set_wait_watcher(waits)
    add_source(waits)
