"""Tells what the program's next memory request or launch is going to wait for, such as a call of
the driver.
"""

from __future__ import annotations

from itertools import chain

from unstall.guarding.kinds import Kind
from unstall.virtual.costs.model import OperatorCost
from unstall.virtual.simulation.simulate import Simulation

_TO_HOST = "Memcpy DtoH"


class Foresight:
    """Tells what the program's next call is going to wait for, without changing the simulation. All
    records of the shim's log must have been simulated before.
    """

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def request(self, thread: int, device: int, stream: int, size_bytes: int) -> Kind | None:
        """Returns for which call of the driver a request for memory would wait, as a kind of wait.
        Returns None if the allocator's cache can serve the request.

        Args:
            thread: The thread that would make the request.
            device: The device.
            stream: The stream for which the memory would be requested.
            size_bytes: The size of the request.
        """

        def is_done(event: int) -> bool:
            done = self._simulation.when_done(event)
            return done is not None and done <= self._simulation.now(thread)

        return self._simulation.requests.foresee(device, stream, [size_bytes], is_done) or None

    def launch(self, thread: int, device: int, stream: int, cost: OperatorCost) -> Kind | None:
        """Returns what the launch of an operator would wait for: "value" if the operator copies to
        the host; else the call of the driver that its workspaces or its temporary memory need.
        Returns None if the launch would not wait.

        Args:
            thread: The thread that would launch the operator.
            device: The device.
            stream: The stream.
            cost: The cost of the operator.
        """
        if reads_value(cost):
            return "value"
        sizes = chain.from_iterable(cost.temporaries)
        if not self._simulation.server.has_workspaces(thread, device, stream, cost):
            sizes = chain((size for _, size in cost.workspaces), sizes)
        calls = (self.request(thread, device, stream, size) for size in sizes if size > 0)
        return next((call for call in calls if call), None)


def is_plain(cost: OperatorCost) -> bool:
    """Returns whether a launch of an operator with this cost can never make the host wait."""
    return not (cost.temporaries or cost.workspaces or reads_value(cost))


def reads_value(cost: OperatorCost) -> bool:
    """Returns whether an operator with this cost copies a value to the host, and so waits for
    it.
    """
    return any(_TO_HOST in kernel.name for kernel in cost.kernels)
