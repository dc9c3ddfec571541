"""The evidence for verdicts: everything that one `bench` measured and observed."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.figures import duration
from unstall.measuring.calls.inspection import Inspection
from unstall.measuring.device_time.device_ops import DeviceOps
from unstall.measuring.device_time.methods import DeviceTime
from unstall.measuring.gpu_clock import ClockReading
from unstall.measuring.measurement import Cache
from unstall.measuring.statistics import Spread


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """Everything that one call of `bench` measured and observed. All verdicts follow from it alone. Times are in ns."""

    asynchronous: bool  # whether calls return before their work is done
    virtual: bool = False
    framework: str
    has_current_stream: bool
    cache: Cache
    cache_bytes: int
    host: Spread
    wall: Spread
    throughput: Spread | None
    device: DeviceTime | None
    inspection: Inspection
    converged: bool
    stopped: str  # why sampling stopped
    first_call_ns: int
    compiled_first: bool  # whether something was compiled in the first call
    compiled_later: bool  # whether something was compiled while calls were timed
    empty_call_ns: float
    page_faults: float  # per call
    grown_bytes: int = 0  # by the process, while calls were timed
    before: ClockReading | None
    after: ClockReading | None
    sync_lines: tuple[str, ...]
    gpu_is_there: bool

    @property
    def device_ops(self) -> DeviceOps | None:
        return self.device.anatomy if self.device else None

    @property
    def device_ns(self) -> float | None:
        return self.device.device.spread.median if self.device and self.device.device else None

    @property
    def main(self) -> Spread:
        """The time that the verdicts are about, with its samples: the device time, or the wall time
        if no device time is known.
        """
        return self.device.device.spread if self.device and self.device.device else self.wall

    @property
    def waits(self) -> bool:
        """Whether the function itself waits for the device."""
        return bool(
            (self.device_ops is not None and self.device_ops.waits)
            or (self.device is not None and self.device.waits_inside)
            or self.sync_lines
        )


def ns_text(ns: float) -> str:
    """Returns a duration as text, for a sentence."""
    return duration(round(ns))
