"""The result of `diff`: plain data, and its versioned JSON form (`unstall.diff/1`).

All times are int nanoseconds per step. All counts are per step. `a` is the earlier run, and `b` is
the later run. Lists contain only differences, the largest change first.
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
    """A time in both of two runs, in ns per step: `a` in run A, `b` in run B.

    A difference that is not larger than `noise` may be chance, because the steps within each run do
    not all take the same time. `noise` is None if each run has only one step, or if it was not
    computed.
    """

    a: int
    b: int
    noise: int | None = None

    @property
    def change(self) -> int:
        """How much longer run B takes than run A, in ns per step."""
        return self.b - self.a

    @property
    def beyond_noise(self) -> bool:
        """Whether the difference between the two times is larger than `noise`. If `noise` is None, it counts as 0."""
        return abs(self.change) > (self.noise or 0)


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """How often something happens per step in run A (`a`) and in run B (`b`), rounded to a thousandth."""

    a: float
    b: float

    @property
    def same(self) -> bool:
        """Whether the two numbers are equal."""
        return self.a == self.b


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes per step in run A (`a`) and in run B (`b`)."""

    a: int
    b: int


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one of the two runs that are compared: the recording, its steps, and what limits its speed."""

    source: Source
    integrity: Integrity
    steps: Steps
    shortest_step_ns: int
    longest_step_ns: int
    bound_by: str


class Caveat(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence that says what limits the comparison of two runs. `code` is a short name for what limits it."""

    code: Code
    text: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of two runs in words.

    Attributes:
        faster: Which run is faster: "a", "b", or None if neither is known to be.
        ratio: The slower run's step time divided by the faster run's step time; None if it is not
            known.
        text: The summary, in one or more sentences.
    """

    faster: Literal["a", "b"] | None  # None: no difference beyond the noise, or unknown
    ratio: float | None
    text: str


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a step's time, in both runs. If `kind` is "busy", the device does work of the
    kind `key`. If `kind` is "idle", the device is idle for the reason `key`.
    """

    key: str
    kind: Literal["busy", "idle"]
    time_ns: Time


class WaitChange(msgspec.Struct, frozen=True, kw_only=True):
    """The host's waits for the device at one source line, if they differ between run A and run B.

    Either all of these waits are in the same operator, or they are outside of operators and are
    calls of the same CUDA function. If only B has the waits, `where_a` is None. If only A has the
    waits, `where_b` is None.
    """

    status: Status
    where_a: Where | None
    where_b: Where | None
    count: Count
    wait_ns: Time  # host blocked
    exposed_ns: Time  # device idle because of it


class CopyChange(msgspec.Struct, frozen=True, kw_only=True):
    """The copies at one source line, in one direction and in one operator, if they differ between
    run A and run B.

    If only B has the copies, `where_a` is None. If only A has the copies, `where_b` is None.
    """

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
    """How many launches and kernels there are per step, in run A and in run B.

    Attributes:
        calls: Calls that launch work on a device. The launch of a CUDA graph is one call.
        graph_launches: Those of `calls` that launch a CUDA graph.
        kernels: Kernels that run.
        kernels_in_graphs: Those of `kernels` that are in CUDA graphs.
    """

    calls: Count
    graph_launches: Count
    kernels: Count
    kernels_in_graphs: Count


class KernelChange(msgspec.Struct, frozen=True, kw_only=True):
    """All kernels with one name, if they differ between run A and run B.

    `where_a` is the line in A whose launches take most of the time of these kernels in A. `where_b`
    is the line in B whose launches take most of their time in B.
    """

    status: Status
    name: str
    where_a: Where | None
    where_b: Where | None
    count: Count
    device_ns: Time


class LineChange(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of one source line, if it differs between run A and run B. `cost_ns` is the sum of
    device time and idle time.

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
    """One change in the plan of run A. `step_ns` is the predicted step time after this change and
    all changes before it.

    If the change is still to be made in run B, `still_at` is the line in B's source at which to
    make it, and `left_ns` is what it gains in B. If it was made, `still_at` and `left_ns` are None.
    """

    edit: str
    step_ns: int
    gain_ns: int
    still_at: Where | None = None
    left_ns: int | None = None


class Free(msgspec.Struct, frozen=True, kw_only=True):
    """The resource (such as the kernels, the waits or the host) that limits a step of run B most.
    `step_ns` is the step time if this resource took no time.
    """

    resource: str
    step_ns: int


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """The step time that the report of run A promised, and the step time that run B reached,
    without the recorder's overhead.

    All times are in ns. They are for the number of steps in `DiffResult.compared`. If A has no
    plan, `promised_ns` and `floor_ns` are None, and `edits` is empty.

    Attributes:
        before_ns: The step time of A.
        promised_ns: The predicted step time after all changes in A's plan.
        got_ns: The step time of B.
        floor_ns: How long the device is busy in a step, if all changes in A's plan are made.
        error_ns: The error of the replay that made the prediction.
        free: The resource (such as the kernels or the waits) that limits B most; None if it is not
            known.
        edits: The changes in A's plan.
    """

    before_ns: int
    promised_ns: int | None = None
    got_ns: int
    floor_ns: int | None = None
    error_ns: int = 0
    free: Free | None = None
    edits: tuple[PromisedEdit, ...] = ()


class Unchanged(msgspec.Struct, frozen=True, kw_only=True):
    """How many groups of waits, groups of copies, kernels and lines are the same in both runs, or
    differ by no more than the noise (what chance explains).
    """

    waits: int = 0
    copies: int = 0
    kernels: int = 0
    lines: int = 0


class DiffResult(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a report on two runs shows.

    If the data is not sufficient for a value, the value is None or empty. A caveat says why.
    `compared` is a pair (m, n): m steps of A do the same work as n steps of B. Figures "per step"
    are for m steps of A and for n steps of B.
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
        """Whether each whole run counts as one step in the comparison."""
        return self.a.steps.found_by == self.b.steps.found_by == "whole"

    @property
    def empty(self) -> bool:
        """Whether the two runs can be compared and nothing differs by more than the noise (what chance explains)."""
        same = alike(self.launches, self.waits, self.copies, self.kernels, self.lines)
        return self.summary.faster is None and same


def alike(launches: Launches | None, *changes: Sequence[WaitChange | CopyChange | KernelChange | LineChange]) -> bool:
    """Returns whether two runs do not differ: they have the same launches, and no change in
    `changes` is larger than the noise (what chance explains).
    """
    statuses = {change.status for each in changes for change in each}
    if launches is None or not statuses <= {"within noise"}:
        return False
    counts = launches.calls, launches.graph_launches, launches.kernels, launches.kernels_in_graphs
    return all(count.same for count in counts)
