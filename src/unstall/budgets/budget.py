"""A `Budget`: limits on a run."""

from __future__ import annotations

import msgspec

from unstall.budgets.limits import LIMITS, Limit


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The limits on a run. A field that is None sets no limit.

    Attributes:
        syncs_per_step: How often the host may wait for a device, in any step.
        launches_per_step: How often the host may put work on a device, in any step.
        idle: The share of a step, from 0 to 1, for which no device may be at work.
        exposed_ns: What any one finding may cost the device, per step.
        step_ns: How long a step may take in the mean.
        reserved_bytes: How much memory the caching allocator may take from a device.
        races: How many races there may be.
    """

    syncs_per_step: int | None = None
    launches_per_step: int | None = None
    idle: float | None = None
    exposed_ns: int | None = None
    step_ns: int | None = None
    reserved_bytes: int | None = None
    races: int | None = None

    def limits(self) -> list[tuple[Limit, float]]:
        """Returns the limits that are set."""
        known = ((limit, getattr(self, limit.field)) for limit in LIMITS)
        return [(limit, value) for limit, value in known if value is not None]
