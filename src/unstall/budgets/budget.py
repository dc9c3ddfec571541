"""A `Budget`: limits on a run."""

from __future__ import annotations

import msgspec

from unstall.budgets.limits import LIMITS, Limit


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The limits on a run. A field that is None sets no limit.

    Attributes:
        syncs_per_step: How often the host may wait for a device in each step.
        launches_per_step: How many kernels, graphs, copies and memsets the host may launch in each
            step.
        idle: The share of a step, from 0 to 1, during which all devices may be idle.
        exposed_ns: How much device time per step, in ns, a single finding may cost.
        step_ns: How long a step may take on average, in ns.
        reserved_bytes: How many bytes of device memory torch's caching allocator may reserve at its
            peak.
        races: How many races the run may have.
    """

    syncs_per_step: int | None = None
    launches_per_step: int | None = None
    idle: float | None = None
    exposed_ns: int | None = None
    step_ns: int | None = None
    reserved_bytes: int | None = None
    races: int | None = None

    def limits(self) -> list[tuple[Limit, float]]:
        """Returns the limits that are set, each as `(kind of limit, value)`."""
        known = ((limit, getattr(self, limit.field)) for limit in LIMITS)
        return [(limit, value) for limit, value in known if value is not None]
