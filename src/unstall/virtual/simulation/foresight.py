"""Tells what the program's next memory request or launch is going to wait for, such as a call of the driver."""

from __future__ import annotations

from itertools import chain

from unstall.guarding.kinds import Kind
from unstall.virtual.simulation.simulator import Simulator


class Foresight:
    """Tells what the calling thread's next call is going to wait for. The call itself is not simulated."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self._never_wait: set[int] = set()  # signatures

    def request(self, device: int, stream: int, size_bytes: int) -> Kind | None:
        """Returns for which call of the driver a request for memory would wait, as a kind of wait.
        Returns None if the allocator's cache can serve the request.

        Args:
            device: The device.
            stream: The stream for which the memory would be requested.
            size_bytes: The size of the request.
        """
        thread = self._simulator.this_thread()
        with self._simulator.simulated() as simulation:

            def is_done(event: int) -> bool:
                done = simulation.when_done(event)
                return done is not None and done <= simulation.now(thread)

            return simulation.requests.foresee(device, stream, [size_bytes], is_done) or None

    def launch(self, device: int, stream: int, signature: int) -> Kind | None:
        """Returns what the launch of an operator would wait for: a copy that the operator makes to or
        from the host; else the call of the driver that its workspaces or its temporary memory need.
        Returns None if the launch would not wait.

        Args:
            device: The device.
            stream: The stream.
            signature: The number of the operator's signature in the shim's log.
        """
        if signature in self._never_wait:
            return None
        with self._simulator.simulated() as simulation:
            cost = self._simulator.cost_of(signature)
            if not cost.may_wait:
                self._never_wait.add(signature)
                return None
            if copied := cost.waits_for:
                return copied
            sizes = chain.from_iterable(cost.temporaries)
            if not simulation.server.has_workspaces(self._simulator.this_thread(), device, stream, cost):
                sizes = chain((size for _, size in cost.workspaces), sizes)
            calls = (self.request(device, stream, size) for size in sizes if size > 0)
            return next((call for call in calls if call), None)
