"""Finds what the host did and when: waiting, loading data, allocating, first use, collectives, Python."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from unstall.locate.kinds import is_asleep, is_data_loading, is_prefetch_wait, is_recorder_at_work, named
from unstall.locate.operations import has_operators, operations
from unstall.locate.startup import startup_rows
from unstall.locate.threads import feeding_threads
from unstall.timeline.ancestry import nearest, outermost
from unstall.timeline.columns import (
    I32,
    I64,
    Bool,
    CopyDirection,
    DeviceKind,
    Host,
    HostKind,
    HostMemory,
    Timeline,
)
from unstall.timeline.copies import is_synchronous
from unstall.timeline.grouping import groups
from unstall.timeline.intervals import Intervals

PYTHON_LEAST_NS = 100_000
"""If the host calls no operator for at least this time, the host counts as busy in Python code."""

PYTHON_LEAST_OF_CALLS_NS = 200_000
"""If no operators were recorded, this limit replaces PYTHON_LEAST_NS: if the host calls no CUDA
function for at least this time, the host counts as busy in Python code.

The limit is only an estimate: some operators call no CUDA function, and some make their first CUDA
call late. The limit was chosen with the 42 recordings of examples/traces. Each was analysed with
its operators and without them. Without operators, 1.2 % of a step's time had another cause on
average. With 100 µs as the limit it was 2.2 %, with 400 µs 1.6 %.
"""

# torch's operators and annotations ("nccl:all_reduce" has the name of its backend), and those of vLLM and SGLang.
_COMM_OP = re.compile(
    r"(?:nccl|rccl|gloo|ucc|mpi|xccl|hccl):(?!:)|(?:c10d|_?c10d_functional|torch_ccl|symm_mem)::|record_param_comms"
    r"|(?:_C_custom_ar|sgl_kernel|aiter)::\w*all_?reduce|vllm::(?:all_reduce|all_gather|reduce_scatter)"
)
# The frame that the caller of backward() is in while autograd's threads run the operators.
_BACKWARD = re.compile(r"<built-in method run_backward of ")
_BLOCKED_LEAST_NS = 20_000  # a copy call that only queues its copy takes less, even when recorded


@dataclass(frozen=True, eq=False, slots=True)
class HostWaits:
    """Intervals in which the host was blocked until a device had finished some work.

    The attributes are columns with one element per interval. The intervals are sorted by start.

    Attributes:
        row: The call that blocked, as the index of a row of `timeline.host`: a synchronisation or a
            copy.
        start: When the interval begins, in ns.
        end: When the interval ends, in ns.
        upload: The call that made the copy to the device for which the host waited, as the index of
            a row of `timeline.host`; -1 if the host waited for something else. It is `row` itself
            if that call is a copy from pageable memory.
    """

    row: I32
    start: I64
    end: I64
    upload: I32

    def __len__(self) -> int:
        return len(self.row)

    @property
    def for_copy(self) -> Bool:
        """A mask of the intervals: True if the host waited for a copy to the device."""
        chosen: Bool = self.upload >= 0
        return chosen


@dataclass(frozen=True, eq=False, slots=True)
class HostActivity:
    """What the host did on the threads that launch work on the device.

    Attributes named `…_rows` are indices of rows of `timeline.host`. An attribute of type
    `Intervals` has the time in which at least one of these threads had the activity.

    Attributes:
        waits: Waits for a device.
        input_rows: Events that load data.
        input: The time of data loading.
        feeding: The threads that ask a DataLoader for batches and launch no kernel, so they
            prefetch.
        allocator_rows: Calls of the driver that allocate or free memory.
        allocator: The time of these calls.
        startup_rows: First uses, such as loading a module.
        startup: The time of first uses.
        comm_rows: Events that communicate with other ranks.
        comm: The time of this communication.
        asleep_rows: Sleeps.
        asleep: The part of `python` in which none of these threads is at work.
        python: The time in which the host dispatches nothing, because it runs Python or sleeps.
        python_least_ns: The host counts as at work in Python if it dispatches nothing for at least
            this time.
        recorder: The time of the recorder's own work, on any thread.
        operators: Whether operators, annotations or frames of these threads were recorded.
        skew_ns: How far apart the clocks of host and device may be.
    """

    waits: HostWaits
    input_rows: I64
    input: Intervals
    feeding: I64
    allocator_rows: I64
    allocator: Intervals
    startup_rows: I64
    startup: Intervals
    comm_rows: I64
    comm: Intervals
    asleep_rows: I64
    asleep: Intervals
    python: Intervals
    python_least_ns: int
    recorder: Intervals
    operators: bool
    skew_ns: int


def find_activity(timeline: Timeline, threads: I64, second_step: int | None, skew_ns: int) -> HostActivity:
    """Returns what the host did on some of its threads, by kind of activity.

    Args:
        timeline: The recorded run.
        threads: The threads that launch work on the device.
        second_step: When the second step begins, in ns; None if the run has only one step. Some
            calls count as first uses only before this time.
        skew_ns: How far apart the clocks of host and device may be, in ns.
    """
    host = timeline.host
    ours = np.isin(host.thread, threads)
    waits = _waits(timeline, ours, skew_ns)

    loading = _outer_rows(timeline, ours & is_data_loading(timeline))
    feeding = feeding_threads(timeline, loading)
    if is_prefetch_wait(timeline)[loading].any():  # the program's own lines wait for what these threads fetch
        loading = loading[~np.isin(host.thread[loading], feeding)]
    allocating = np.flatnonzero(ours & ((host.kind == HostKind.ALLOC) | (host.kind == HostKind.FREE)))
    recording = is_recorder_at_work(timeline)
    recorder = Intervals.union(host.start[recording], host.end[recording])
    starting = startup_rows(timeline, ours, second_step)
    op_or_span = (host.kind == HostKind.ANNOTATION) | (host.kind == HostKind.OP)
    communicating = _outer_rows(timeline, ours & op_or_span & named(timeline, _COMM_OP, host.name))

    def spans(rows: I64) -> Intervals:
        return Intervals.union(host.start[rows], host.end[rows])

    input_spans = spans(loading)
    host_side = (HostKind.OP, HostKind.ANNOTATION, HostKind.PYTHON)
    operators = bool(np.isin(host.kind[ours], host_side).any())
    on_host = _host_operators(timeline)
    sleeping = np.flatnonzero(ours & is_asleep(timeline))
    at_work = _at_work(host, np.flatnonzero(ours & (host.kind <= HostKind.CALL) & ~on_host), sleeping)
    asleep = spans(sleeping) - at_work
    in_backward = ours & (host.kind == HostKind.PYTHON) & named(timeline, _BACKWARD, host.name)
    start = int(host.start[ours].min(initial=0))
    end = int(timeline.device.end.max(initial=int(host.end[ours].max(initial=start))))
    python_least_ns = PYTHON_LEAST_NS if has_operators(timeline) else PYTHON_LEAST_OF_CALLS_NS
    python = at_work.gaps(start, end).longer_than(python_least_ns)
    if not operators and timeline.meta.recorder is None:
        # Only CUDA calls were recorded, perhaps not all: whether an operator ran is unknown.
        python = Intervals.none()
    # Preparing a backward pass and handing it over counts as dispatching, unless one of its operators works on the host
    # or sleeps.
    python -= input_spans | (spans(np.flatnonzero(in_backward)) - spans(np.flatnonzero(ours & on_host)) - asleep)
    return HostActivity(
        waits=waits,
        input_rows=loading,
        input=input_spans,
        feeding=feeding,
        allocator_rows=allocating,
        allocator=spans(allocating),
        # The recorder's own events are on no thread. The launch that they delayed is to blame instead.
        startup_rows=starting[host.kind[starting] != HostKind.OVERHEAD],
        startup=spans(starting),
        comm_rows=communicating,
        comm=spans(communicating),
        asleep_rows=sleeping,
        asleep=asleep & python,
        python=python,
        python_least_ns=python_least_ns,
        recorder=recorder,
        operators=operators,
        skew_ns=skew_ns,
    )


def _at_work(host: Host, rows: I64, sleeping: I64) -> Intervals:
    """Returns the intervals in which at least one event of `rows` runs on a thread that is not asleep.

    `rows` and `sleeping` are row indices of host events. The events of `sleeping` are sleeps.
    """
    asleep = dict(groups(host.thread[sleeping]))
    whole = Intervals.none()
    for thread, mine in groups(host.thread[rows]):
        own = Intervals.union(host.start[rows[mine]], host.end[rows[mine]])
        if thread in asleep:
            within = sleeping[asleep[thread]]
            own -= Intervals.union(host.start[within], host.end[within])
        whole |= own
    return whole


def _host_operators(timeline: Timeline) -> Bool:
    """Returns a mask of the host events in operators that work on the host only.

    An operator counts as working on the host only if it lasts at least `PYTHON_LEAST_NS` and does not call the device's
    API.
    """
    host = timeline.host
    calls = (host.kind >= HostKind.LAUNCH) & (host.kind <= HostKind.CALL)
    everything = np.ones(len(host), dtype=np.bool_)
    top = outermost(host.parent, host.kind == HostKind.OP, ~everything)
    dispatches = np.zeros(len(host) + 1, dtype=np.bool_)
    dispatches[top[calls]] = True
    alone = (top >= 0) & ~dispatches[top]
    length = np.where(top >= 0, (host.end - host.start)[np.maximum(top, 0)], 0)
    return alone & (length >= PYTHON_LEAST_NS)


def _outer_rows(timeline: Timeline, chosen: Bool) -> I64:
    """Returns the chosen rows that are not inside another chosen row."""
    parent = timeline.host.parent
    above = np.where(parent >= 0, nearest(parent, chosen)[np.maximum(parent, 0)], -1)
    return np.flatnonzero(chosen & (above < 0))


def _waits(timeline: Timeline, ours: Bool, skew_ns: int) -> HostWaits:
    host, device = timeline.host, timeline.device
    syncs = np.flatnonzero(ours & (host.kind == HostKind.SYNC))
    crosses = np.isin(device.direction, (CopyDirection.HOST_TO_DEVICE, CopyDirection.DEVICE_TO_HOST))
    copies = np.flatnonzero((device.kind == DeviceKind.COPY) & crosses & (device.launch >= 0))
    calls = device.launch[copies]
    chosen = ours[calls] & (host.kind[calls] != HostKind.GRAPH_LAUNCH)  # a copy in a graph blocks no thread
    copies, calls = copies[chosen], calls[chosen]
    rows = np.union1d(syncs, calls[_blocks(timeline, copies, skew_ns)]).astype(np.int32)
    rows = rows[np.argsort(host.start[rows], kind="stable")]
    uploads = calls[device.direction[copies] == CopyDirection.HOST_TO_DEVICE]
    copy = _copy_of(timeline, np.unique(calls), rows)
    upload = np.where(np.isin(copy, uploads), copy, -1).astype(np.int32)
    return HostWaits(rows, host.start[rows], host.end[rows], upload)


def _copy_of(timeline: Timeline, calls: I32, waits: I32) -> I32:
    """Returns, for each wait, the row of the copy call that the host waited for, or -1 if there is no such call.

    If the wait is itself a copy call that blocked, the result is this call. If the wait is a synchronisation, the
    result is the last copy call before this synchronisation in the same operator. Rows are row indices of host events.
    """
    host, operation = timeline.host, operations(timeline, timeline.host.op)
    if not len(calls):
        return np.full(len(waits), -1, dtype=np.int32)

    def by_operation(rows: I32) -> I64:
        return operation[rows].astype(np.int64) * len(host) + rows

    calls = calls[np.argsort(by_operation(calls), kind="stable")]
    at = np.searchsorted(by_operation(calls), by_operation(waits), side="right") - 1
    last = calls[np.maximum(at, 0)]
    in_its_operation = (at >= 0) & (operation[waits] >= 0) & (operation[last] == operation[waits])
    is_sync = host.kind[waits] == HostKind.SYNC
    return np.where((last == waits) | (is_sync & in_its_operation), last, -1).astype(np.int32)


def _blocks(timeline: Timeline, copies: I64, skew_ns: int) -> Bool:
    """Returns a mask of the copies, between host and device, whose copy call blocked the host.

    A synchronous API blocks by contract. An `Async` API blocks only for pageable memory. If the kind of memory is
    unknown, the length of the call decides. A call that returned before half of the copy was done did not block: the
    driver stages small uploads and finishes them later.
    """
    host, device = timeline.host, timeline.device
    call = device.launch[copies]
    memory = device.host_memory[copies]
    long = host.end[call] - host.start[call] >= _BLOCKED_LEAST_NS
    may_block = (memory == HostMemory.PAGEABLE) | ((memory == HostMemory.UNKNOWN) & long)
    middle = (device.start[copies] + device.end[copies]) // 2
    blocked: Bool = (host.end[call] >= middle - skew_ns) & (may_block | is_synchronous(timeline, call))
    return blocked
