"""`Measurement`: four different times of one function, and verdicts on how reliable these times are.

    device      the time in which at least one of the call's kernels or copies runs on the device
    host        the time until the call returns to the host; the device may still be at work
    wall        the time of the call and of the wait for its results
    throughput  the time per call of many calls, back to back with the pipeline full

All times are in ns. Without a device, `host` and `wall` are the same, and `device` and `throughput` are None.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from unstall.measuring.statistics import Spread

SCHEMA = "unstall.bench/1"

Method: TypeAlias = Literal["cupti", "events", "model", "host"]
"""How device time was measured: "cupti" by CUPTI's records of device work, "events" by events in a
full launch queue, "model" by the model of the virtual GPU. "host" means that device time was not
measured.
"""
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
    """A sentence on how to read the times of a measurement.

    Attributes:
        kind: The kind of verdict, such as "launch-bound".
        text: The sentence.
        place: The `file:line` of the cause, or None if no single line is the cause.
        serious: Whether a reader who does not know the verdict would draw a wrong conclusion from a
            figure.
    """

    kind: Kind
    text: str
    place: str | None = None  # file:line, if one line is the cause
    serious: bool = False


@dataclass(frozen=True, slots=True)
class Rate:
    """The work that a function does per second of device time. If the function uses no device, wall time is used
    instead.

    Attributes:
        per_second: The rate, in `unit`.
        unit: Bytes or floating-point operations per second.
        ceiling: The highest rate of this device, in `unit`, or None if it is not known.
        of: How the ceiling was measured.
    """

    per_second: float
    unit: Literal["B/s", "FLOP/s"]
    ceiling: float | None = None  # measured on this device
    of: str = ""  # how the ceiling was measured

    @property
    def percent(self) -> float | None:
        """The rate as a percentage of the ceiling, or None if the ceiling is not known."""
        return 100 * self.per_second / self.ceiling if self.ceiling else None


@dataclass(frozen=True, slots=True)
class Clocks:
    """The device's clock frequency in MHz.

    Attributes:
        before: The frequency before the function was measured.
        after: The frequency after the function was measured.
        highest: The highest frequency of the device.
        held_down_by: The reasons why the driver lowered the frequency, such as "heat".
    """

    before: int
    after: int
    highest: int
    held_down_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The result of `bench` for one function: its times, rates and verdicts. Times are in ns."""

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
        """The time of the function: its device time if that is known, otherwise its wall time."""
        return self.device if self.device is not None else self.wall

    def has(self, kind: Kind) -> bool:
        """Returns whether the measurement has a verdict of the kind `kind`, such as "launch-bound"."""
        return any(verdict.kind == kind for verdict in self.verdicts)
