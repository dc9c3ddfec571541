"""Has the class `Simulator`. This class reads the shim's log and answers the program's queries to the virtual GPU."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from unstall.errors import UnstallError
from unstall.frameworks import OURS, is_left_out_of_stacks
from unstall.guarding.kinds import Kind
from unstall.line_digests import LineDigests
from unstall.virtual.allocator.out_of_memory import OutOfMemoryError
from unstall.virtual.allocator.settings import checked_settings_text
from unstall.virtual.clock_log import ClockLog
from unstall.virtual.costs.answers import costs_of
from unstall.virtual.costs.model import Costs, HostCosts
from unstall.virtual.faults.fault_log import FaultLog, of_error
from unstall.virtual.faults.places import FailedAt, failures
from unstall.virtual.log import LogCode, LogSource, Stack, records_of, uses_of
from unstall.virtual.options import MachineOptions
from unstall.virtual.own_place import own_place
from unstall.virtual.races import RaceLog
from unstall.virtual.simulation import counts
from unstall.virtual.simulation.collectives import Group, Meeting, collective_of
from unstall.virtual.simulation.foresight import Foresight, is_plain, reads_value
from unstall.virtual.simulation.host_clock import HostClock, MeasuredHost, MixedHost, ModelledHost, Moment
from unstall.virtual.simulation.requests import growth
from unstall.virtual.simulation.simulate import Simulation
from unstall.virtual.simulation.this_host import host_scale, telling_ns

if TYPE_CHECKING:
    from unstall.timeline.columns import Timeline
    from unstall.virtual.allocator.segments import TraceEntry


class LateRead:
    """A read of a virtual clock. `at_ns` is None until the read is simulated."""

    __slots__ = ("__weakref__", "_latest_ns", "_offset_ns", "at_ns")

    def __init__(self, latest_ns: Callable[[], int], offset_ns: int) -> None:
        """`latest_ns` simulates the rest of the log and returns the calling thread's clock. `offset_ns` is added to the
        read's time."""
        self.at_ns: int | None = None
        self._latest_ns = latest_ns
        self._offset_ns = offset_ns

    def ns(self) -> int:
        """Returns the time in ns. Raises UnstallError if the simulation failed."""
        latest = self._latest_ns() if self.at_ns is None else 0
        if self.at_ns is None:  # in a forked process, where nothing more is simulated
            self.at_ns = latest
        return self.at_ns + self._offset_ns


class Simulator:
    """Answers the program's queries to the virtual GPU. Before each answer, simulates all records that are in the
    log.
    """

    def __init__(self, source: LogSource, options: MachineOptions, costs: Costs | None = None) -> None:
        """Uses `costs`. If `costs` is None, uses the costs of the GPU in `options`. Raises UsageError if this GPU is
        unknown.
        """
        self._source = source
        self.options = options
        self.costs = costs if costs is not None else costs_of(options.gpu)
        clock = _clock(options, self.costs.host)
        self.simulation = Simulation(
            self.costs,
            clock,
            devices=options.devices,
            settings=checked_settings_text(),
            warm=options.warm,
            clocks=options.clocks,
        )
        self.names: list[str] = []
        self.stacks: list[Stack] = []
        self.races = RaceLog()
        self.faults = FaultLog()
        self._signatures = 0
        self._plain: set[int] = set()  # signatures whose launches never wait
        self._workspace_bytes = 0  # the most that an operator's workspaces may take on a new stream
        self._foresight = Foresight(self.simulation)
        self._lock = threading.RLock()
        self._forked = False
        self._draining = False
        self._failure: BaseException | None = None
        self._asked = 0  # the request that make_room() waits for; `_refusal` is its error, if any
        self._refusal: OutOfMemoryError | None = None
        self._late_reads: WeakValueDictionary[int, LateRead] = WeakValueDictionary()  # by the number in their record
        self._late_number = 0
        self._folder = os.getcwd()  # noqa: PTH109 - a str is needed
        self._digests = LineDigests(self._folder, time.time())
        self.cuda_begins()
        for device in range(options.devices):
            self._set_headroom(device)

    def cuda_begins(self) -> None:
        """Called when the program initialises CUDA. Reads the environment variables that CUDA reads at this time."""
        self.simulation.actions.launches_block = os.environ.get("CUDA_LAUNCH_BLOCKING") == "1"

    def drain(self) -> None:
        """Simulates the rest of the log. Delays signal handlers, because an exception in a handler would cause a loss
        of records.

        The garbage collector may run a finalizer during this call. If the finalizer queries the simulator, the answer
        covers only what was simulated before this call of `drain`.
        """
        with self._lock:
            if self._forked or self._draining:
                return
            self._draining = True
            began = self._source.now_ns()
            try:
                self._source.hold_signals()
                data, used, gone_events = self._source.take()
                if data and self._failure is None:
                    self._simulate(records_of(data), uses_of(used))
                self.simulation.forget(np.frombuffer(gone_events, np.int64).tolist())
            finally:
                self._draining = False
                self._source.release_signals()
                self.simulation.clock.leave_out(self._source.this_thread(), self._source.now_ns() - began)

    def _simulate(self, records: np.ndarray, uses: np.ndarray) -> None:
        try:
            self._know()
            self.races.add(records, uses)
            self.faults.add(records, self._source.faults(self.faults.known))
            self.simulation.feed(records)
            for number, ns in self.simulation.take_reads():
                read = self._late_reads.pop(number, None)
                if read is not None:
                    read.at_ns = ns
            requests = self.simulation.requests
            self.races.placed(requests.take_placed())
            for refusal in requests.take_refusals():
                self.faults.refusal = refusal
                self._refuse(refusal.allocation, refusal.error)
            for device in requests.devices:
                self._set_headroom(device)
        except BaseException as error:
            self._failure = error
            raise

    def _know(self) -> None:
        """Adds the new signatures, stacks and names of the log."""
        signatures = self._source.signatures(self._signatures)
        self._signatures += len(signatures)
        stacks = self._source.stacks(len(self.stacks))
        self.stacks += [_without(is_left_out_of_stacks, stack) for stack in stacks]
        self.names += self._source.names(len(self.names))
        # The costs of Python calls were measured with our frames in place of torch's, so only ours are left out.
        self.simulation.know(signatures, [_outside_annotations(_without(_is_ours, stack)) for stack in stacks])

    def _refuse(self, request: int, error: OutOfMemoryError) -> None:
        """Reports to the program that a request failed. If `make_room` is simulating this request, `make_room` raises
        the error. Otherwise the program's next call that uses the device raises the error.
        """
        if request and request == self._asked:
            self._refusal = error
        else:
            self.simulation.requests.refused += 1
            self._source.raise_later(_torch_error()(str(error)))

    def _up_to_date(self) -> None:
        """Simulates the rest of the log. Raises UnstallError if the simulation failed."""
        self.drain()
        if self._failure is not None:
            raise UnstallError(
                f"the simulation of the virtual GPU broke off, and knows nothing of what came after: "
                f"{type(self._failure).__name__}: {self._failure}"
            ) from self._failure

    def ended_by(self, error: BaseException) -> None:
        """Stores whether the error that ends the program is a device error. The timeline's faults use this
        information.
        """
        self.faults.ended = of_error(error, _torch_error())

    def failures(self) -> list[FailedAt]:
        """Returns the assertions that failed in kernels so far, in order of time."""
        with self._lock:
            self._up_to_date()
            return (
                failures(self.faults, self.simulation.history.happened.whole(), self.stacks)
                if self.faults.known
                else []
            )

    def forked(self) -> None:
        """Called in a forked child process. After this call, nothing is logged, and the clock does not advance."""
        self._lock = threading.RLock()
        self._forked = True

    def now_ns(self) -> int:
        """Returns the calling thread's virtual clock in ns. Reading the clock also costs virtual time."""
        with self._lock:
            thread = self._spend(self.costs.host.clock_read)
            return self.simulation.now(thread)

    def read_late(self, offset_ns: int) -> LateRead:
        """Reads the calling thread's virtual clock, and simulates nothing for it. The read's time is known after the
        next simulation. Costs as much virtual time as `now_ns`. `offset_ns` is added to the time.
        """
        with self._lock:
            read = LateRead(self._latest_ns, offset_ns)
            if self._forked or self._draining:
                read.at_ns = self.now_ns()
                return read
            self._late_number += 1
            self._late_reads[self._late_number] = read
            self._source.append(int(LogCode.CLOCK), a=self._late_number)
            return read

    def _latest_ns(self) -> int:
        with self._lock:
            self._up_to_date()
            return self.simulation.now(self._source.this_thread())

    def foresee_request(self, device: int, stream: int, size_bytes: int) -> Kind | None:
        """Returns the driver call that a memory request of the calling thread would need. Returns None if the
        allocator's cache can serve the request.
        """
        with self._lock:
            self._up_to_date()
            return self._foresight.request(self._source.this_thread(), device, stream, size_bytes)

    def largest_cached(self, device: int, stream: int) -> tuple[int, int]:
        """Returns the bytes of a stream's largest cached blocks, in the form of `CachingAllocator.largest_cached`. The
        numbers are from the time of the last query.
        """
        with self._lock:
            return self.simulation.requests.allocator(device).largest_cached(stream)

    def foresee_launch(self, signature: int, device: int, stream: int) -> Kind | None:
        """Returns what the calling thread would wait for if it launched an operator with this signature. Returns None
        if it would not wait.
        """
        if signature in self._plain:
            return None
        with self._lock:
            self._up_to_date()
            self._know()
            cost = self.simulation.actions.operators[signature]
            if is_plain(cost):
                self._plain.add(signature)
                return None
            return self._foresight.launch(self._source.this_thread(), device, stream, cost)

    def foresee_empty_cache(self, device: int) -> Kind | None:
        """Returns "free" if emptying the cache would call the driver, otherwise None."""
        with self._lock:
            self._up_to_date()
            return "free" if self.simulation.requests.allocator(device).waits_to_empty() else None

    def waits_for_upload(self, size_bytes: int) -> bool:
        """Returns whether the host waits in a non-blocking host-to-device copy of this size from pageable memory. The
        host does not wait in a small copy, because the driver stages all bytes of the copy immediately.
        """
        return size_bytes > self.costs.limits.staged_at_once_bytes

    def here_ns(self) -> int:
        """Returns the calling thread's virtual clock in ns. Does not charge virtual time for reading the clock."""
        with self._lock:
            return self.simulation.now(self._spend(0))

    def join_group(self, at_ns: int, rank: int, ranks: int) -> int:
        """Lets the calling thread wait until `at_ns` of its virtual clock, when the last rank joins a process group.
        Returns how long the thread waits, in ns. The first group is the job's.
        """
        with self._lock:
            actions = self.simulation.actions
            actions.job = actions.job or (rank, ranks)
            thread = self._spend(0)
            waits = max(at_ns - self.simulation.now(thread), 0)
            self.simulation.spend(thread, waits)
            return waits

    def can_start_ns(self, device: int, stream: int) -> int:
        """Returns when the kernel of a collective can start on a stream, in ns, whatever the other ranks do. The last
        record of the calling thread is the COLLECTIVE_CALL.
        """
        with self._lock:
            self._up_to_date()
            return self.simulation.can_start(self._source.this_thread(), (device, stream))

    def collective(
        self,
        calls: Sequence[tuple[str, str, str, int, int, int]],
        group: tuple[str, str, int, tuple[int, ...]],
        sequence: int,
        meeting: tuple[int, int, int],
    ) -> int:
        """Adds a collective and returns its number, for the record COLLECTIVE. The arguments are the fields of `Call`,
        `Group` and `Meeting`.
        """
        with self._lock:
            found = collective_of(calls, Group(*group), sequence, Meeting(*meeting))
            return self.simulation.actions.collective(found)

    def call_facts(self, signature: int) -> tuple[int, bool]:
        """Returns (growth, reads) of an operator's call.

        `growth` is the largest number of bytes by which the call's temporary memory can increase the reserved memory
        (see `Requests.headroom`), or -1 if it is not known yet. Workspaces count as one byte: the headroom already
        leaves room for them. `reads` is whether the call's kernels include a copy to the host.
        """
        with self._lock:
            if self._forked or self._draining:
                return -1, False
            began = self._source.now_ns()
            self._know()
            cost = self.simulation.actions.operators[signature]
            self.simulation.clock.leave_out(self._source.this_thread(), self._source.now_ns() - began)
            kept = growth(size for _, size in cost.workspaces)
            if kept > self._workspace_bytes:
                self._workspace_bytes = kept
                self.drain()
                for device in range(self.options.devices):
                    self._set_headroom(device)
            return sum(growth(sizes) for sizes in set(cost.temporaries)) or int(kept > 0), reads_value(cost)

    def make_room(self, device: int, request: int) -> None:
        """Simulates a request for memory that is in the log and may not fit on the device: an allocation, or the launch
        of an operator with temporary memory. If the request fails, raises torch.OutOfMemoryError with torch's message.
        """
        with self._lock:
            self._asked = request
            try:
                self._up_to_date()
            finally:
                refusal, self._asked, self._refusal = self._refusal, 0, None
            if refusal is not None:
                raise _torch_error()(str(refusal)) from None
            self._set_headroom(device)

    def event_done(self, event: int) -> bool:
        """Implements cudaEventQuery. Returns whether the event is complete. Returns True if the event was never
        recorded.
        """
        with self._lock:
            thread = self._spend(self.costs.host.event_query)
            self.simulation.ask(thread, event)
            done = self.simulation.when_passed(event)
            if done is not None and done > self.simulation.now(thread):
                return False
            self.races.event_is_done(event)
            return True

    def stream_done(self, device: int, stream: int) -> bool:
        """Implements cudaStreamQuery. Returns whether all work on the stream is complete."""
        with self._lock:
            thread = self._spend(self.costs.host.event_query)
            if self.simulation.when_stream_done((device, stream)) > self.simulation.now(thread):
                return False
            self.races.stream_is_done(device, stream)
            return True

    def place_of(self, stack: int) -> str:
        """Returns the innermost line of the program's own code in the stack, in the form "train.py:41 in forward". If
        the stack has no line of the program's own code, returns the innermost line of the stack. Returns "" if the
        stack is empty.
        """
        with self._lock:
            self.drain()
            frames = self.stacks[stack] if 0 <= stack < len(self.stacks) else ()
            place = own_place(frames, self._folder)
            return " in ".join(place) if place is not None else ""

    def elapsed_ms(self, start: int, end: int) -> float:
        """Implements cudaEventElapsedTime. Raises ValueError if one of the events was never recorded."""
        with self._lock:
            self._up_to_date()
            first, last = (self.simulation.when_passed(event) for event in (start, end))
            if first is None or last is None:
                raise ValueError("Both events must be recorded before calculating elapsed time.")
            return (last - first) / 1e6

    def memory_stats(self, device: int) -> Mapping[str, int]:
        """Returns the allocator's statistics, with the same keys as torch.cuda.memory_stats()."""
        with self._lock:
            self._up_to_date()
            return self.simulation.requests.allocator(device).memory_stats()

    def memory_snapshot(self, device: int) -> Sequence[Mapping[str, Any]]:
        """Returns the allocator's segments and their blocks, in the form of torch.cuda.memory_snapshot()."""
        with self._lock:
            self._up_to_date()
            return self.simulation.requests.allocator(device).memory_snapshot()

    def mem_get_info(self, device: int) -> tuple[int, int]:
        """Returns (free bytes, total bytes) of the device. Memory that the caching allocator has reserved is not
        free.
        """
        with self._lock:
            self._up_to_date()
            return self.simulation.requests.allocator(device).mem_get_info()

    def reset_peak(self, device: int) -> None:
        with self._lock:
            self._up_to_date()
            self.simulation.requests.allocator(device).reset_peak_memory_stats()

    def reset_accumulated(self, device: int) -> None:
        with self._lock:
            self._up_to_date()
            self.simulation.requests.allocator(device).reset_accumulated_memory_stats()

    def set_memory_fraction(self, device: int, fraction: float) -> None:
        """Limits the memory of a device to this fraction. Raises ValueError if the fraction is not within 0 … 1."""
        with self._lock:
            self._up_to_date()
            requests = self.simulation.requests
            requests.allocator(device).set_per_process_memory_fraction(fraction)
            requests.fractions[device] = fraction
            self._set_headroom(device)

    def record_memory_history(self, on: bool, max_entries: int = sys.maxsize) -> None:
        """Starts to record the history of each allocator. Stores only the last `max_entries` entries of each history.
        Stops recording if `on` is False.
        """
        with self._lock:
            self._up_to_date()
            self.simulation.requests.record_history(max_entries if on else None)

    def memory_history(self, device: int) -> Sequence[TraceEntry]:
        """Returns the recorded history of a device's allocator, oldest entry first."""
        with self._lock:
            self._up_to_date()
            return self.simulation.requests.history(device)

    def clear_workspaces(self) -> None:
        """Implements torch._C._cuda_clearCublasWorkspaces."""
        with self._lock:
            self._up_to_date()
            self.simulation.clear_workspaces()

    def mark(self) -> counts.Mark:
        """Returns a mark of the current point of the program. `counts_since` takes this mark."""
        with self._lock:
            self._up_to_date()
            return counts.mark(self.simulation)

    def counts_since(self, mark: counts.Mark) -> counts.Counts:
        """Returns the counts of all threads since the mark. Takes no virtual time. Does not build a timeline."""
        with self._lock:
            self._up_to_date()
            return counts.since(self.simulation, mark)

    def race_mark(self) -> int:
        """Returns a number for the current point of the program. `timeline` takes a range between two of these
        numbers.
        """
        with self._lock:
            self._up_to_date()
            return self.races.kept

    def timeline(self, races_within: range | None = None, clock: ClockLog | None = None) -> Timeline:
        """Returns the timeline of everything that ran so far. `races_within` is a range between two numbers from
        `race_mark`. If it is not None, the timeline has only races whose later access is in this range. `clock` has the
        program's reads of the clock.
        """
        from unstall.virtual.timeline.build import timeline_of

        with self._lock:
            self._up_to_date()
            return timeline_of(
                self.simulation,
                self.names,
                self.stacks,
                self.options,
                self.races.races(races_within),
                self.races.dependencies(),
                self.races,
                self.faults,
                self._folder,
                self._digests,
                clock or ClockLog(),
            )

    def _set_headroom(self, device: int) -> None:
        self._source.set_headroom(device, self.simulation.requests.headroom(device, self._workspace_bytes))

    def _spend(self, ns: int) -> int:
        """Brings the calling thread's clock up to date, and then adds `ns` to it. Returns the thread's number.

        To bring the clock up to date, simulates all records of the log, and adds the thread's work since its last
        record. If the thread has no records, its clock begins after everything that is simulated so far.
        """
        thread, clock = self._source.this_thread(), self.simulation.clock
        if self._forked or self._draining:
            self.simulation.spend(thread, ns)
            return thread
        self._up_to_date()
        if self.simulation.is_behind(thread):
            self._source.append(int(LogCode.ADVANCE))
            self._up_to_date()
        moment = Moment(thread, *self._source.moment())
        if moment.stack >= len(self.stacks):
            self._know()
        self.simulation.spend(thread, ns + clock.read(moment))
        clock.leave_out(thread, self._source.now_ns() - moment.host_ns)
        return thread

    def measure_host(self) -> None:
        """Measures the speed of this machine if the host clock needs the speed. Call this method after torch is
        imported.
        """
        clock = self.simulation.clock
        if isinstance(clock, ModelledHost):
            return
        self._source.set_logging(False)
        try:
            self._source.set_telling_ns(telling_ns())
            if isinstance(clock, MixedHost):
                clock.scale = host_scale(self.costs)
        finally:
            self._source.set_logging(True)


def _clock(options: MachineOptions, costs: HostCosts) -> HostClock:
    if options.host == "measured":
        return MeasuredHost()
    return MixedHost(costs) if options.host == "mixed" else ModelledHost(costs)


def _without(left_out: Callable[[str], bool], stack: Stack) -> Stack:
    if not any(left_out(code.co_filename) for code, _ in stack):
        return stack
    return [(code, offset) for code, offset in stack if not left_out(code.co_filename)]


def _outside_annotations(stack: Stack) -> Stack:
    """Returns the frames that called torch's code for annotations. The cost of an annotation was measured with this
    Python code, so the frames of this code must not cost time again.
    """
    within = [at for at, (code, _) in enumerate(stack) if code.co_filename.endswith(_OF_ANNOTATIONS)]
    return stack[within[-1] + 1 :] if within else stack


_OF_ANNOTATIONS = ("torch/autograd/profiler.py", "torch/cuda/nvtx.py")


def _is_ours(file: str) -> bool:
    return file.startswith(OURS)


def _torch_error() -> type[Exception]:
    torch = sys.modules.get("torch")
    found: type[Exception] = getattr(torch, "OutOfMemoryError", OutOfMemoryError)
    return found
