"""The result of `explain`: plain data, and its versioned JSON form (`unstall.explain/1`).

All times are int nanoseconds. The figures in `accounts` are sums over the window that the steps span. The figures of a
finding or a line are means per step. `gain_ns`, `replay`, `floor_ns` and `plan` come from replaying the run; these
values are null if nothing can be replayed.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

Recorder = Literal["cupti", "torch", "virtual"]
Confidence = Literal["high", "medium", "low"]
FaultKind = Literal["index", "class", "probability", "weight", "assertion", "memory", "other"]
Amount: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
"""A count or a number of bytes. A saved result with a negative amount is rejected."""
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
    "unknown",
)
"""Why a device was idle. The index of a cause is its code in columns."""
UNTRUSTED = 0.2
"""Largest error of a replay that is trusted, as a fraction of the recorded step time.

If the error is larger, no gain is promised, because it would be the gain of a different program.
"""
CAVEAT = "In the replay of the unchanged run"
"""First words of a verdict if the error of the replay is too large. The next sentence says what limits the run."""
BUSY_PARTS = ("compute", "both", "copy", "comm")
"""What a device was busy with, in the order in which reports show it."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a result is about. The run was recorded, or simulated on a virtual GPU.

    Attributes:
        path: The file that was read. For a live source, a name for this source.
        reader: The file format: "kineto", or the kind of live source.
        recorder: The recorder of unstall that wrote the file; None if another tool wrote it.
        known_error: A text on how far simulated times differ from measured times on known programs; None for a recorded
            run.
        device: Model name of the device.
        torch: Version of torch.
        cuda: Version of the CUDA runtime.
        rank: Rank of the process in a distributed run.
        world_size: Number of processes in a distributed run.
        has_stacks: Whether Python stacks were recorded.
        host_events: Number of host events.
        device_ops: Number of device ops.
    """

    path: str
    reader: str
    recorder: Recorder | None = None
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
        """Whether the run was on a virtual GPU. No recorder slows down such a run."""
        return self.recorder == "virtual"


class Integrity(msgspec.Struct, frozen=True, kw_only=True):
    """Problems of the input.

    Attributes:
        ok: False if something is missing that may change a figure.
        notes: What was repaired or dropped, one sentence each.
        shortfall: Why the result does not cover the whole part of the run that the user asked for. It may cover a
            different part, or only a few steps of the requested part. None if it covers the whole requested part. The
            verdict begins with this text.
    """

    ok: bool
    notes: tuple[str, ...] = ()
    shortfall: str | None = None


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that the figures leave out because of `unstall.graphed`.

    Before `graphed` uses a CUDA graph, `graphed` checks the graph. For this check, `graphed` also runs the function
    without the graph and compares the results. A step with such checks takes longer than other steps. The figures are
    about the longest stretch of steps without checks.

    Attributes:
        proving: Number of steps that contain checks.
        apart: Number of steps that contain no checks, but lie outside the longest stretch of steps without checks.
        of: Number of all steps, including the steps that the figures are about.
        mean_ns: Mean time of the steps that are left out.
    """

    proving: int
    apart: int
    of: int
    mean_ns: int

    @property
    def count(self) -> int:
        """Number of steps that are left out."""
        return self.proving + self.apart

    @property
    def most(self) -> bool:
        """Whether more than half of all steps are left out. If so, the remaining steps are not typical of the run."""
        return 2 * self.count > self.of


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """How the run was cut into steps.

    Attributes:
        found_by: How the steps were detected; "whole" if no steps were found. In that case the run counts as one step.
        name: The name of the annotation, optimizer or launch that begins each step.
        marks: What marked the step boundaries for unstall's recorder; None if another tool recorded the run.
        count: Number of steps.
        start_ns: When the first step begins, on the run's clock.
        wall_ns: Time from the start of the first step to the end of the last step.
        mean_ns: `wall_ns` divided by `count`.
        left_out: Steps that do not count because `unstall.graphed` checks its graphs in these steps; None if all steps
            count.
    """

    found_by: Literal["annotation", "optimizer", "period", "whole"]
    name: str | None = None
    marks: Literal["optimizer", "loader", "forward", "explicit"] | None = None
    count: Annotated[int, msgspec.Meta(ge=1)]
    start_ns: int
    wall_ns: int
    mean_ns: int
    left_out: LeftOut | None = None

    @property
    def unit(self) -> str:
        """What a figure describes, in words: "a step", or "the run" if no steps were found."""
        return "the run" if self.found_by == "whole" else "a step"

    @property
    def over(self) -> str:
        """The words after a figure: "per step", or "in all" if no steps were found."""
        return "in all" if self.found_by == "whole" else "per step"

    @property
    def plain_name(self) -> str:
        """The name as people write it, such as AdamW.step for torch's Optimizer.step#AdamW.step."""
        name = self.name or ""
        return name.removeprefix("Optimizer.step#") if self.found_by == "optimizer" else name


class PlanStep(msgspec.Struct, frozen=True, kw_only=True):
    """One edit of the plan. The plan lists edits in the order to make them.

    Attributes:
        edit: The edit, in the form that `unstall whatif --edit` takes.
        step_ns: Step time after this edit and all earlier edits of the plan.
        gain_ns: By how much this edit shortens the step.
        notes: Which parts of the edit could not be made, and why, one sentence each.
    """

    edit: str
    step_ns: int
    gain_ns: int
    notes: tuple[str, ...] = ()


class Busy(msgspec.Struct, frozen=True, kw_only=True):
    """Time in ns during which the device works, by kind of work.

    Attributes:
        compute: A kernel runs, and no copy runs.
        copy: A copy runs, and no kernel runs.
        both: A kernel and a copy run at the same time.
        comm: Only collectives run.
    """

    compute: int = 0
    copy: int = 0
    both: int = 0
    comm: int = 0


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """Time in ns during which the device does nothing, by cause. The attributes are the causes in `IDLE_CAUSES`."""

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
    unknown: int = 0


class Accounts(msgspec.Struct, frozen=True, kw_only=True):
    """How the time of the recorded steps divides into busy and idle time.

    Attributes:
        wall_ns: Length of the recorded steps. It is exactly the sum of all attributes of `busy_ns` and `idle_ns`.
        busy_ns: Time during which a device works, by kind of work.
        idle_ns: Time during which no device works, by cause.
        comm_ns: Time during which a collective runs, alone or at the same time as other work.
    """

    wall_ns: int
    busy_ns: Busy
    idle_ns: Idle
    comm_ns: int = 0

    @property
    def all_idle_ns(self) -> int:
        """Time in ns during which no device works, summed over all causes."""
        return sum(getattr(self.idle_ns, cause) for cause in IDLE_CAUSES)


class DeviceAccounts(Accounts, frozen=True, kw_only=True):
    """The accounts of a single device.

    Attributes:
        device: Index of the device.
        name: Model name of the device.
    """

    device: int
    name: str | None = None


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """How well the replay reproduces the measured run, and how the run would be without the recorder's overhead.

    Attributes:
        mean_step_ns: Step time of the replayed run.
        error: Difference between `mean_step_ns` and the measured step time, as a fraction of the measured step time.
        error_ns: `error` times `undistorted_mean_step_ns`, in ns; never negative. A gain smaller than `error_ns` may be
            0.
        undistorted_mean_step_ns: Step time in a long run without the recorder's overhead.
        undistorted_by: How the overhead was determined.
        usual_error: Usual error of the estimated overhead, as a fraction, if `undistorted_by` is "usual cost".
        plain_step_ns: Step time measured without recording.
        left_out_ns: Total length of the pauses that the replay omits. A pause is omitted if the pause occurred in only
            one step.
        device_stretch: Factor by which kernel times had to be multiplied to match the plain step time.
        host_free_step_ns: Step time if the host took no time at all.
        accounts: Accounts of the recorded steps without the recorder's overhead.
        inferred: Facts that the file lacks and that the replay assumes, one phrase each.
    """

    mean_step_ns: int
    error: float
    error_ns: int = 0
    undistorted_mean_step_ns: int
    undistorted_by: Literal["plain step time", "host-only steps", "usual cost", "nothing"]
    usual_error: float | None = None
    plain_step_ns: int | None = None
    left_out_ns: int = 0
    device_stretch: float = 1.0
    host_free_step_ns: int
    accounts: Accounts
    inferred: tuple[str, ...] = ()


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds the run.

    Attributes:
        bound_by: The resource that would shorten a step most if the resource took no time: "device", or one of
            `IDLE_CAUSES` except "unknown". If several resources limit the run to the same degree, the host and the
            kernels are left out, unless no resource remains without them. "mixed" if several resources remain, or if no
            single resource limits the run. "none" if there is no device work, or the device failed.
        or_bound_by: What `bound_by` would be if the recorder's overhead were not as estimated. If the host limits the
            run, the overhead is assumed to be larger, by the error of the estimate. Otherwise, it is assumed to be
            zero. None if this value is equal to `bound_by`, or if the overhead is not estimated.
        basis: Whether the verdict is about the run as recorded, or about the run without the recorder's overhead.
        text: The verdict in sentences, with figures.
        if_free: Maps each resource ("host", "kernels", "copies", "communication", "waits", "input", "allocator",
            "startup", "sleep") to a time in ns. The time says how much shorter a replayed step is if the resource takes
            no time. A value below `Replay.error_ns` may be 0 in truth. None if the replay is not accurate enough.
    """

    bound_by: str
    or_bound_by: str | None = None
    basis: Literal["recorded", "undistorted"]
    text: str
    if_free: dict[str, int] | None = None


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The function in the user's code from which a place was called, and the line of the call."""

    file: str
    line: int
    function: str


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """A place in the user's source.

    Attributes:
        file: The file; None if no stacks were recorded.
        line: The line number, from 1.
        line_is: "exact" if `line` is the line that ran, "def" if `line` is the first line of the function.
        function: The function; the name of an annotation if `file` is None.
        op: The outermost operator; None if the place is not about a single operator.
        called_from: The nearest caller in the user's code.
    """

    file: str | None = None
    line: int | None = None
    line_is: Literal["exact", "def"] | None = None
    function: str | None = None
    op: str | None = None
    called_from: Caller | None = None

    @property
    def key(self) -> tuple[str | None, int | None, str | None, str | None]:
        """The place without its caller. Two places with equal keys are the same place."""
        return self.file, self.line, self.function, self.op


class FaultInput(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor that was an input of the failed operator. The tensors of a list are named indices[0], indices[1], …"""

    name: str
    dtype: str
    shape: tuple[int, ...]


class WrongValue(msgspec.Struct, frozen=True, kw_only=True):
    """The first wrong value among the inputs of a failed operator.

    Attributes:
        argument: The name of the input that has the wrong value.
        value: The value; "nan", "inf" or "-inf" for values that JSON lacks.
        position: The index of the value in the input.
        least: The smallest valid value; None if the value is neither too small nor too large.
        bound: The first value that is too large; None if `least` is None.
        count: How many values of the input are wrong.
        of: How many values the input has.
    """

    argument: str
    value: int | float | str
    position: tuple[int, ...]
    least: int | None = None
    bound: int | None = None
    count: int
    of: int


class HeldMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The device memory that one line's allocations occupied.

    Attributes:
        where: The line.
        bytes: Total size of the allocations.
        count: Number of allocations.
    """

    where: Where
    bytes: int
    count: int


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of a device. It says what failed, and when the error was raised in Python.

    The failed source line is in `Finding.where`.

    Attributes:
        kind: The kind of error that the kernel detected; "memory" if the device's memory was full.
        operator: The operator that the program called, or the autograd node.
        kernel: The operator whose kernel failed.
        check: The text of the kernel's check that failed.
        inputs: The input tensors of the operator.
        wrong: The first wrong value, if it is known.
        backward: Whether the operator failed in a backward pass. If so, `Finding.where` is the line of the forward
            pass. But if the backward pass is code of the program, `Finding.where` is a line of this code.
        device: The device's index.
        stream: The recorder's number of the stream.
        iteration: Number of the step, from 1 on, counted over the whole program; None if steps are not known.
        call: How many times the program had called the operator with the same call stack, including the failed call.
        replayed_at: Where the CUDA graph was launched, if the failed work was part of a CUDA graph.
        noticed_at: Where the error was raised in Python; None if the error was not raised in Python.
        noticed_after_ns: Time from the call of the operator to the error in Python.
        ended: Whether the error ended the program.
        held: The allocations that occupied the memory when the memory was full, the largest amount first.
    """

    kind: FaultKind
    operator: str | None = None
    kernel: str | None = None
    check: str
    inputs: tuple[FaultInput, ...] = ()
    wrong: WrongValue | None = None
    backward: bool = False
    device: int
    stream: int | None = None
    iteration: int | None = None
    call: int | None = None
    replayed_at: Where | None = None
    noticed_at: Where | None = None
    noticed_after_ns: int | None = None
    ended: bool = False
    held: tuple[HeldMemory, ...] = ()


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One problem: its place, its cost per step, and the way to fix it.

    Several threads may read it at the same time.

    Attributes:
        rule: Name of the rule that found the problem.
        title: What happens, in a sentence.
        where: The place in the source.
        count: How often the problem happens in all recorded steps together.
        steps_seen: In how many steps the problem happens; None in results that older versions saved.
        wait_ns: How long the host is blocked, per step.
        exposed_ns: How long the device is idle because of the problem, per step. For copies and collectives: how long
            they run while nothing computes. For kernels that could be faster: how long they run while nothing else
            runs.
        gain_ns: How much shorter a step gets when `edit` is made. None if the edit was not replayed, or if the gain is
            smaller than the replay's error.
        gain_below_ns: The replay's error per step, if the gain is smaller than this error; else None.
        edit: The edit that models the fix, as `unstall whatif --edit` takes it; None if no edit models the fix.
        saw: The evidence.
        fix: What to do.
        safe_if: The condition under which `fix` keeps the program correct.
        confidence: How sure the rule is that the finding is correct.
        harmless: Whether the finding costs nothing. A harmless finding is listed because people look for it.
        wrong: Whether the program may compute a wrong result. Findings with a wrong result come first.
        explains: Whether the finding explains what surprises people, such as a launch that looks slow, or a clock
            reading that leaves the device's work out. Such a finding is harmless: it costs no time.
        spans: Times of the up to 100 costliest occurrences, as (start, end) in ns, in order of time.
        fault: The fault of the device that the finding is about; None for all other findings.
    """

    rule: str
    title: str
    where: Where
    count: int
    steps_seen: int | None = None
    wait_ns: int
    exposed_ns: int
    gain_ns: int | None = None
    gain_below_ns: int | None = None
    edit: str | None = None
    saw: str = ""
    fix: str
    safe_if: str
    confidence: Confidence
    harmless: bool = False
    wrong: bool = False
    explains: bool = False
    spans: tuple[tuple[int, int], ...] = ()
    fault: Fault | None = None


class LineCost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of one source line.

    Attributes:
        where: The line.
        launches: Number of host calls at the line that put work on a device, in all recorded steps together.
        device_ops: Number of device ops that these calls launched, in all recorded steps together.
        device_ns: Device time of the launched ops, per step.
        wait_ns: How long the host is blocked at the line, per step.
        idle_ns: How long the device is idle because of the line, per step.
        idle_cause: The cause of most of `idle_ns`; None if `idle_ns` is 0.
    """

    where: Where
    launches: int
    device_ops: int
    device_ns: int
    wait_ns: int
    idle_ns: int
    idle_cause: str | None = None


class LineCount(msgspec.Struct, frozen=True, kw_only=True):
    """How often one line does something, such as waiting for the device.

    Attributes:
        where: The line.
        most: The largest number of times that the line does this within one step.
        count: How often the line does this in all steps together.
        steps_seen: In how many steps the line does this.
        title: What the line does, in a sentence; "" if there is no such sentence.
        fix: What to do instead; "" if no fix is known.
        rule: The rule of the finding that gives the cost; "" if the line has no such finding.
    """

    where: Where
    most: Amount
    count: Amount
    steps_seen: Amount
    title: str = ""
    fix: str = ""
    rule: str = ""


class StepCount(msgspec.Struct, frozen=True, kw_only=True):
    """How often something happens in a step.

    Attributes:
        most: The largest number of times that it happens within one step.
        step: The number of the step that has `most`, from 1 on; 0 if it never happens.
        count: How often it happens in all steps together. The mean is `count` divided by the number of steps.
        lines: The counts of single lines. The line with the highest `most` comes first.
    """

    most: Amount
    step: Amount
    count: Amount
    lines: tuple[LineCount, ...] = ()


class LineBytes(msgspec.Struct, frozen=True, kw_only=True):
    """The largest number of bytes of device memory that one line allocates within one step."""

    where: Where
    bytes: Amount


class Reserved(msgspec.Struct, frozen=True, kw_only=True):
    """The peak of the device memory that the caching allocator reserved.

    Attributes:
        bytes: The amount, on the device with the highest peak. If unstall recorded the run, this is the peak from the
            program's start to the end of the recording. Otherwise, this is the peak of the recorded part only.
        lines: How much single lines allocate, the largest amount first; empty if allocations were not recorded one by
            one.
    """

    bytes: Amount
    lines: tuple[LineBytes, ...] = ()


class LineMemory(HeldMemory, frozen=True, kw_only=True):
    """The device memory that one line's allocations occupied at the peak of allocated memory.

    Attributes:
        over_time: The bytes that the line's allocations occupied over time, at the times of `DeviceMemory.allocated`.
            Only the first few lines have it.
    """

    over_time: tuple[int, ...] = ()


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of one device over time, as its caching allocator reported it.

    Attributes:
        device: The device's index.
        start_ns: The time of the first change.
        end_ns: The end of the recording.
        peak_ns: The time of the peak, when the allocated memory first reached its maximum.
        allocated_bytes: The allocated bytes at the peak.
        reserved_bytes: The largest number of bytes that were reserved at any time; None if it was not recorded.
        allocated: Allocated bytes over time. The time from `start_ns` to `end_ns` is divided into equal intervals, and
            each value is the highest of its interval.
        reserved: Reserved bytes over time, likewise; empty if it was not recorded.
        lines: The lines that had allocated the memory at the peak, the largest amount first. Memory is missing here if
            it was allocated before the recording, or if its line is not known.
    """

    device: Amount
    start_ns: int
    end_ns: int
    peak_ns: int
    allocated_bytes: Amount
    reserved_bytes: Amount | None
    allocated: tuple[Amount, ...]
    reserved: tuple[Amount, ...] = ()
    lines: tuple[LineMemory, ...] = ()

    @property
    def unknown_bytes(self) -> int:
        """The allocated bytes at the peak whose line is not known."""
        return self.allocated_bytes - sum(line.bytes for line in self.lines)


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a report shows, in the JSON schema `unstall.explain/1`.

    Attributes:
        schema: Name and version of the JSON form.
        version: The version of unstall.
        source: The run.
        integrity: Problems of the input.
        steps: How the run was cut into steps.
        replay: The replayed run; None if the run cannot be replayed.
        accounts: Busy and idle time over all devices. Time counts as busy if any device is busy.
        by_device: The accounts of each device.
        verdict: What bounds the run.
        findings: All findings: wrong results first, then by gain.
        lines: Cost by line, the costliest first.
        waits: How often the host waits for a device, per step. Each operator that waits counts as one wait. Each
            waiting call outside operators also counts as one wait. None if the work of the steps is not known, and in
            results that older versions saved.
        launches: How often the host puts a kernel, a graph, a copy or a memset on a device, per step. None if `waits`
            is None.
        copies: How many copies between host and device a step makes. None if `waits` is None.
        reserved: The peak of reserved device memory; None if it was not recorded.
        memory: The memory of each device over time; empty if allocations were not recorded one by one.
        plan: Edits in the order to make them; None if the run cannot be replayed.
        floor_ns: The device's busy time per step after all edits of the plan; None if the run cannot be replayed.
    """

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
    waits: StepCount | None = None
    launches: StepCount | None = None
    copies: StepCount | None = None
    reserved: Reserved | None = None
    memory: tuple[DeviceMemory, ...] = ()
    plan: tuple[PlanStep, ...] | None = None
    floor_ns: int | None = None

    @property
    def costly(self) -> list[Finding]:
        """The findings that cost enough to act on, in the order of `findings`."""
        return [finding for finding in self.findings if not finding.harmless and not finding.wrong]

    @property
    def faulted(self) -> bool:
        """Whether a device failed, or its memory was full. If so, all findings are about faults."""
        return any(finding.fault is not None for finding in self.findings)


class EditStep(PlanStep, frozen=True, kw_only=True):
    """One edit that the user asked about, with its effect.

    Attributes:
        about: What the edit does, in a sentence.
    """

    about: str = ""


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of edits on a run, in the JSON schema `unstall.whatif/1`. Times are ns per step.

    Attributes:
        schema: Name and version of the JSON form.
        version: The version of unstall.
        source: The run.
        integrity: Problems of the input.
        steps: How the run was cut into steps.
        measured_step_ns: Step time as recorded, with the recorder's overhead.
        replayed_step_ns: Step time of the replay of the recorded steps, also with the recorder's overhead.
        error_ns: The replay's error, in ns of a step without the overhead. A gain smaller than `error_ns` may be 0.
        plain_step_ns: Step time measured without recording.
        undistorted_step_ns: Step time in a long run without the recorder's overhead.
        undistorted_by: How the overhead was determined.
        usual_error: Usual error of the estimated overhead, as a fraction, if `undistorted_by` is "usual cost".
        predicted_step_ns: Step time in a long run without the recorder's overhead, with all edits made.
        floor_ns: The device's busy time per step, with all edits made.
        edits: The edits in the order in which they are made. Each edit has the step time after this edit.
        inferred: Facts that the file lacks and that the replay assumes, one phrase each.
        before: Accounts without the recorder's overhead and without any edit.
        after: Accounts without the recorder's overhead, with all edits made.
        bound_by: (what limits the run before the edits, what limits the run after the edits).
    """

    schema: str = WHATIF_SCHEMA
    version: str
    source: Source
    integrity: Integrity
    steps: Steps
    measured_step_ns: int
    replayed_step_ns: int
    error_ns: int = 0
    plain_step_ns: int | None = None
    undistorted_step_ns: int
    undistorted_by: Literal["plain step time", "host-only steps", "usual cost", "nothing"]
    usual_error: float | None = None
    predicted_step_ns: int
    floor_ns: int
    edits: tuple[EditStep, ...]
    inferred: tuple[str, ...] = ()
    before: Accounts
    after: Accounts
    bound_by: tuple[str, str]
