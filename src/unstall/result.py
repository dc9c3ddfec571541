"""The result of `explain`: plain data, and its versioned JSON form (`unstall.explain/1`).

All times are int nanoseconds. `accounts` are sums over the window that the steps span; the figures of a
finding or a line are per step. `gain_ns`, `replay`, `floor_ns` and `plan` come of replaying the run; they are null
where nothing can be replayed.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Recorder = Literal["cupti", "torch", "virtual"]
Confidence = Literal["high", "medium", "low"]
SCHEMA = "unstall.explain/1"
WHATIF_SCHEMA = "unstall.whatif/1"

IDLE_CAUSES = (
    "sync",
    "launch",
    "input",
    "copy",
    "allocator",
    "comm",
    "startup",
    "python",
    "event",
    "latency",
)
"""Why a device was idle, in the order of DESIGN's accounts: the index is the cause's code in columns."""
BUSY_PARTS = ("compute", "both", "copy", "comm")
"""What a device was busy with, in the order that reports show."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The run, recorded or simulated. `known_error` says how far off simulated times were on known programs."""

    path: str
    reader: str
    recorder: Recorder | None = None  # which of unstall's own it was, if any
    known_error: str | None = None
    device: str | None = None
    torch: str | None = None
    cuda: str | None = None
    rank: int | None = None
    world_size: int | None = None
    has_stacks: bool = False
    host_events: int = 0
    device_ops: int = 0

    @property
    def simulated(self) -> bool:
        """Whether it ran on a virtual GPU: nothing was recorded, and no recorder slowed it."""
        return self.recorder == "virtual"


class Integrity(msgspec.Struct, frozen=True, kw_only=True):
    """`ok` is False when something missing may change a figure; `notes` say what was repaired or dropped."""

    ok: bool
    notes: tuple[str, ...] = ()


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """How the run was cut into steps: the window's length is `wall_ns`, and `mean_ns` that over `count`."""

    found_by: Literal["annotation", "optimizer", "period", "whole"]
    name: str | None = None  # the annotation, the optimizer, or the launch that marks a step
    marks: Literal["optimizer", "loader", "forward", "explicit"] | None = None  # what told unstall's recorder of them
    count: int
    start_ns: int
    wall_ns: int
    mean_ns: int

    @property
    def plain_name(self) -> str:
        """The name as people use it: AdamW.step rather than torch's Optimizer.step#AdamW.step."""
        name = self.name or ""
        return name.removeprefix("Optimizer.step#") if self.found_by == "optimizer" else name


class PlanStep(msgspec.Struct, frozen=True, kw_only=True):
    """One edit of the plan: the step time after it and all before it, and what stopped a part of it."""

    edit: str
    step_ns: int
    gain_ns: int
    notes: tuple[str, ...] = ()


class Busy(msgspec.Struct, frozen=True, kw_only=True):
    """Time with work on the device: kernels alone, copies alone, both at once, collectives with nothing beside."""

    compute: int = 0
    copy: int = 0
    both: int = 0
    comm: int = 0


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """Time with no work on the device, by cause."""

    sync: int = 0
    launch: int = 0
    input: int = 0
    copy: int = 0
    allocator: int = 0
    comm: int = 0
    startup: int = 0
    python: int = 0
    event: int = 0
    latency: int = 0


class Accounts(msgspec.Struct, frozen=True, kw_only=True):
    """wall_ns == the sum of all parts, exactly."""

    wall_ns: int
    busy_ns: Busy
    idle_ns: Idle


class DeviceAccounts(Accounts, frozen=True, kw_only=True):
    """The same for one device alone."""

    device: int
    name: str | None = None


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """How well the engine gives the measured run back, and what the run is without the recorder's cost.

    `undistorted_mean_step_ns` is what many steps in a row settle to; `accounts` are those of the same few steps as
    were measured. `host_free_step_ns` is the step time if the host took no time at all.
    """

    mean_step_ns: int
    error: float  # of mean_step_ns, as a share of the measured one
    undistorted_mean_step_ns: int
    undistorted_by: Literal["plain step time", "host-only steps", "usual cost", "nothing"]
    usual_error: float | None = None  # of an estimate by the recorder's usual cost, as a share
    plain_step_ns: int | None = None  # as measured without recording
    left_out_ns: int = 0  # pauses that one step alone had, in all steps together
    device_stretch: float = 1.0  # by how much kernels had to change their length to meet the plain step time
    host_free_step_ns: int
    accounts: Accounts
    inferred: tuple[str, ...] = ()  # what the file does not say and the replay takes for true, a phrase each


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds the run: `device`, an idle cause, or `none` when there is no device work."""

    bound_by: str
    basis: Literal["recorded", "undistorted"]
    text: str


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The next frame outward that is the user's too."""

    file: str
    line: int
    function: str


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """A place in the user's source. Without stacks `file` is null and `function` is an annotation."""

    file: str | None = None
    line: int | None = None
    line_is: Literal["exact", "def"] | None = None
    function: str | None = None
    op: str | None = None
    called_from: Caller | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing worth knowing, with its place, what it costs per step and what to do about it."""

    rule: str
    title: str
    where: Where
    count: int  # in the whole window
    steps_seen: int | None = None  # in how many of the steps; null in results saved by versions before
    wait_ns: int  # host blocked, per step
    # Device idle because of it, per step; of copies and collectives the time they ran with no computation beside them.
    exposed_ns: int
    gain_ns: int | None = None
    edit: str | None = None
    saw: str = ""
    fix: str
    safe_if: str
    confidence: Confidence
    harmless: bool = False  # listed because people look for it, not because it costs
    wrong: bool = False  # the program may compute something else than it means to: listed first, whatever it costs
    spans: tuple[tuple[int, int], ...] = ()  # up to 100 (start, end) of its costliest instances, for the timeline


class LineCost(msgspec.Struct, frozen=True, kw_only=True):
    """What one line costs per step: device time of the ops it launched, host blocked, device idle because of it."""

    where: Where
    launches: int  # host calls that put work on a device, in the whole window
    device_ops: int
    device_ns: int
    wait_ns: int
    idle_ns: int
    idle_cause: str | None = None  # the largest one


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """All that a report shows."""

    schema: str = SCHEMA
    version: str
    source: Source
    integrity: Integrity
    steps: Steps
    replay: Replay | None = None
    accounts: Accounts
    by_device: tuple[DeviceAccounts, ...]
    verdict: Verdict
    findings: tuple[Finding, ...]
    lines: tuple[LineCost, ...]
    plan: tuple[PlanStep, ...] | None = None
    floor_ns: int | None = None  # the device's own busy time a step, once the plan is carried out


class EditStep(PlanStep, frozen=True, kw_only=True):
    """One edit asked about; `about` says what it does."""

    about: str = ""


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """What edits would make of a run: schema `unstall.whatif/1`. Times are ns a step.

    `measured_step_ns` and `replayed_step_ns` are of the recorded steps, the recorder at work; the undistorted and the
    predicted step are what many steps in a row settle to without it.
    """

    schema: str = WHATIF_SCHEMA
    version: str
    source: Source
    integrity: Integrity
    steps: Steps
    measured_step_ns: int
    replayed_step_ns: int
    plain_step_ns: int | None = None
    undistorted_step_ns: int
    undistorted_by: Literal["plain step time", "host-only steps", "usual cost", "nothing"]
    usual_error: float | None = None
    predicted_step_ns: int
    floor_ns: int  # the device's own busy time, after all edits
    edits: tuple[EditStep, ...]
    inferred: tuple[str, ...] = ()  # what the file does not say and the replay takes for true, a phrase each
    before: Accounts  # of the undistorted run
    after: Accounts  # of the edited one
    bound_by: tuple[str, str]  # before, after
