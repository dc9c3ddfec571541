"""The result of `diff`: plain data, and its versioned JSON form (`unstall.diff/1`).

All times are int nanoseconds per step. All counts are per step. `a` is the earlier run, and `b` is the later run. Lists
contain only differences, the largest change first.
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
    """A time in both runs, in ns per step.

    A change that is not larger than `noise` may be chance, because the times of the steps within each run vary. `noise`
    is null if each run has only one step, or if the noise was not computed.
    """

    a: int
    b: int
    noise: int | None = None

    @property
    def change(self) -> int:
        """How much longer B takes than A, in ns per step."""
        return self.b - self.a

    @property
    def beyond_noise(self) -> bool:
        """Whether the change is larger than the noise. If the noise is unknown, it counts as 0."""
        return abs(self.change) > (self.noise or 0)


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """How often something happens per step in both runs, rounded to a thousandth."""

    a: float
    b: float

    @property
    def same(self) -> bool:
        """Whether both numbers are equal."""
        return self.a == self.b


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes per step in both runs."""

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
    """A sentence that says what limits the comparison."""

    code: Code
    text: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison in words. `ratio` is the slower run's step time divided by the faster run's step time."""

    faster: Literal["a", "b"] | None  # None: no difference beyond the noise, or unknown
    ratio: float | None
    text: str


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a step's time: the device is busy with `key`, or idle because of `key`."""

    key: str
    kind: Literal["busy", "idle"]
    time_ns: Time


class WaitChange(msgspec.Struct, frozen=True, kw_only=True):
    """The waits at one place, in run A and in run B.

    Either all of these waits are in the same operator, or they are outside of operators and are calls of the same CUDA
    function. If only B has the waits, `where_a` is null. If only A has the waits, `where_b` is null.
    """

    status: Status
    where_a: Where | None
    where_b: Where | None
    count: Count
    wait_ns: Time  # host blocked
    exposed_ns: Time  # device idle because of it


class CopyChange(msgspec.Struct, frozen=True, kw_only=True):
    """The copies at one place, in one direction and in one operator, in run A and in run B."""

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
    """How many launches and kernels there are per step, in run A and in run B."""

    calls: Count  # host calls that launch work on a device; a graph launch is one call
    graph_launches: Count
    kernels: Count
    kernels_in_graphs: Count


class KernelChange(msgspec.Struct, frozen=True, kw_only=True):
    """All kernels with one name, in run A and in run B.

    `where_a` is the place in A whose launches take most of the time of these kernels in A. `where_b` is the place in B
    whose launches take most of their time in B.
    """

    status: Status
    name: str
    where_a: Where | None
    where_b: Where | None
    count: Count
    device_ns: Time


class LineChange(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of one line in both runs. `cost_ns` is the sum of device time and idle time.

    If the line moved, `where_a` and `where_b` differ.
    """

    status: Status
    where_a: Where | None
    where_b: Where | None
    launches: Count
    cost_ns: Time
    device_ns: Time
    idle_ns: Time
    wait_ns: Time


class PromisedEdit(msgspec.Struct, frozen=True, kw_only=True):
    """One edit in A's plan. `step_ns` is the step time after this edit and all edits before it.

    If the edit is still to be made in B, `still_at` is the place in B's source at which to make the edit, and `left_ns`
    is the gain of the edit in B. Otherwise `still_at` and `left_ns` are null.
    """

    edit: str
    step_ns: int
    gain_ns: int
    still_at: Where | None = None
    left_ns: int | None = None


class Free(msgspec.Struct, frozen=True, kw_only=True):
    """The resource that limits a step of B most. `step_ns` is the step time if this resource took no time."""

    resource: str
    step_ns: int


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """The step time that A's report promised, and the step time that B reached, without the recorder's overhead.

    All times are in ns. They are for the number of steps in `DiffResult.compared`. If A has no plan, `promised_ns` and
    `floor_ns` are null, and `edits` is empty.

    Attributes:
        before_ns: The step time of A.
        promised_ns: The predicted step time after all edits in A's plan.
        got_ns: The step time of B.
        floor_ns: How long the device is busy in a step, if all edits in A's plan are made.
        error_ns: The error of A's replay.
        free: The resource that limits B most, or null.
        edits: The edits in A's plan.
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
    """Everything that a report on two runs shows.

    If the data is not sufficient for a value, the value is null or empty. A caveat says why a value is empty.
    `compared` is a pair (m, n): m steps of A do the same work as n steps of B. Figures "per step" are for m steps of A
    and for n steps of B.
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
    """Returns whether both runs have the same launches, and all `changes` are within the noise."""
    statuses = {change.status for each in changes for change in each}
    if launches is None or not statuses <= {"within noise"}:
        return False
    counts = launches.calls, launches.graph_launches, launches.kernels, launches.kernels_in_graphs
    return all(count.same for count in counts)
