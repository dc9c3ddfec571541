"""Each stretch of launches becomes a CUDA graph: one call launches it, and its kernels follow at short gaps."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from unstall.locate.capture_aware import leaves_waits_out
from unstall.locate.engine import accumulates
from unstall.locate.grad_scaler import of_grad_scaler
from unstall.locate.kinds import is_no_code
from unstall.locate.torch_code import torch_code
from unstall.replay.program import Code
from unstall.timeline.columns import I64, Bool, CopyDirection, DeviceKind, HostKind
from unstall.timeline.grouping import groups
from unstall.what_if.copy_waits import launching
from unstall.what_if.edits.remove_syncs import without_waits
from unstall.what_if.place import EditPlace, parse_function
from unstall.what_if.subject import SYNCS, Subject

# What a call of `unstall.graphed` takes a host. An H100's took, without a profiler, 145, 192, 197 and 425 µs for the
# graphs of four models with 252, 342, 406 and 540 nodes. A bare replay takes 3 to 8 µs (benchmarks/graph_nodes.py).
_CALL_NS, _CALL_NS_A_NODE = 10_000, 400
_BACKWARD_NS_A_NODE = 2_500
"""The host time, in ns for each node of the CUDA graph, of a call of `unstall.graphed` whose
backward pass autograd runs afterwards.

Such a call makes a node of autograd, which passes a gradient to each parameter. That took 0.55 to
0.65 ms for two models with 193 and 287 nodes.
"""
# Measured on an H200 with CUDA 13 without a profiler (benchmarks/device_delays.py), and as the difference between the
# plain times of graphs and the total length of their ops when launched one by one (benchmarks/whatif_programs.py).
_GAP_NS = 220  # between two kernels of a graph; on a stream it is 700 to 900 ns
_BEFORE_MEMSET_NS, _AFTER_MEMSET_NS = 1_100, 4_100
_FEWEST = 2
_UNNAMED = "Python's time between operators stays, as no function was named: graph:FILE:FUNCTION removes that too"
_LONG_NS = 1_000_000  # Python between two operators takes less, even when recorded


def prepare(text: str | None) -> EditPlace | None:
    return parse_function(text) if text is not None else None


def apply(subject: Subject, place: EditPlace | None) -> Subject:
    """Returns the run in which each stretch of launches that can be captured becomes a CUDA graph.
    A stretch is a series of successive launches within a step, as long as possible.

    A stretch ends where nothing can be captured: at a wait, an upload, a copy that blocks, a
    download to pageable memory, an event, or a launch of another thread. It also ends at work that
    a graph would not remove: data loading, requests to the driver, or long work outside of
    operators. First uses, such as the loading of modules, stay: the warm-up before a capture needs
    them, too.

    If all launches of an operator are in one graph, the host's work in that operator is removed,
    too. If `place` is a function, so is the host's work in the function and in all that it calls.
    The caller of the function stays as it is. An operator that is not part of the function but runs
    within it stays, too. If `place` is None, launches of the whole step are captured.

    Gradients that the backward pass of the function adds to `.grad` end no stretch: autograd adds
    them once the graph of the backward pass has computed all of them. Here they are added within
    the graph, but the host launches each of them.

    Code that asks whether a capture is running does not wait then, so its waits are removed.
    """
    subject = _as_captured(subject, place)
    program = subject.program
    do, ops = program.instructions, program.ops
    breaks, beside = _breaks(subject), _beside(subject, place)
    stretch = _stretches(subject, place, breaks, beside)
    first = np.flatnonzero((stretch >= 0) & np.append(True, stretch[1:] != stretch[:-1]))
    if not len(first):
        return subject.with_program(program, "no stretch of launches could be captured")
    last = np.flatnonzero((stretch >= 0) & np.append(stretch[1:] != stretch[:-1], True))
    # Without ops that a previous edit removed.
    nodes = np.append(0, np.cumsum((ops.duration > 0) & ~beside[program.launcher]))
    counts = nodes[do.ops[last]] - nodes[np.where(first > 0, do.ops[np.maximum(first - 1, 0)], 0)]

    keep = np.zeros(len(do), dtype=np.bool_)
    keep[first] = True
    inside = (stretch >= 0) & ~keep
    code, call, work, ends = do.code.copy(), do.call.copy(), do.work.copy(), do.ops.copy()
    code[inside] = Code.CALL
    whole = _of_one_stretch(subject, stretch) & subject.host_rows(place)
    going = whole if place is not None else whole & (subject.timeline.host.kind == HostKind.OP)
    set_up = subject.share_of_work(subject.startup)
    goes = (subject.share_of_work(going | subject.startup) - set_up) * ~breaks
    work = (work * (1 - goes)).astype(np.int64)
    work[inside] = (do.work * _stays(subject, place))[inside]
    of_set_up = np.rint(do.call * subject.share_of_call(subject.startup)).astype(np.int64)
    call[inside & ~beside] = of_set_up[inside & ~beside]
    of_autograd = np.zeros(len(first), dtype=np.bool_)
    if place is not None:
        of_autograd = ~place.while_it_runs(subject.places)[do.host[first]]
    a_node = np.where(of_autograd, _BACKWARD_NS_A_NODE, _CALL_NS_A_NODE)
    call[first] = of_set_up[first] + _CALL_NS + a_node * counts
    which = np.searchsorted(first, np.flatnonzero(stretch >= 0), side="right") - 1
    ends[stretch >= 0] = do.ops[last][which]
    captured = (stretch >= 0)[program.launcher]
    latency, gap = ops.latency.copy(), ops.gap.copy()
    leads = np.zeros(len(ops), dtype=np.bool_)
    leads[np.where(first > 0, do.ops[np.maximum(first - 1, 0)], 0)] = True
    follows = captured & ~leads
    latency[follows] = 0
    memset = (subject.timeline.device.kind == DeviceKind.MEMSET)[ops.device]
    gap[follows] = np.minimum(gap, _GAP_NS)[follows]
    gap[follows & memset] = _BEFORE_MEMSET_NS
    gap[follows & np.append(False, memset[:-1])] = _AFTER_MEMSET_NS
    edited = replace(
        program,
        instructions=replace(do, code=code, call=call, work=work, ops=ends),
        ops=replace(ops, latency=latency, gap=gap),
    )
    unnamed = [_UNNAMED] if (whole & ~going).any() else []
    made = subject.with_program(edited, *_stops(subject, stretch, place), *unnamed)
    return replace(made, graphs=np.append(made.graphs, do.host[first[counts > 1]]))


def _as_captured(subject: Subject, place: EditPlace | None) -> Subject:
    """Returns the run without the waits that the code at `place` leaves out while it is captured."""
    rows = leaves_waits_out(subject.timeline)
    if not rows.any():
        return subject
    return subject.with_program(without_waits(subject, subject.instructions_of(rows & subject.host_rows(place)))[0])


def _stretches(subject: Subject, place: EditPlace | None, breaks: Bool, beside: Bool) -> I64:
    """Returns, for each instruction, the number of the stretch that contains it, or -1. A stretch
    is a range of instructions that one CUDA graph can contain.

    Args:
        subject: The run.
        place: The function whose launches are captured; None for all.
        breaks: A mask of the instructions before which a stretch ends.
        beside: A mask of the launches that end no stretch although they are not of the function.
    """
    program = subject.program
    do = program.instructions
    launches = _launching(subject)
    inside = np.zeros(len(do), dtype=np.bool_)
    inside[program.step_starts[0] : program.step_ends[-1] + 1] = True
    may = launches & inside & subject.at(place) & ~_uncapturable(subject)
    # A launch that an earlier edit removed puts nothing on the device: it ends no stretch.
    ends = (do.code != Code.CALL) & ~may & ~((do.code == Code.LAUNCH) & ~launches) & ~beside
    ends[program.step_starts] = ends[program.step_ends] = True
    number = np.cumsum(ends | breaks | np.append(False, np.diff(do.thread) != 0))
    between = (may | (do.code == Code.CALL) | (do.code == Code.LAUNCH)) & ~ends
    # A stretch goes from its first launch to its last.
    stretch = np.full(len(do), -1, dtype=np.int64)
    rows = np.flatnonzero(may)
    counts = np.bincount(number[rows], minlength=int(number.max(initial=0)) + 1)
    low, high = np.full(len(counts), len(do)), np.full(len(counts), -1)
    np.minimum.at(low, number[rows], rows)
    np.maximum.at(high, number[rows], rows)
    at = np.arange(len(do))
    chosen = between & (counts[number] >= _FEWEST) & (at >= low[number]) & (at <= high[number])
    stretch[chosen] = number[chosen]
    return stretch


def _of_one_stretch(subject: Subject, stretch: I64) -> Bool:
    """Returns a mask of `timeline.host`: the operators and Python frames whose launches are all in
    one stretch.

    Each of them launches something, does not wait, and does not contain the end of a step.
    `stretch` has, for each instruction, the number of its stretch, or -1.
    """
    host, program = subject.timeline.host, subject.program
    part = program.thread_of[host.thread]
    do = program.instructions
    outside = (do.code != Code.CALL) & (stretch < 0)
    # Work at the end of a call belongs to that call, even if a frame begins at the same time.
    called = np.where(do.host >= 0, host.start[np.maximum(do.host, 0)], subject.recorded_span[0])
    chosen = np.zeros(len(host), dtype=np.bool_)
    for number, mine in groups(do.thread):
        events = np.flatnonzero(part == number)
        times = np.maximum.accumulate(called[mine])
        begin, end = (np.searchsorted(times, each[events]) for each in (host.start, host.end))
        others = np.append(0, np.cumsum(outside[mine]))
        captured = np.flatnonzero(stretch[mine] >= 0)
        first, last = np.searchsorted(captured, begin), np.searchsorted(captured, end) - 1
        some = (others[end] == others[begin]) & (first <= last)
        first, last = (stretch[mine[captured[each[some]]]] for each in (first, last))
        chosen[events[some]] = first == last
    whole = np.append(subject.steps.end, np.iinfo(np.int64).max)[np.searchsorted(subject.steps.start, host.start)]
    return chosen & (host.end < whole) & np.isin(host.kind, (HostKind.OP, HostKind.PYTHON))


def _stays(subject: Subject, place: EditPlace | None) -> NDArray[np.float64]:
    """Returns, for each instruction, which share of the host's work before it stays although a
    graph contains the launches around it: first uses, and operators that are not at `place`.

    Only operators that launch nothing count, and those that add gradients to `.grad`. At another one
    that launches something, the stretch ends: its launch would not be in the CUDA graph.
    """
    host, top = subject.timeline.host, subject.places.top_op
    if place is None:
        return subject.share_of_work(subject.startup)
    inside = subject.host_rows(place)
    launching = np.isin(top, np.unique(top[(host.kind >= HostKind.LAUNCH) | inside]))
    beside = (host.kind == HostKind.OP) & ~inside & (top >= 0) & (~launching | accumulates(subject.places))
    return subject.share_of_work(beside | subject.startup)


def _beside(subject: Subject, place: EditPlace | None) -> Bool:
    """Returns a mask of the instructions that add gradients to `.grad`, and are not at `place`."""
    if place is None:
        return np.zeros(len(subject.program.instructions), dtype=np.bool_)
    return _launching(subject) & subject.instructions_of(accumulates(subject.places) & ~subject.host_rows(place))


def _breaks(subject: Subject) -> Bool:
    """Returns a mask of the instructions that come after host work that a CUDA graph would not
    remove. Operators, and torch's own Python code between them, would be removed however long they
    take.
    """
    timeline, do = subject.timeline, subject.program.instructions
    outside = do.work * (1 - subject.share_of_work(timeline.host.kind <= HostKind.CALL, torch_code(timeline)))
    chosen: Bool = (subject.share_of_work(is_no_code(timeline)) > 0) | (outside >= _LONG_NS)
    return chosen


def _launching(subject: Subject) -> Bool:
    """Returns a mask of the instructions that launch ops. A launch that an earlier edit has removed does not count."""
    program = subject.program
    do, ops = program.instructions, program.ops
    recorded = (subject.timeline.device.end > subject.timeline.device.start)[ops.device]
    ended = np.append(0, np.cumsum((ops.duration > 0) | ~recorded))[np.append(0, do.ops)]
    chosen: Bool = (do.code == Code.LAUNCH) & (np.diff(ended) > 0)
    return chosen


def _uncapturable(subject: Subject) -> Bool:
    """Returns a mask of the launching instructions that a CUDA graph cannot contain: uploads,
    launches of CUDA graphs, those of a GradScaler, and copies for which the host waits in the same call or operation.

    A captured upload would copy from the same host memory at each replay, not from that of the next
    batch.
    """
    do, operation = subject.program.instructions, subject.places.operation
    host = subject.timeline.host
    known = do.host >= 0
    around = np.full(len(do), -1, dtype=np.int64)
    around[known] = operation[do.host[known]]
    waits = _waits(subject)
    waited = (
        _copying(subject, CopyDirection.DEVICE_TO_HOST) & (around >= 0) & np.isin(around, around[waits & (around >= 0)])
    )
    blocking = np.append(waits[1:] & do.goes_on[1:], False)
    graphs = known.copy()
    graphs[known] = host.kind[do.host[known]] == HostKind.GRAPH_LAUNCH
    chosen: Bool = _uploads(subject) | waited | blocking | graphs | _scales(subject)
    return chosen


def _waits(subject: Subject) -> Bool:
    chosen: Bool = np.isin(subject.program.instructions.code, SYNCS)
    return chosen


def _scales(subject: Subject) -> Bool:
    return _launching(subject) & subject.instructions_of(of_grad_scaler(subject.timeline))


def _uploads(subject: Subject) -> Bool:
    return _copying(subject, CopyDirection.HOST_TO_DEVICE)


def _copying(subject: Subject, direction: CopyDirection) -> Bool:
    """Returns a mask of the instructions that launch copies in the given direction. Copies that an earlier edit has
    turned into kernels do not count.
    """
    program, device = subject.program, subject.timeline.device
    copies = device.direction == direction
    copies[subject.made] = False
    return launching(program, copies[program.ops.device])


def _stops(subject: Subject, stretch: I64, place: EditPlace | None) -> list[str]:
    """Returns a list with one note that says why one CUDA graph is not enough for a step, or for a call of the function
    at `place` if a step calls it several times. Returns an empty list if one is enough.

    The backward pass of a call that autograd runs afterwards is a graph of its own, which `unstall.graphed` makes with
    the other.
    """
    program = subject.program
    first = np.flatnonzero((stretch >= 0) & np.append(True, stretch[1:] != stretch[:-1]))
    last = np.flatnonzero((stretch >= 0) & np.append(stretch[1:] != stretch[:-1], True))
    steps = len(program.step_starts)
    unit, backward, a_unit = program.step_of(first), np.zeros(len(first), dtype=np.bool_), ""
    if subject.steps.unit != "the run":
        a_unit = " a step"
    if place is not None:
        number, runs = _calls(subject, place)
        calls = len(np.unique(number[first]))
        if calls >= steps:
            unit, backward, a_unit = number[first], ~runs[first], " a call" if calls > steps else a_unit
    cut = np.flatnonzero((np.diff(unit) == 0) & (np.diff(backward.astype(np.int8)) == 0))
    if not len(cut):
        return []
    waits, uploads, scales = (
        bool((np.diff(np.append(0, np.cumsum(each))[np.stack((last[cut] + 1, first[cut + 1]))], axis=0) > 0).any())
        for each in (_waits(subject), _uploads(subject) & _launching(subject), _scales(subject))
    )
    named = ("a wait", waits), ("an upload", uploads), ("work of a GradScaler", scales)
    between = [what for what, some in named if some]
    why = "a graph cannot contain the work in between"
    if between:
        each = (
            f"each {between[0].split()[-1]}"
            if between[1:] == [] and not scales
            else "it"
            if len(between) == 1
            else "each of them"
        )
        why = f"a graph cannot contain {' or '.join(between)}, so a new one begins after {each}"
    units, cuts = np.unique(unit), unit[cut]
    each_needs = 1 + np.searchsorted(np.sort(cuts), units, side="right") - np.searchsorted(np.sort(cuts), units)
    fewest, most = int(each_needs.min()), int(each_needs.max())
    graphs = f"{most}" if fewest == most else f"{fewest} to {most}"
    return [f"This needs {graphs} graphs{a_unit}, not one: {why}"]


def _calls(subject: Subject, place: EditPlace) -> tuple[I64, Bool]:
    """Returns `(number, runs)`: for each instruction, how many calls of the function at `place` began up to it, and
    whether the function runs.

    Two calls are told apart by other calls to CUDA between them.
    """
    do, places = subject.program.instructions, subject.places
    known = do.host >= 0
    runs, others = np.zeros(len(do), dtype=np.bool_), np.zeros(len(do), dtype=np.bool_)
    runs[known] = place.while_it_runs(places)[do.host[known]]
    others[known] = ~(place.events(places) | accumulates(places))[do.host[known]] & ~runs[known]
    mine = np.flatnonzero(runs)
    other = np.append(0, np.cumsum(others))[mine]
    begins = np.zeros(len(do), dtype=np.bool_)
    begins[mine] = np.append(True, np.diff(other) > 0)[: len(mine)]
    return np.cumsum(begins), runs
