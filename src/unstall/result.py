"""The result of `unstall explain`: plain data, and its versioned JSON form (`unstall.explain/1`).

All times are int nanoseconds. The figures in an account (`Accounts`) are sums over all recorded
steps. The times of a finding or a source line are means per step. `gain_ns`, `replay`, `floor_ns`
and `plan` come from a replay of the run. They are null in JSON if the run cannot be replayed.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

Recorder = Literal["cupti", "torch", "virtual"]
Confidence = Literal["high", "medium", "low"]
FaultKind = Literal["index", "class", "probability", "weight", "assertion", "memory", "other"]
Amount: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
"""A count or a number of bytes. A saved result in which one is negative is rejected when it is read."""
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
"""The causes of idle time. Columns that hold a cause have its index here."""
UNTRUSTED = 0.2
"""The largest error of a replay that is trusted, as a fraction of the recorded step time.

If the error is larger, no gain is promised, because it would be the gain of a different program.
"""
CAVEAT = "In the replay of the unchanged run"
"""The first words of a verdict on a run whose replay has too large an error. The sentence that they
begin says so. The sentence after it says what limits the run.
"""
BUSY_PARTS = ("compute", "both", "copy", "comm")
"""The kinds of work of a device, in the order in which reports show them. They are the attributes of `Busy`."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a result is about. The run was recorded, or simulated on a virtual GPU.

    Attributes that are unknown are None.

    Attributes:
        path: The path of the trace. For a run that was not read from a file, a name for it.
        reader: The kind of source that was read: "kineto" for a Chrome trace, "virtual" for a run
            on a virtual GPU.
        recorder: The recorder of unstall that wrote the trace; None if another tool wrote it.
        known_error: How far simulated times differ from measured times on known programs, in words;
            None for a recorded run.
        device: Model name of the device.
        torch: Version of torch.
        cuda: Version of the CUDA runtime.
        rank: Rank of the process in a distributed run.
        world_size: Number of processes in a distributed run.
        has_stacks: Whether Python stacks were recorded.
        host_events: Number of events of the host: operators, calls of CUDA, Python frames,
            annotations.
        device_ops: Number of ops.
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
        """Whether the run was simulated on a virtual GPU. If it was, no recorder slowed it down."""
        return self.recorder == "virtual"


class Integrity(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with the trace that was read.

    Attributes:
        ok: False if something is missing or damaged that may change a figure.
        notes: What was repaired, dropped or assumed, one sentence each.
        shortfall: Why the result is not about the part of the run that the user asked for, but
            about another part, or about only some of its steps; and how much of the program's own
            work a simulated run does not charge. None if it is about all that was asked for. The
            verdict begins with this text.
    """

    ok: bool
    notes: tuple[str, ...] = ()
    shortfall: str | None = None


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that the figures leave out. The figures are about steps in a row that are typical of
    the run.

    Before `unstall.graphed` uses a CUDA graph, it runs the function with the graph and without it,
    and compares the results. A step with such a check takes longer than others.

    Attributes:
        warmup: Number of steps at the beginning, which let the program warm up.
        proving: Number of steps that contain checks of `unstall.graphed`.
        apart: Number of steps that contain no checks, but lie outside the longest stretch of steps
            without checks.
        loops: Number of steps of other loops than the longest. A loop is one over the items of
            `unstall.stream_map`, `unstall.prefetch` or a DataLoader, or one of training steps.
        mixed: Number of steps that begin with other work than the rest, such as an evaluation between
            two training loops.
        empty: Number of steps in which nothing is launched.
        later: Number of steps after those that were asked for.
        outside_percent: Share of the device's work in a simulated run that is in no step, counted or not,
            in percent. It is in evaluations, say, or in another loop. 0 if it is not known.
        of: Number of all steps, including those that the figures are about.
        mean_ns: Mean time of the steps that are left out.
    """

    warmup: int = 0
    proving: int = 0
    apart: int = 0
    loops: int = 0
    mixed: int = 0
    empty: int = 0
    later: int = 0
    outside_percent: int = 0
    of: int
    mean_ns: int

    @property
    def count(self) -> int:
        """Number of steps that are left out."""
        return self.warmup + self.proving + self.apart + self.loops + self.mixed + self.empty + self.later

    @property
    def most(self) -> bool:
        """Whether more than half of all steps are left out because of checks of `unstall.graphed`.
        Then the remaining steps may not be typical of the run.
        """
        return 2 * (self.proving + self.apart) > self.of


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a run, and how they were found.

    Attributes:
        found_by: What showed where steps begin. "annotation": an annotation around each step.
            "optimizer": the steps of an optimizer. "period": launches that repeat. "whole":
            nothing; the whole run then counts as one step.
        name: The name of the annotation, optimizer or launch that begins each step; None if no
            steps were found.
        marks: What unstall's recorder took as step boundaries. "optimizer": the steps of an
            optimizer. "loader": the batches of a DataLoader. "forward": the calls of a model.
            "explicit": calls of `unstall.step()`. None if another tool recorded the run.
        count: Number of steps.
        start_ns: When the first step begins, counted from time 0 of the run.
        wall_ns: Time from the start of the first step to the end of the last one.
        mean_ns: `wall_ns` divided by `count`.
        left_out: Further steps, which the figures leave out; None if there are none.
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
        """The words that stand after a figure: "per step", or "in all" if no steps were found."""
        return "in all" if self.found_by == "whole" else "per step"

    @property
    def plain_name(self) -> str:
        """The name as people write it: "AdamW.step" where `name` is "Optimizer.step#AdamW.step"; ""
        if there is none.
        """
        name = self.name or ""
        return name.removeprefix("Optimizer.step#") if self.found_by == "optimizer" else name


class PlanStep(msgspec.Struct, frozen=True, kw_only=True):
    """One edit of a plan. A plan lists its edits in the order in which to make them.

    Attributes:
        edit: The edit, in the form that `unstall whatif --edit` takes.
        step_ns: Step time with this edit and all earlier edits of the plan.
        gain_ns: How much shorter this edit makes the step.
        notes: Which parts of the edit could not be made, and why, one sentence each.
    """

    edit: str
    step_ns: int
    gain_ns: int
    notes: tuple[str, ...] = ()


class Busy(msgspec.Struct, frozen=True, kw_only=True):
    """Time in ns during which a device works, by kind of work.

    Attributes:
        compute: Kernels or memsets run, and no copy. Collectives do not count as kernels here.
        copy: Copies run, and no kernel or memset.
        both: Copies run at the same time as kernels or memsets.
        comm: Only collectives run.
    """

    compute: int = 0
    copy: int = 0
    both: int = 0
    comm: int = 0


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """Time in ns during which a device is idle, by cause. The attributes are the causes in `IDLE_CAUSES`."""

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
    """An account: how the time of the recorded steps divides into busy time and idle time.

    Attributes:
        wall_ns: Length of all recorded steps together. It is exactly the sum of all attributes of
            `busy_ns` and `idle_ns`.
        busy_ns: Time during which a device works, by kind of work.
        idle_ns: Time during which no device works, by cause.
        comm_ns: Time during which a collective runs, alone or beside other work.
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
    """The account of a single device.

    Attributes:
        device: Index of the device.
        name: Model name of the device; None if it is unknown.
    """

    device: int
    name: str | None = None


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """The replay of a run: how well it reproduces the recorded step time, and how the run would be
    without the recorder's overhead.

    Attributes:
        mean_step_ns: Step time of the replayed run, with the overhead.
        error: `mean_step_ns` less the recorded step time, as a fraction of the recorded step time.
        error_ns: The absolute value of `error`, times `undistorted_mean_step_ns`. A gain smaller
            than this may be no gain at all.
        undistorted_mean_step_ns: Step time in a long run without the recorder's overhead.
        undistorted_by: How the overhead was found out. "plain step time": from steps that were
            timed without recording. "host-only steps": from steps in which only the host was timed
            (in results of older versions). "usual cost": from what recording usually costs.
            "nothing": it was not taken out.
        usual_error: Usual error of the overhead, as a fraction, if `undistorted_by` is "usual
            cost"; else None.
        plain_step_ns: The plain step time; None if it is unknown.
        left_out_ns: Total length of the pauses that the replay leaves out. A pause is host time
            that only one of the steps had.
        device_stretch: Factor by which the times of kernels were multiplied to match the plain step
            time.
        host_free_step_ns: Step time if the host took no time at all.
        accounts: The account of the recorded steps without the recorder's overhead.
        inferred: What the trace does not tell and the replay assumes, one phrase each.
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
    """What the step time is bound by.

    Attributes:
        bound_by: What limits the step: "device" (kernels), one of `IDLE_CAUSES` except "unknown",
            "mixed" or "none". It is what would shorten a step most if it took no time. If several
            things would do so equally, it is "mixed"; but the host and the kernels are passed over
            if anything else would do as much. It is also "mixed" if nothing by itself limits the
            step. Without a replay, it is what takes the largest share of the time. "none" if no
            work ran on a device, or if the device failed.
        or_bound_by: What `bound_by` would be if the recorder's overhead is not as estimated. If the
            host limits the step, the overhead is then taken as larger, by the error of the
            estimate; otherwise, as zero. None if that changes nothing, or if the overhead was not
            estimated.
        basis: Whether the verdict is on the run as recorded, or on the run without the recorder's
            overhead ("undistorted").
        text: The verdict in sentences, with figures.
        if_free: Maps each resource to how many ns shorter a replayed step is if this resource takes
            no time. The resources are "host", "kernels", "copies", "communication", "waits",
            "input", "allocator", "startup" and "sleep". A value below `Replay.error_ns` may be 0 in
            truth. None if the replay has too large an error, or if there is none.
    """

    bound_by: str
    or_bound_by: str | None = None
    basis: Literal["recorded", "undistorted"]
    text: str
    if_free: dict[str, int] | None = None


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """A call in the user's code: the file, the line, and the function in which the line stands."""

    file: str
    line: int
    function: str


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """A place in the user's source.

    Attributes:
        file: The path of the file; None if no stacks were recorded.
        line: The line number, from 1; None if it is unknown.
        line_is: "exact" if `line` is the line that ran, "def" if it is the first line of the
            function. None if `line` is None.
        function: The function. If `file` is None, the name of an annotation instead.
        op: The outermost operator that the line called; None if the place is not about a single
            operator.
        called_from: The nearest call in the user's code that led to this place; None if there is
            none.
    """

    file: str | None = None
    line: int | None = None
    line_is: Literal["exact", "def"] | None = None
    function: str | None = None
    op: str | None = None
    called_from: Caller | None = None

    @property
    def key(self) -> tuple[str | None, int | None, str | None, str | None]:
        """The place without its caller, as `(file, line, function, op)`. Two places with equal keys
        are the same place.
        """
        return self.file, self.line, self.function, self.op


class FaultInput(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor that was an input of the failed operator. If the input was a list called `indices`,
    its tensors are named "indices[0]", "indices[1]" and so on.
    """

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
    """The device memory that the allocations of one source line occupied.

    Attributes:
        where: The source line.
        bytes: Total size of the allocations.
        count: Number of allocations.
    """

    where: Where
    bytes: int
    count: int


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of a device: what failed, and where Python was told. The source line whose work
    failed is `Finding.where`.

    Attributes that are unknown are None.

    Attributes:
        kind: What failed. "memory" if the device's memory was full; otherwise the kind of check in
            a kernel that failed.
        operator: The operator that the program called, or the autograd node.
        kernel: The operator whose kernel failed; `operator` may have called it.
        check: The text of the check that failed, as it stands in the kernel's source.
        inputs: The input tensors of the operator.
        wrong: The first wrong value in an input.
        backward: Whether the operator failed in a backward pass. If it did, `Finding.where` is the
            line of the forward pass. But if the program itself defines that backward pass,
            `Finding.where` is a line of that definition.
        device: The device's index.
        stream: The number of the stream, as the recorder counts streams.
        iteration: Number of the step, from 1 on, counted over the whole program.
        call: How many times the program had called the operator with this call stack, including the
            failed call.
        replayed_at: Where the CUDA graph was launched; None if the failed work was not part of a
            CUDA graph.
        noticed_at: Where the error was raised in Python; None if it was not raised in Python.
        noticed_after_ns: Time from the call of the operator to the error in Python.
        ended: Whether the error ended the program.
        held: The allocations that occupied the memory when it was full, by source line, the largest
            first.
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
    """One finding: a thing at one place that costs time, is a bug, or is good to know.

    Several threads may read it at the same time.

    Attributes:
        rule: Name of the rule that made the finding.
        title: What happens, in a sentence.
        where: The place in the source.
        count: How often it happens in all recorded steps together.
        steps_seen: In how many steps it happens; None in results that older versions saved.
        wait_ns: How long the host is blocked, per step.
        exposed_ns: How long the device is idle because of it, per step. For copies and collectives:
            how long they run while nothing computes. For kernels that could be faster: how long
            they run while nothing else runs.
        gain_ns: How much shorter a step gets if only `edit` is made. None if the edit was not
            replayed, or if the gain is smaller than the replay's error.
        gain_below_ns: The replay's error per step, if the gain is smaller than this error; else
            None.
        edit: The edit that models the fix, in the form that `unstall whatif --edit` takes; None if
            no edit models it.
        saw: The evidence.
        fix: What to do.
        safe_if: The condition under which `fix` keeps the program correct.
        confidence: How sure it is that the finding is right.
        harmless: Whether it costs nothing, or is paid only once. Such findings are kept because
            people look for them.
        once: Whether it is paid only once, such as the first use of CUDA or of a kernel: later steps
            do not pay it. Then it is `harmless`, too.
        wrong: Whether it is a bug: the program may compute a wrong result, or the device failed.
            Bugs come first among findings.
        explains: Whether it is good to know: it explains what surprises people, such as a launch
            that looks slow, or a time that leaves the device's work out. It costs nothing.
        spans: `(start, end)` in ns of the occurrences that cost most, at most 100, in order of
            time.
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
    once: bool = False
    wrong: bool = False
    explains: bool = False
    spans: tuple[tuple[int, int], ...] = ()
    fault: Fault | None = None


class LineCost(msgspec.Struct, frozen=True, kw_only=True):
    """What one source line costs.

    Attributes:
        where: The source line.
        launches: Number of calls at the line that put work on a device, in all recorded steps
            together.
        device_ops: Number of ops that these calls launched, in all recorded steps together.
        device_ns: Device time of these ops, per step.
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
    """How often one source line waits for the device, launches work, or copies. One object counts
    one of these.

    Attributes:
        where: The source line.
        most: The largest number within a single step.
        count: The number in all steps together.
        steps_seen: In how many steps it happens at least once.
        title: What the line does, in a sentence; "" if there is no such sentence.
        fix: What to do instead; "" if no fix is known.
        rule: The rule of the finding that tells what it costs; "" if the line has no such finding.
    """

    where: Where
    most: Amount
    count: Amount
    steps_seen: Amount
    title: str = ""
    fix: str = ""
    rule: str = ""


class StepCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many waits, launches or copies a step has. One object counts one of these.

    Attributes:
        most: The largest number within a single step.
        step: The number of the step that has so many, from 1 on; 0 if no step has any.
        count: The number in all steps together. The mean is `count` divided by the number of steps.
        lines: The numbers of each source line, the line with the highest `most` first.
    """

    most: Amount
    step: Amount
    count: Amount
    lines: tuple[LineCount, ...] = ()


class LineBytes(msgspec.Struct, frozen=True, kw_only=True):
    """The device memory that one source line allocates within one step, in the step in which it
    allocates most.

    Attributes:
        where: The source line.
        bytes: The sum of its allocations in that step.
    """

    where: Where
    bytes: Amount


class Reserved(msgspec.Struct, frozen=True, kw_only=True):
    """The peak of the device memory that torch's caching allocator reserved.

    Attributes:
        bytes: The peak, on the device with the highest one. If unstall recorded the run, it is the
            peak from the program's start to the end of the recording; otherwise, that of the
            recorded part.
        lines: How much each source line allocates, the largest amount first; empty if single
            allocations were not recorded.
    """

    bytes: Amount
    lines: tuple[LineBytes, ...] = ()


class LineMemory(HeldMemory, frozen=True, kw_only=True):
    """The device memory that the allocations of one source line occupied when the allocated memory
    was at its peak.

    Attributes:
        over_time: The bytes that the line's allocations occupied over time, for the same intervals
            as `DeviceMemory.allocated`. Empty for all but the first few lines.
    """

    over_time: tuple[int, ...] = ()


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of one device over time, as its caching allocator reported it.

    Attributes:
        device: The device's index.
        start_ns: The time of the first allocation or free.
        end_ns: The end of the recording.
        peak_ns: The time at which the allocated memory first reached its peak.
        allocated_bytes: The allocated bytes at the peak.
        reserved_bytes: The largest number of bytes that were reserved at any time; None if it was
            not recorded.
        allocated: Allocated bytes over time. The time from `start_ns` to `end_ns` is divided into
            equal intervals, and each value is the highest of its interval.
        reserved: Reserved bytes over the same intervals; empty if they were not recorded.
        lines: The source lines that had allocated the memory at the peak, the largest amount first.
            Memory that was allocated before the recording, or by an unknown line, is left out.
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
        """The bytes that were allocated at the peak and are not in `lines`."""
        return self.allocated_bytes - sum(line.bytes for line in self.lines)


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """All that a report says, as plain data, in the JSON schema `unstall.explain/1`.

    Attributes:
        schema: Name and version of the JSON form.
        version: The version of unstall.
        source: The run.
        integrity: What is wrong with the trace that was read.
        steps: The steps of the run, and how they were found.
        replay: The replay of the run; None if it cannot be replayed.
        accounts: The account of all devices together. Time counts as busy if any device is busy.
        by_device: The account of each device.
        verdict: What the step time is bound by.
        findings: All findings: bugs first, then those that cost time, by gain, then those that cost
            nothing.
        lines: The cost of each source line, the costliest first.
        waits: How often the host waits for a device in a step. An operator that waits counts as one
            wait, and so does a call outside of operators. None if the work of the steps is not
            known, and in results that older versions saved.
        launches: How often the host puts a kernel, a CUDA graph, a copy or a memset on a device in
            a step. None if `waits` is None.
        copies: How many copies between host and device a step makes. None if `waits` is None.
        reserved: The peak of reserved device memory; None if it was not recorded.
        memory: The memory of each device over time; empty if single allocations were not recorded.
        plan: The edits to make, in this order; None if the run cannot be replayed.
        floor_ns: The device's busy time per step with all edits of the plan; None if the run cannot
            be replayed.
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
        """The findings that cost enough to act on and are no bugs, in the order of `findings`."""
        return [finding for finding in self.findings if not finding.harmless and not finding.wrong]

    @property
    def faulted(self) -> bool:
        """Whether a device failed, or its memory was full. If so, all findings are about that."""
        return any(finding.fault is not None for finding in self.findings)


class EditStep(PlanStep, frozen=True, kw_only=True):
    """One edit that the user asked about, and its effect.

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
        integrity: What is wrong with the trace that was read.
        steps: The steps of the run, and how they were found.
        measured_step_ns: Step time as recorded, with the recorder's overhead.
        replayed_step_ns: Step time of the replay of the recorded steps, also with the overhead.
        error_ns: The replay's error, for a step without the overhead. A gain smaller than this may
            be no gain at all.
        plain_step_ns: The plain step time; None if it is unknown.
        undistorted_step_ns: Step time in a long run without the recorder's overhead.
        undistorted_by: How the overhead was found out, as in `Replay.undistorted_by`.
        usual_error: Usual error of the overhead, as a fraction, if `undistorted_by` is "usual
            cost"; else None.
        predicted_step_ns: Step time in a long run without the recorder's overhead, with all edits
            made.
        floor_ns: The device's busy time per step, with all edits made.
        edits: The edits in the order in which they are made, each with the step time after it.
        inferred: What the trace does not tell and the replay assumes, one phrase each.
        before: The account of the steps without the overhead, before any edit.
        after: The account of the steps without the overhead, with all edits made.
        bound_by: `(before, after)`: what limits a step before the edits, and with all edits made.
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
