"""Predicts what the program's next memory request or launch will wait for (for example, a driver call)."""

from __future__ import annotations

from itertools import chain

from unstall.guarding.kinds import Kind
from unstall.virtual.costs.model import OperatorCost
from unstall.virtual.simulation.simulate import Simulation

_TO_HOST = "Memcpy DtoH"


class Foresight:
    """Predicts what the program's next call will wait for. Does not change the simulation. The whole log must be
    simulated before the prediction.
    """

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def request(self, thread: int, device: int, stream: int, size_bytes: int) -> Kind | None:
        """Returns the driver call that a request for memory needs, or None if the cache can serve the request."""

        def is_done(event: int) -> bool:
            done = self._simulation.when_done(event)
            return done is not None and done <= self._simulation.now(thread)

        return self._simulation.requests.foresee(device, stream, [size_bytes], is_done) or None

    def launch(self, thread: int, device: int, stream: int, cost: OperatorCost) -> Kind | None:
        """Returns what the launch of an operator waits for. Returns "value" if the operator copies to the host.
        Otherwise returns the driver call that the operator's workspaces and temporary memory need. Returns None if the
        launch does not wait.
        """
        if reads_value(cost):
            return "value"
        sizes = chain.from_iterable(cost.temporaries)
        if not self._simulation.server.has_workspaces(thread, device, stream, cost):
            sizes = chain((size for _, size in cost.workspaces), sizes)
        calls = (self.request(thread, device, stream, size) for size in sizes if size > 0)
        return next((call for call in calls if call), None)


def is_plain(cost: OperatorCost) -> bool:
    """Returns whether a launch of this operator can never make the host wait."""
    return not (cost.temporaries or cost.workspaces or reads_value(cost))


def reads_value(cost: OperatorCost) -> bool:
    """Returns whether the operator copies a value to the host, and waits for it."""
    return any(_TO_HOST in kernel.name for kernel in cost.kernels)
