"""Finds what the host did and when: waiting, loading data, allocating, first use, collectives, Python."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from unstall.locate.kinds import is_asleep, is_data_loading, is_prefetch_wait, is_recorder_at_work, named
from unstall.locate.operations import has_operators, operations
from unstall.locate.startup import is_loading, startup_rows
from unstall.locate.threads import dispatch_threads, feeding_threads, launching_threads
from unstall.locate.torch_code import torch_code
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
    Table,
    Timeline,
)
from unstall.timeline.copies import is_staged, is_synchronous
from unstall.timeline.grouping import groups, is_in, is_one_of, unique
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
_COMM_OP = (
    r"(?:nccl|rccl|gloo|ucc|mpi|xccl|hccl):(?!:)|(?:c10d|_?c10d_functional|torch_ccl|symm_mem)::|record_param_comms"
    r"|(?:_C_custom_ar|sgl_kernel|aiter)::\w*all_?reduce|vllm::(?:all_reduce|all_gather|reduce_scatter)"
)
# The frame that the caller of backward() is in while autograd's threads run the operators.
_BACKWARD = "<built-in method run_backward of "
_BLOCKED_LEAST_NS = 20_000  # a copy call that only queues its copy takes less, even when recorded


class HostWaits(Table, frozen=True, eq=False):
    """Intervals in which the host was blocked until a device had finished some work, or until the
    driver had staged the data of a copy.

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

    @property
    def for_copy(self) -> Bool:
        """A mask of the intervals: True if the host waited for a copy to the device."""
        chosen: Bool = self.upload >= 0
        return chosen


class HostActivity:
    """What the host did on the threads that launch work on the device. Each part is computed when it is first asked
    for, because a fleet needs few of them.

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
        startup_rows: First uses, such as loading a module, on any thread that launches.
        startup: The time of first uses.
        comm_rows: Events that communicate with other ranks.
        comm: The time of this communication.
        asleep_rows: Sleeps.
        asleep: The part of `python` in which none of these threads is at work.
        python: The time in which the host dispatches nothing, because it runs Python that is not
            torch's own, or sleeps.
        torchs_own: Long stretches in which the host ran torch's own Python code, and no operator.
        python_least_ns: The host counts as at work in Python if it dispatches nothing for at least
            this time.
        recorder: The time of the recorder's own work, on any thread.
        operators: Whether operators, annotations or frames of these threads were recorded.
        threads: The threads that launch work on the device, but not those that hardly launch any.
        launching: All threads that launch work on the device.
        second_step: When the second step begins, in ns; None if the run has only one step. Some
            calls count as first uses only before this time.
        skew_ns: How far apart the clocks of host and device may be, in ns.
    """

    def __init__(self, timeline: Timeline, launches: I32, second_step: int | None, skew_ns: int) -> None:
        """Takes the activity of the threads that make `launches`, which are rows of `timeline.host`; -1 if one is not
        known.
        """
        self.threads, self.second_step, self.skew_ns = dispatch_threads(timeline, launches), second_step, skew_ns
        self.launching = launching_threads(timeline, launches)
        self._timeline = timeline
        self._ours = is_in(timeline.host.thread, self.threads)

    def of_launches(self, launches: I32) -> HostActivity:
        """Returns the activity of the threads that make other launches of the same run."""
        return HostActivity(self._timeline, launches, self.second_step, self.skew_ns)

    @cached_property
    def waits(self) -> HostWaits:
        """The waits for the device, sorted by start."""
        return _waits(self._timeline, self._ours, self.skew_ns)

    @cached_property
    def waits_with_operation(self) -> tuple[I64, I64]:
        """When each wait begins and ends with the operator or the copy that it belongs to, such as `.item()`, in ns."""
        host, waits = self._timeline.host, self.waits
        frames = is_one_of(host.kind, (HostKind.PYTHON, HostKind.ANNOTATION))
        operation = operations(self._timeline, outermost(host.parent, host.kind == HostKind.OP, frames))[waits.row]
        start, end = (each[np.where(operation >= 0, operation, waits.row)] for each in (host.start, host.end))
        return start, np.maximum(waits.end, end)

    @cached_property
    def _loading(self) -> I64:
        return _outer_rows(self._timeline, self._ours & is_data_loading(self._timeline))

    @cached_property
    def input_rows(self) -> I64:
        """The calls that load data."""
        loading = self._loading
        # The program's own lines wait for what these threads fetch.
        if len(loading) and is_prefetch_wait(self._timeline)[loading].any():
            return loading[~np.isin(self._timeline.host.thread[loading], self.feeding)]
        return loading

    @cached_property
    def input(self) -> Intervals:
        return self._spans(self.input_rows)

    @cached_property
    def feeding(self) -> I64:
        """The threads that ask a DataLoader for batches and launch no kernel, so they prefetch."""
        return feeding_threads(self._timeline, self._loading)

    @cached_property
    def allocator_rows(self) -> I64:
        kind = self._timeline.host.kind
        return np.flatnonzero(self._ours & ((kind == HostKind.ALLOC) | (kind == HostKind.FREE)))

    @cached_property
    def allocator(self) -> Intervals:
        return self._spans(self.allocator_rows)

    @cached_property
    def _starting(self) -> I64:
        return startup_rows(self._timeline, is_in(self._timeline.host.thread, self.launching), self.second_step)

    @cached_property
    def startup_rows(self) -> I64:
        # The recorder's own events are on no thread. The launch that they delayed is to blame instead.
        rows: I64 = self._starting[self._timeline.host.kind[self._starting] != HostKind.OVERHEAD]
        return rows

    @cached_property
    def startup(self) -> Intervals:
        return self._spans(self._starting)

    @cached_property
    def driver_loading(self) -> Intervals:
        """The part of `startup` in which the driver creates a context or loads a module."""
        return self._spans(self.startup_rows[is_loading(self._timeline)[self.startup_rows]])

    @cached_property
    def comm_rows(self) -> I64:
        host = self._timeline.host
        op_or_span = (host.kind == HostKind.ANNOTATION) | (host.kind == HostKind.OP)
        return _outer_rows(self._timeline, named(self._timeline, _COMM_OP, host.name, self._ours & op_or_span))

    @cached_property
    def comm(self) -> Intervals:
        return self._spans(self.comm_rows)

    @cached_property
    def asleep_rows(self) -> I64:
        return np.flatnonzero(self._ours & is_asleep(self._timeline))

    @cached_property
    def asleep(self) -> Intervals:
        """The part of `python` in which no other of these threads is at work."""
        return self._all_asleep & self.python

    @cached_property
    def _all_asleep(self) -> Intervals:
        return self._spans(self.asleep_rows) - self._at_work

    @cached_property
    def _on_host(self) -> Bool:
        return _host_operators(self._timeline)

    @cached_property
    def _at_work(self) -> Intervals:
        host = self._timeline.host
        working = np.flatnonzero(self._ours & (host.kind <= HostKind.CALL) & ~self._on_host)
        return _at_work(host, working, self.asleep_rows)

    @cached_property
    def python_least_ns(self) -> int:
        """The host is at work in Python if it dispatches nothing for this long."""
        return PYTHON_LEAST_NS if has_operators(self._timeline) else PYTHON_LEAST_OF_CALLS_NS

    @cached_property
    def torchs_own(self) -> Intervals:
        """The long stretches without an operator in which the host ran torch's own Python code.

        They count as dispatching: no other code of the program shortens them, but a CUDA graph removes them.
        """
        return self._without_operators(Intervals.none()) - self._without_operators(self._of_torch)

    @cached_property
    def _of_torch(self) -> Intervals:
        """When torch's own Python code ran, and neither an operator on the host nor sleep kept it waiting."""
        on_host = self._spans(np.flatnonzero(self._ours & self._on_host))
        return torch_code(self._timeline).of_threads(self.threads) - on_host - self._all_asleep

    def _without_operators(self, but: Intervals) -> Intervals:
        """Returns the long stretches in which none of these threads is at work, without those in `but`."""
        host, ours = self._timeline.host, self._ours
        start = int(host.start[ours].min(initial=0))
        end = int(self._timeline.device.end.max(initial=int(host.end[ours].max(initial=start))))
        return (self._at_work | but).gaps(start, end).longer_than(self.python_least_ns)

    @cached_property
    def python(self) -> Intervals:
        """When the host was at work in Python that is not torch's own, or slept."""
        timeline, ours = self._timeline, self._ours
        host = timeline.host
        in_backward = named(timeline, _BACKWARD, host.name, ours & (host.kind == HostKind.PYTHON))
        python = self._without_operators(self._of_torch)
        if not self.operators and timeline.meta.recorder is None:
            # Only CUDA calls were recorded, perhaps not all: whether an operator ran is unknown.
            python = Intervals.none()
        # Preparing a backward pass and handing it over counts as dispatching, unless one of its operators works on the
        # host or sleeps.
        on_host = self._spans(np.flatnonzero(ours & self._on_host))
        return python - (self.input | (self._spans(np.flatnonzero(in_backward)) - on_host - self._all_asleep))

    @cached_property
    def recorder(self) -> Intervals:
        """The recorder's own work, on any thread."""
        return self._spans(np.flatnonzero(is_recorder_at_work(self._timeline)))

    @cached_property
    def operators(self) -> bool:
        """Whether operators, annotations or frames of these threads were recorded."""
        kinds = (HostKind.OP, HostKind.ANNOTATION, HostKind.PYTHON)
        return bool(is_one_of(self._timeline.host.kind[self._ours], kinds).any())

    def _spans(self, rows: I64) -> Intervals:
        host = self._timeline.host
        return Intervals.union(host.start[rows], host.end[rows])


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
    crosses = is_one_of(device.direction, (CopyDirection.HOST_TO_DEVICE, CopyDirection.DEVICE_TO_HOST))
    copies = np.flatnonzero((device.kind == DeviceKind.COPY) & crosses & (device.launch >= 0))
    calls = device.launch[copies]
    chosen = ours[calls] & (host.kind[calls] != HostKind.GRAPH_LAUNCH)  # a copy in a graph blocks no thread
    copies, calls = copies[chosen], calls[chosen]
    rows = unique(np.concatenate((syncs, calls[_blocks(timeline, copies, skew_ns)]))).astype(np.int32)
    rows = rows[np.argsort(host.start[rows], kind="stable")]
    uploads = calls[device.direction[copies] == CopyDirection.HOST_TO_DEVICE]
    copy = _copy_of(timeline, unique(calls), rows)
    upload = np.where(is_in(copy, uploads), copy, -1).astype(np.int32)
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
    unknown, the length of the call decides. A call that returned before half of the copy was done blocked only while
    it staged the data: the driver finishes small uploads later.
    """
    host, device = timeline.host, timeline.device
    call = device.launch[copies]
    memory = device.host_memory[copies]
    long = host.end[call] - host.start[call] >= _BLOCKED_LEAST_NS
    may_block = (memory == HostMemory.PAGEABLE) | ((memory == HostMemory.UNKNOWN) & long)
    middle = (device.start[copies] + device.end[copies]) // 2
    blocked: Bool = (host.end[call] >= middle - skew_ns) & (may_block | is_synchronous(timeline, call))
    blocked |= is_staged(timeline, copies)
    return blocked
