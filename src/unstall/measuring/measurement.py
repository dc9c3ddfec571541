"""`Measurement`: four different times of one function, and verdicts on how far to trust them.

    device      the function's own time on the device: in each call, how long any of its kernels and copies ran
    host        what the call costs the host, until it returns; the device may still be at work
    wall        the call and the wait for its results
    throughput  the time per call of many calls, back to back with the pipeline full

All times are ns. Without a device, `host` and `wall` are the same, and the other two are None.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from unstall.measuring.statistics import Spread

SCHEMA = "unstall.bench/1"

Method: TypeAlias = Literal["cupti", "events", "model", "host"]
"""How device time was measured: by device records, by events in a full queue, by the virtual GPU's model, or not."""
Cache: TypeAlias = Literal["cold", "hot", "rotate"]
Kind: TypeAlias = Literal[
    "launch-bound",
    "device-bound",
    "sync inside",
    "copies inside",
    "escapes to another stream",
    "works later",
    "throttled",
    "not converged",
    "first call differs",
    "too short to resolve",
    "allocates",
    "keeps memory",
    "result unused",
    "input changes",
    "stale graph input",
    "denormals",
    "zeros",
    "NaN",
    "other threads",
    "CPU tensor",
    "warm L2",
]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One thing to know about the figures. `serious`: without this verdict, a reader would misread a figure."""

    kind: Kind
    text: str
    place: str | None = None  # file:line, if one line is the cause
    serious: bool = False


@dataclass(frozen=True, slots=True)
class Rate:
    """Work done per second of device time (without a device, of wall time), and the most that the device can do."""

    per_second: float
    unit: Literal["B/s", "FLOP/s"]
    ceiling: float | None = None  # measured on this device
    of: str = ""  # how the ceiling was measured

    @property
    def percent(self) -> float | None:
        """The rate as a percentage of the ceiling."""
        return 100 * self.per_second / self.ceiling if self.ceiling else None


@dataclass(frozen=True, slots=True)
class Clocks:
    """The device's clock in MHz before and after the samples, and the driver's reasons for holding the clock down."""

    before: int
    after: int
    highest: int
    held_down_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The results of `bench` for one function."""

    label: str
    method: Method
    cache: Cache
    host: Spread
    wall: Spread
    device: Spread | None = None
    throughput: Spread | None = None
    span: Spread | None = None  # on the device, from a call's first beginning to its last end: with the gaps
    device_ops: float | None = None  # kernels, copies and memsets a call
    stopped: str = ""
    first_call_ns: int = 0
    compiled_ns: int | None = None  # of it, where something was compiled
    verdicts: tuple[Verdict, ...] = ()
    bandwidth: Rate | None = None
    rate: Rate | None = None
    device_name: str = ""
    clocks: Clocks | None = None
    versions: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Spread:
        """The function's own time: on the device if there is one, else on the host."""
        return self.device if self.device is not None else self.wall

    def has(self, kind: Kind) -> bool:
        """Whether there is a verdict of this kind."""
        return any(verdict.kind == kind for verdict in self.verdicts)
