"""The result of `diff`: plain data, and its versioned JSON form (`unstall.diff/1`).

All times are int nanoseconds per step. All counts are per step. `a` is the run before, `b` the run after. Lists hold
only differences, the largest change first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from unstall.result import Integrity, Source, Steps, Where

SCHEMA = "unstall.diff/1"

Status = Literal["new", "gone", "changed", "within noise"]
Became = Literal["pinned", "pageable", "blocking", "non-blocking"]
Code = Literal[
    "simulated", "device", "devices", "software", "rank", "recorded", "stacks", "steps", "noise", "integrity", "note"
]


class Time(msgspec.Struct, frozen=True, kw_only=True):
    """ns per step. A change of `noise` or less may be chance: the steps within each run vary that much.

    `noise` is null if neither run has several steps, or if it was not computed.
    """

    a: int
    b: int
    noise: int | None = None

    @property
    def change(self) -> int:
        """How much longer B takes, in ns per step."""
        return self.b - self.a

    @property
    def beyond_noise(self) -> bool:
        """Whether the change is larger than the noise; unknown noise counts as 0."""
        return abs(self.change) > (self.noise or 0)


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """Number per step, rounded to a thousandth."""

    a: float
    b: float

    @property
    def same(self) -> bool:
        """Whether both runs have the same number."""
        return self.a == self.b


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes per step."""

    a: int
    b: int


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two runs."""

    source: Source
    integrity: Integrity
    steps: Steps
    shortest_step_ns: int
    longest_step_ns: int
    bound_by: str


class Caveat(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence on what limits the comparison."""

    code: Code
    text: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison in words. `ratio` is the slower run's step over the faster one's."""

    faster: Literal["a", "b"] | None  # None: no difference beyond the noise, or unknown
    ratio: float | None
    text: str


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a step's time: busy with `key`, or idle because of it."""

    key: str
    kind: Literal["busy", "idle"]
    time_ns: Time


class WaitChange(msgspec.Struct, frozen=True, kw_only=True):
    """The waits at one place, in run A and in run B: those of one operator, or of one CUDA function outside operators.

    `where_a` is null for new waits.
    """

    status: Status
    where_a: Where | None
    where_b: Where | None
    count: Count
    wait_ns: Time  # host blocked
    exposed_ns: Time  # device idle because of it


class CopyChange(msgspec.Struct, frozen=True, kw_only=True):
    """Copies in one direction at one place, under one operator."""

    status: Status
    where_a: Where | None
    where_b: Where | None
    direction: str
    became: tuple[Became, ...]
    count: Count
    pageable: Count  # of these, how many from or to pageable memory
    pinned: Count
    blocking: Count  # of these, how many the host waited for
    bytes: Size
    device_ns: Time


class Launches(msgspec.Struct, frozen=True, kw_only=True):
    """How work gets to the device."""

    calls: Count  # host calls that launch work on a device; a graph launch is one call
    graph_launches: Count
    kernels: Count
    kernels_in_graphs: Count


class KernelChange(msgspec.Struct, frozen=True, kw_only=True):
    """All kernels of one name. `where_a` and `where_b` are the places that launched most of the kernels' time in each
    run.
    """

    status: Status
    name: str
    where_a: Where | None
    where_b: Where | None
    count: Count
    device_ns: Time


class LineChange(msgspec.Struct, frozen=True, kw_only=True):
    """One line's cost. `cost_ns` is the sum of device and idle time, with its noise. A moved line has two places."""

    status: Status
    where_a: Where | None
    where_b: Where | None
    launches: Count
    cost_ns: Time
    device_ns: Time
    idle_ns: Time
    wait_ns: Time


class PromisedEdit(msgspec.Struct, frozen=True, kw_only=True):
    """One edit of A's plan, with the step time after this edit and all before it.

    If the edit is still open in B, `still_at` is its place in B, and `left_ns` is its gain there. Both are null if the
    edit was made, or if B kept the promise.
    """

    edit: str
    step_ns: int
    gain_ns: int
    still_at: Where | None = None
    left_ns: int | None = None


class Free(msgspec.Struct, frozen=True, kw_only=True):
    """The resource that would shorten a step of B most if it took no time, and the step time in that case."""

    resource: str
    step_ns: int


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """The step times that A's report promised and that B reached, without the recorder's overhead, in ns per compared
    unit of steps.

    `promised_ns` is the step time after A's whole plan, `floor_ns` the device's own busy time after the plan,
    `error_ns` the error of A's replay. If A has no plan, `promised_ns` and `floor_ns` are null and `edits` is empty.
    """

    before_ns: int
    promised_ns: int | None = None
    got_ns: int
    floor_ns: int | None = None
    error_ns: int = 0
    free: Free | None = None
    edits: tuple[PromisedEdit, ...] = ()


class Unchanged(msgspec.Struct, frozen=True, kw_only=True):
    """How many items of each kind are the same in both runs, or differ by no more than the noise."""

    waits: int = 0
    copies: int = 0
    kernels: int = 0
    lines: int = 0


class DiffResult(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a report of two runs shows. Values that the data does not support are null, or empty with a
    caveat.

    `compared` is how many steps of A and how many steps of B do the same work. Such a group of steps
    is the unit of all figures per step.
    """

    schema: str = SCHEMA
    version: str
    a: Side
    b: Side
    matched_by: Literal["line", "function", "operator"]
    caveats: tuple[Caveat, ...]
    summary: Summary
    compared: tuple[int, int] = (1, 1)
    step_ns: Time | None
    promise: Promise | None = None
    accounts: tuple[Account, ...]
    waits: tuple[WaitChange, ...]
    copies: tuple[CopyChange, ...]
    launches: Launches | None
    kernels: tuple[KernelChange, ...]
    lines: tuple[LineChange, ...]
    unchanged: Unchanged

    @property
    def of_whole_runs(self) -> bool:
        """Whether the whole runs are compared, each as one step."""
        return self.a.steps.found_by == self.b.steps.found_by == "whole"

    @property
    def empty(self) -> bool:
        """Whether the runs can be compared and nothing differs beyond the noise."""
        same = alike(self.launches, self.waits, self.copies, self.kernels, self.lines)
        return self.summary.faster is None and same


def alike(launches: Launches | None, *changes: Sequence[WaitChange | CopyChange | KernelChange | LineChange]) -> bool:
    """Returns whether both runs have the same launches and none of these changes exceeds the noise."""
    statuses = {change.status for each in changes for change in each}
    if launches is None or not statuses <= {"within noise"}:
        return False
    counts = launches.calls, launches.graph_launches, launches.kernels, launches.kernels_in_graphs
    return all(count.same for count in counts)
