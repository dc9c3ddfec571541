"""Makes the host events and the waits of a timeline from what was simulated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unstall.read.autograd import link_by_sequence
from unstall.read.nest import find_parents
from unstall.timeline.ancestry import first_reaching, nearest
from unstall.timeline.columns import I8, I32, I64, Host, HostKind, WaitKind, Waits
from unstall.timeline.grouping import groups
from unstall.virtual.log import LogCode
from unstall.virtual.simulation.history import Done, Happened
from unstall.virtual.simulation.recipes import RuntimeCall

CALLS: dict[RuntimeCall, tuple[HostKind, str]] = {
    RuntimeCall.LAUNCH: (HostKind.LAUNCH, "cudaLaunchKernel"),
    RuntimeCall.COPY: (HostKind.COPY, "cudaMemcpyAsync"),
    RuntimeCall.MEMSET: (HostKind.MEMSET, "cudaMemsetAsync"),
    RuntimeCall.SYNC_STREAM: (HostKind.SYNC, "cudaStreamSynchronize"),
    RuntimeCall.SYNC_DEVICE: (HostKind.SYNC, "cudaDeviceSynchronize"),
    RuntimeCall.SYNC_EVENT: (HostKind.SYNC, "cudaEventSynchronize"),
    RuntimeCall.EVENT_RECORD: (HostKind.EVENT_RECORD, "cudaEventRecordWithFlags"),
    RuntimeCall.EVENT_WAIT: (HostKind.EVENT_WAIT, "cudaStreamWaitEvent"),
    RuntimeCall.EVENT_QUERY: (HostKind.CALL, "cudaEventQuery"),
    RuntimeCall.MALLOC: (HostKind.ALLOC, "cudaMalloc"),
    RuntimeCall.FREE: (HostKind.FREE, "cudaFree"),
    RuntimeCall.HOST_ALLOC: (HostKind.ALLOC, "cudaHostAlloc"),
    RuntimeCall.GRAPH_LAUNCH: (HostKind.GRAPH_LAUNCH, "cudaGraphLaunch"),
    RuntimeCall.CAPTURE: (HostKind.CALL, "cudaLaunchKernel"),
    RuntimeCall.LAST_ERROR: (HostKind.CALL, "cudaGetLastError"),
    RuntimeCall.INIT: (HostKind.LOAD, "cuInit"),
    RuntimeCall.CONTEXT: (HostKind.LOAD, "cuDevicePrimaryCtxRetain"),
    RuntimeCall.LOAD: (HostKind.LOAD, "cuLibraryLoadData"),
}
"""For each call of CUDA that is simulated, the kind and the name of its host event."""
_WAITS = {
    RuntimeCall.SYNC_STREAM: WaitKind.STREAM,
    RuntimeCall.SYNC_DEVICE: WaitKind.DEVICE,
    RuntimeCall.SYNC_EVENT: WaitKind.EVENT,
    RuntimeCall.EVENT_WAIT: WaitKind.STREAM_EVENT,
}
_SPANS = ((LogCode.OP_BEGIN, LogCode.OP_END, HostKind.OP), (LogCode.MARK_BEGIN, LogCode.MARK_END, HostKind.ANNOTATION))


@dataclass(frozen=True, eq=False, slots=True)
class HostRows:
    """The host events of a timeline, and where to find them.

    Attributes:
        host: The table of host events.
        waits: The table of the waits among them.
        row_of: For each simulated instruction, the row of its event in `host`, or -1 if it has
            none. An instruction that continues a call has the row of the call.
        by_record: For each record of the log, the row of its event in `host`; if it has none, that
            of the innermost event around it; -1 if there is none.
    """

    host: Host
    waits: Waits
    row_of: I32
    by_record: I32


def host_rows(
    happened: Happened, done: Done, stack: I32, name_of: I32, call_names: dict[RuntimeCall, int], sleep: int
) -> HostRows:
    """Makes the host events of a timeline.

    Args:
        happened: The records of the log (what the program asked of its GPU).
        done: The simulated instructions.
        stack: For each record, its row in the table `Stacks`, or -1.
        name_of: For each name in the log, by number, its index in the timeline's strings.
        call_names: For each simulated call of CUDA, the index of its name in the timeline's
            strings.
        sleep: The index, in the timeline's strings, of the name that events of sleep have.
    """
    begins, ends, kinds = _spans(happened)
    last = np.searchsorted(done.record, np.arange(len(happened.code)), side="right") - 1
    thread_end = _ends_of_threads(done)
    span_thread = happened.thread[begins]
    span_end = np.where(ends >= 0, done.end[last[np.maximum(ends, 0)]], thread_end[span_thread])
    calls = np.flatnonzero(done.what > RuntimeCall.REST)
    call_end = _with_the_rest(done, calls)
    what = done.what[calls]
    known = {int(call): (kind, call_names[call]) for call, (kind, _) in CALLS.items()}
    call_kind = np.array([known.get(number, (HostKind.CALL, -1))[0] for number in range(len(RuntimeCall))], np.int8)[
        what
    ]
    call_name = np.array([known.get(number, (HostKind.CALL, -1))[1] for number in range(len(RuntimeCall))], np.int32)[
        what
    ]
    never = np.isin(what, (RuntimeCall.SYNC_EVENT, RuntimeCall.EVENT_WAIT)) & (done.target[calls] < 0)
    call_kind[never] = HostKind.CALL

    slept = np.flatnonzero((happened.code == LogCode.ADVANCE) & (happened.a > 0))
    awake = done.end[last[slept]]

    kind = np.concatenate((kinds, call_kind, np.full(len(slept), HostKind.PYTHON, np.int8)))
    thread = np.concatenate((span_thread, done.thread[calls], happened.thread[slept])).astype(np.int32)
    start = np.concatenate((done.end[last[begins]], done.start[calls], awake - happened.a[slept]))
    end = np.maximum(np.concatenate((span_end, call_end, awake)), start)
    record = np.concatenate((begins, done.record[calls], slept))
    name = np.concatenate((name_of[happened.id[begins]], call_name, np.full(len(slept), sleep))).astype(np.int32)
    instruction = np.concatenate((np.full(len(begins), -1), calls, np.full(len(slept), -1)))
    order = np.lexsort((record, -end, start, thread))
    kind, thread, start, end, record = kind[order], thread[order], start[order], end[order], record[order]
    row_of = np.full(len(done.record) + 1, -1, np.int32)
    row_of[instruction[order]] = np.arange(len(order))
    rest = np.flatnonzero(done.what == RuntimeCall.REST)
    row_of[rest] = row_of[_continued(done)[rest]]
    row_of[-1] = -1
    parent = find_parents(kind, thread, start, end)
    is_op = kind == HostKind.OP
    correlation = np.where(kind < HostKind.ANNOTATION, np.arange(len(kind)), -1)
    correlation[is_op] = -1
    host = Host(
        kind=kind,
        thread=thread,
        start=start,
        end=end,
        name=name[order],
        correlation=correlation,
        parent=parent,
        op=nearest(parent, is_op),
        forward=_forward(happened, record, is_op, thread, start, parent),
        stack=stack[record],
        shapes=np.full(len(kind), -1, np.int32),
    )
    chosen = calls[np.isin(what, tuple(_WAITS)) & ~never]
    closed = np.concatenate((np.where(ends >= 0, ends, len(happened.code)), done.record[calls], slept))[order]
    return HostRows(host, _waits(done, chosen, row_of), row_of[:-1], _by_record(happened, host, record, closed))


def shapes_of(happened: Happened, rows: HostRows, called: I32, shapes: I32) -> I32:
    """Returns the column `shapes` of the host events: the input shapes of each operator that launched something.

    Args:
        happened: The records of the log.
        rows: The host events.
        called: For each signature of an operator in the log, the index of the operator's name in the timeline's
            strings.
        shapes: For each signature, the index of its input shapes.
    """
    result = np.full(len(rows.host), -1, np.int32)
    launches = np.flatnonzero((happened.code == LogCode.LAUNCH) & (rows.by_record >= 0))
    op, signature = rows.host.op[rows.by_record[launches]], happened.id[launches]
    own = (op >= 0) & (rows.host.name[op] == called[signature])
    result[op[own]] = shapes[signature[own]]
    return result


def _by_record(happened: Happened, host: Host, record: I64, closed: I64) -> I32:
    """Returns, for each record of the log, the row of the innermost host event around it on its
    thread; -1 if there is none.

    The event in row i of `host` lasts from the record `record[i]` to the record `closed[i]`.
    """
    width = len(happened.code) + 1
    keys = np.maximum.accumulate(host.thread * np.int64(width) + record)
    wanted = np.arange(len(happened.code), dtype=np.int64)
    at = np.searchsorted(keys, happened.thread * np.int64(width) + wanted, side="right") - 1
    row = np.maximum(at, 0) if len(keys) else at
    known = (at >= 0) & (host.thread[row] == happened.thread) if len(keys) else at >= 0
    return first_reaching(host.parent, closed, np.where(known, row, -1).astype(np.int32), wanted)


def _spans(happened: Happened) -> tuple[I64, I64, I8]:
    """Returns `(begins, ends, kinds)`, with one element for each operator and each annotation in
    the log: the number of the record that begins it, that of the record that ends it (-1 if none
    does), and the kind of its host event.
    """
    parts: list[tuple[I64, I64, I8]] = []
    for opens, closes, kind in _SPANS:
        rows = np.flatnonzero((happened.code == opens) | (happened.code == closes))
        is_open = happened.code[rows] == opens
        thread = happened.thread[rows].astype(np.int64)
        depth = np.zeros(len(rows), np.int64)
        for _, mine in groups(thread):
            level = np.cumsum(np.where(is_open[mine], 1, -1))
            depth[mine] = np.where(is_open[mine], level, level + 1)
        # On one nesting level of a thread, begins and ends alternate.
        order = np.lexsort((np.arange(len(rows)), depth, thread))
        opening = np.flatnonzero(is_open[order])
        after = np.minimum(opening + 1, max(len(order) - 1, 0))
        matched = (
            (opening + 1 < len(order))
            & ~is_open[order[after]]
            & (depth[order[after]] == depth[order[opening]])
            & (thread[order[after]] == thread[order[opening]])
        )
        ends = np.where(matched, rows[order[after]], -1)
        parts.append((rows[order[opening]], ends, np.full(len(opening), kind, np.int8)))
    begins, ends, kinds = (np.concatenate(column) for column in zip(*parts, strict=True))
    return begins, ends, kinds


def _ends_of_threads(done: Done) -> I64:
    ends = np.zeros(int(done.thread.max(initial=0)) + 1, np.int64)
    np.maximum.at(ends, done.thread, done.end)
    return ends


def _with_the_rest(done: Done, calls: I64) -> I64:
    """Returns the end of each of the `calls` in ns, with the REST instructions that follow a call and belong to it."""
    rest = done.what == RuntimeCall.REST
    stops = np.append(np.flatnonzero(~rest), len(rest))
    last = stops[np.searchsorted(stops, calls, side="right")] - 1
    ends: I64 = done.end[last]
    return ends


def _continued(done: Done) -> I64:
    """Returns, for each instruction, the last call of its thread up to then, as the number of an
    instruction; -1 if the thread has made no call.
    """
    order = np.argsort(done.thread, kind="stable")
    call = np.where(done.what[order] > RuntimeCall.REST, order, -1)
    latest = np.maximum.accumulate(np.where(call >= 0, np.arange(len(order)), -1)) if len(order) else order
    thread = done.thread[order]
    known = (latest >= 0) & (thread[np.maximum(latest, 0)] == thread)
    continued = np.full(len(order), -1, np.int64)
    continued[order] = np.where(known, call[np.maximum(latest, 0)], -1)
    return continued


def _forward(happened: Happened, record: I64, is_op: np.ndarray, thread: I32, start: I64, parent: I32) -> I32:
    """Returns, for each host event, the row of the forward operator whose gradient it computes; -1
    if there is none.

    If several forward operators have the same sequence number, it is the one that started last: the
    number goes up when a node of autograd is made, so the last one made the node.
    """
    sequence = np.where(is_op, happened.a[record], -1)
    backward = is_op & (sequence >= 0) & (happened.b[record] >= 0)
    makers = np.flatnonzero(is_op & (sequence >= 0) & ~backward)
    wanted = np.flatnonzero(backward)
    forward = np.full(len(record), -1, np.int32)
    link_by_sequence(forward, sequence, makers, wanted, start)
    node = nearest(parent, forward >= 0)
    return np.where(node >= 0, forward[np.maximum(node, 0)], -1).astype(np.int32)


def _waits(done: Done, calls: I64, row_of: I32) -> Waits:
    rows = row_of[calls]
    order = np.argsort(rows, kind="stable")
    calls, rows = calls[order], rows[order]
    kind = np.array([_WAITS.get(call, WaitKind.DEVICE) for call in RuntimeCall], np.int8)[done.what[calls]]
    target = done.target[calls]
    of_event = (kind == WaitKind.EVENT) | (kind == WaitKind.STREAM_EVENT)
    record = np.where(of_event, row_of[np.maximum(target, 0)], -1)
    on_stream = np.where(of_event, done.stream[np.maximum(target, 0)], -1)
    waiting = (kind == WaitKind.STREAM) | (kind == WaitKind.STREAM_EVENT)
    return Waits(
        host=rows,
        kind=kind,
        stream=np.where(waiting, done.stream[calls], -1).astype(np.int32),
        record=record.astype(np.int32),
        on_stream=on_stream.astype(np.int32),
        inferred=np.zeros(len(calls), np.bool_),
    )
