"""The simulator of a process: it answers the program's questions to the virtual GPU."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np

from unstall.line_digests import LineDigests
from unstall.lines.clock import line_at
from unstall.timeline.columns import I64
from unstall.virtual.allocator.out_of_memory import OutOfMemoryError
from unstall.virtual.allocator.settings import checked_settings_text
from unstall.virtual.clock_log import ClockLog
from unstall.virtual.costs.measured_costs import costs_of
from unstall.virtual.costs.model import Costs, HostCosts, OperatorCost
from unstall.virtual.faults.places import FailedAt, failures
from unstall.virtual.log import LogCode, LogSource, Stack
from unstall.virtual.options import MachineOptions
from unstall.virtual.own_place import own_place
from unstall.virtual.simulation import counts
from unstall.virtual.simulation.collectives import Group, Meeting, collective_of
from unstall.virtual.simulation.host_clock import HostClock, Moment
from unstall.virtual.simulation.late_read import LateRead
from unstall.virtual.simulation.log_reader import LogReader
from unstall.virtual.simulation.measured_host import MeasuredHost
from unstall.virtual.simulation.mixed_host import MixedHost
from unstall.virtual.simulation.modelled_host import ModelledHost
from unstall.virtual.simulation.requests import Refusal, growth
from unstall.virtual.simulation.simulate import Simulation
from unstall.virtual.simulation.this_host import host_scale, telling_ns

if TYPE_CHECKING:
    from unstall.timeline.columns import Timeline
    from unstall.virtual.allocator.caching import CachingAllocator

_OWN = str(Path(__file__).parent.parent)
"""The folder of the virtual GPU."""


class Simulator:
    """Answers the program's questions to the virtual GPU. Before it answers, it simulates all
    records that the shim's log has.

    Attributes:
        options: The options of the virtual machine.
        costs: The costs of the modelled GPU and its host.
        simulation: The simulation of the log.
    """

    def __init__(
        self,
        source: LogSource,
        options: MachineOptions,
        costs: Costs | None = None,
        clock_log: ClockLog | None = None,
    ) -> None:
        """Begins a simulator for which nothing has happened. Raises UsageError if the GPU in
        `options` is unknown.

        Args:
            source: What provides the log: the shim, or an object of a test.
            options: The options of the virtual machine.
            costs: The costs of the GPU and its host. None: those of the GPU in `options`.
            clock_log: Where the program's reads of the clock are noted. Those of a device's clock are
                noted here. None: in a new one.
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
        self._log = LogReader(
            source, self.simulation, self._records_are_simulated, tells_of_slow_values=options.numerics != "skip"
        )
        self._workspace_bytes = 0  # the most that an operator's workspaces may take on a new stream
        self._asked = 0  # the request that make_room() waits for; `_refusal` is its error, if any
        self._refusal: OutOfMemoryError | None = None
        self._late_reads: WeakValueDictionary[int, LateRead] = WeakValueDictionary()  # by the number in their record
        self._late_number = 0
        self._clock_log = clock_log if clock_log is not None else ClockLog()
        self._warned: dict[str, dict[str | tuple[str, type[Warning], int], int]] = {}  # by file: a registry of warnings
        self._folder = os.getcwd()  # noqa: PTH109 - a str is needed
        self._digests = LineDigests(self._folder, time.time())
        self.cuda_begins()
        for device in range(options.devices):
            self._set_headroom(device)

    def cuda_begins(self) -> None:
        """Reads the environment variables that CUDA reads when a program initialises it. Called at that time."""
        self.simulation.actions.launches_block = os.environ.get("CUDA_LAUNCH_BLOCKING") == "1"
        self.simulation.first_uses.compiles = os.environ.get("CUDA_CACHE_DISABLE") == "1"

    def drain(self) -> None:
        """Simulates all records that the shim's log has. See `LogReader.drain`."""
        self._log.drain()

    def _records_are_simulated(self) -> None:
        for number, ns in self.simulation.take_reads():
            read = self._late_reads.pop(number, None)
            if read is not None:
                read.at_ns = ns
        requests = self.simulation.requests
        for refusal in requests.take_refusals():
            self._log.faults.refused.append(refusal)
            self._refuse(refusal.allocation, refusal.error)
        for device in requests.devices:
            self._set_headroom(device)

    def _refuse(self, request: int, error: OutOfMemoryError) -> None:
        """Tells the program that a request for memory failed. If `make_room` is waiting for this
        request, it raises the error. If not, the program's next call that uses the device raises
        it.

        Args:
            request: The number that the shim's log gave to the request.
            error: The error.
        """
        if request and request == self._asked:
            self._refusal = error
        else:
            self.simulation.requests.refused += 1
            self._source.raise_later(_torch_error()(str(error)))

    def simulated(self) -> AbstractContextManager[Simulation]:
        """Returns a context manager that yields the simulation, with all records that the shim's log has.
        See `LogReader.simulated`.
        """
        return self._log.simulated()

    @contextmanager
    def allocator(self, device: int) -> Iterator[CachingAllocator]:
        """Yields the caching allocator of a device, after all records that the shim's log has. No other
        thread changes it in the block.
        """
        with self.simulated() as simulation:
            yield simulation.requests.allocator(device)

    def ended_by(self, error: BaseException) -> None:
        """Notes whether `error`, which ends the program, is a device error. The timeline's faults
        then say which fault led to it.
        """
        with self._log.lock:
            self._log.faults.end_by(error, _torch_error(), self._line_of)

    def _line_of(self, refusal: Refusal) -> tuple[str, int] | None:
        happened = self.simulation.history.happened.whole()
        stack = self._stack(int(happened.stack[refusal.record])) if refusal.record < len(happened) else ()
        return next(((code.co_filename, line_at(code, offset)) for code, offset in stack), None)

    def failures(self) -> list[FailedAt]:
        """Returns the assertions that failed in kernels so far, in the order in which they failed."""
        with self.simulated() as simulation:
            if not self._log.faults.known:
                return []
            return failures(self._log.faults, simulation.history.happened.whole(), self._log.stacks)

    def forked(self) -> None:
        """Stops simulating in a forked child process. There, nothing is logged any more, and the
        virtual clock does not advance.
        """
        self._log.forked()

    def now_ns(self) -> int:
        """Returns the virtual time of the calling thread, in ns. Reading the clock takes virtual time too."""
        with self._log.lock:
            thread = self._spend(self.costs.host.clock_read)
            return self.simulation.now(thread)

    def read_late(self, offset_ns: int) -> LateRead:
        """Reads the virtual clock of the calling thread, without simulating the log for it. The
        read takes as much virtual time as `now_ns`.

        Returns:
            The read. Its `ns` returns the time, plus `offset_ns`.
        """
        with self._log.lock:
            read = LateRead(self._latest_ns, offset_ns)
            if self._log.is_closed:
                read.at_ns = self.now_ns()
                return read
            self._late_number += 1
            self._late_reads[self._late_number] = read
            self._source.append(int(LogCode.CLOCK), a=self._late_number)
            return read

    def _latest_ns(self) -> int:
        with self.simulated() as simulation:
            return simulation.now(self._source.this_thread())

    @contextmanager
    def own_work(self) -> Iterator[None]:
        """What the calling thread does in a block is work of unstall, such as building a profile. It does not count as
        work of the program. The block must not begin with records in the shim's log: their simulation would be left
        out twice.
        """
        began = self._source.now_ns()
        try:
            yield
        finally:
            with self._log.lock:
                self.simulation.clock.leave_out(self._source.this_thread(), self._source.now_ns() - began)

    def here_ns(self) -> int:
        """Returns the virtual time of the calling thread, in ns. Unlike `now_ns`, takes no virtual time."""
        with self._log.lock:
            return self.simulation.now(self._spend(0))

    def synchronised_ns(self, first: int) -> int:
        """Returns how long the calling thread was in synchronisations, in ns: in instructions from number `first` on,
        as far as they are simulated.
        """
        with self._log.lock:
            return self.simulation.synchronised_ns(self._source.this_thread(), first)

    def this_thread(self) -> int:
        """Returns the number that the shim's log gives to the calling thread."""
        return self._source.this_thread()

    def cost_of(self, signature: int) -> OperatorCost:
        """Returns the cost of an operator, by the number of its signature in the shim's log."""
        with self._log.lock:
            self._log.know()
            return self.simulation.actions.operators[signature]

    def join_group(self, at_ns: int, rank: int, ranks: int) -> int:
        """Lets the calling thread wait until the last rank joins a process group. The first group
        that a process joins is that of its job.

        Args:
            at_ns: When the last rank joins, in ns of this rank's virtual clock.
            rank: This process's rank in the group.
            ranks: The number of ranks in the group.

        Returns:
            How long the thread waits, in ns.
        """
        with self._log.lock:
            actions = self.simulation.actions
            actions.job = actions.job or (rank, ranks)
            thread = self._spend(0)
            waits = max(at_ns - self.simulation.now(thread), 0)
            self.simulation.spend(thread, waits)
            return waits

    def can_start_ns(self, device: int, stream: int) -> int:
        """Returns when the kernel of a collective could start on a stream if it waited for no other
        rank, in ns of the virtual clock. The last record of the calling thread must be the
        COLLECTIVE_CALL that launches the kernel.
        """
        with self.simulated() as simulation:
            return simulation.can_start(self._source.this_thread(), (device, stream))

    def collective(
        self,
        calls: Sequence[tuple[str, str, str, int, int, int]],
        group: tuple[str, str, int, tuple[int, ...]],
        sequence: int,
        meeting: tuple[int, int, int],
    ) -> int:
        """Adds a collective, and returns its number, which belongs into the record COLLECTIVE.

        Args:
            calls: For each call, the fields of `Call`.
            group: The fields of `Group`.
            sequence: The number of the operation in its group.
            meeting: The fields of `Meeting`.
        """
        with self._log.lock:
            found = collective_of(calls, Group(*group), sequence, Meeting(*meeting))
            return self.simulation.actions.collective(found)

    def call_facts(self, signature: int) -> tuple[int, bool]:
        """Returns what the shim needs to know of an operator before it launches it.

        Args:
            signature: The number of the operator's signature in the shim's log.

        Returns:
            `(growth, reads)`. `growth` is by how many bytes the temporary memory of the operator
            may raise the reserved memory (see `requests.growth`). It is 1 if the operator has only
            workspaces, for which room is kept free, and -1 if it is not known yet. `reads` is
            whether the operator copies a value to the host.
        """
        with self._log.lock:
            if self._log.is_closed:
                return -1, False
            with self.own_work():
                cost = self.cost_of(signature)
            kept = growth(size for _, size in cost.workspaces)
            if kept > self._workspace_bytes:
                self._workspace_bytes = kept
                self.drain()
                for device in range(self.options.devices):
                    self._set_headroom(device)
            return sum(growth(sizes) for sizes in set(cost.temporaries)) or int(kept > 0), cost.waits_for == "value"

    def make_room(self, device: int, request: int) -> None:
        """Simulates a request for memory that may not fit on the device: an allocation, or the
        launch of an operator with temporary memory. Its record must be in the shim's log. Raises
        torch.OutOfMemoryError, with torch's message, if the request fails.

        Args:
            device: The device.
            request: The number that the log gives to the request.
        """
        with self._log.lock:
            self._asked = request
            try:
                self._log.up_to_date()
            finally:
                refusal, self._asked, self._refusal = self._refusal, 0, None
            if refusal is not None:
                raise _torch_error()(str(refusal)) from None
            self._set_headroom(device)

    def event_done(self, event: int) -> bool:
        """Returns what cudaEventQuery would: whether `event` is complete. Returns True if the event
        was never recorded.
        """
        with self._log.lock:
            thread = self._spend(self.costs.host.event_query)
            self.simulation.ask(thread, event)
            done = self.simulation.when_passed(event)
            if done is not None and done > self.simulation.now(thread):
                return False
            self._log.races.event_is_done(event)
            return True

    def stream_done(self, device: int, stream: int) -> bool:
        """Returns what cudaStreamQuery would: whether all work on the stream is complete."""
        with self._log.lock:
            thread = self._spend(self.costs.host.event_query)
            if self.simulation.when_stream_done((device, stream)) > self.simulation.now(thread):
                return False
            self._log.races.stream_is_done(device, stream)
            return True

    def place_of(self, stack: int) -> str:
        """Returns the innermost line of a Python stack that is the program's own, such as
        "train.py:41 in forward". If no line is the program's own, returns the innermost line of
        all. Returns "" if the stack is empty or unknown.

        Args:
            stack: The number of the stack in the shim's log.
        """
        place = self._own_place(stack)
        return " in ".join(place) if place is not None else ""

    def _own_place(self, stack: int) -> tuple[str, str] | None:
        with self._log.lock:
            self.drain()
            return own_place(self._stack(stack), self._folder)

    def _stack(self, number: int) -> Stack:
        return self._log.stacks[number] if 0 <= number < len(self._log.stacks) else ()

    def warn_at(self, stack: int, message: str) -> None:
        """Warns the user at the innermost line of a Python stack that is the program's own, only once a line. If the
        stack is empty or unknown, warns at the line that runs.

        Args:
            stack: The number of the stack in the shim's log.
            message: The text of the warning.
        """
        place = self._own_place(stack)
        if place is None:
            warnings.warn(message, UserWarning, stacklevel=2)
            return
        file, _, line = place[0].rpartition(":")
        registry = self._warned.setdefault(file, {})
        warnings.warn_explicit(message, UserWarning, file, int(line), registry=registry)

    def graph_is_empty(self, graph: int) -> bool:
        """Returns whether the capture of a CUDA graph has ended without work for the device. `graph` is
        the number of the graph in the shim's log.
        """
        with self.simulated() as simulation:
            return simulation.actions.graph_is_empty(graph)

    def elapsed_ms(self, start: int, end: int) -> float:
        """Returns what cudaEventElapsedTime would: the ms from the event `start` to the event
        `end`. Raises ValueError if one of them was never recorded.
        """
        with self.simulated() as simulation:
            first, last = (simulation.when_passed(event) for event in (start, end))
            if first is None or last is None:
                raise ValueError("Both events must be recorded before calculating elapsed time.")
            self._clock_log.add(simulation.now(self._source.this_thread()), of_host=False)
            return (last - first) / 1e6

    def set_memory_fraction(self, device: int, fraction: float) -> None:
        """Lets the program use no more than `fraction` of a device's memory. Raises ValueError if
        `fraction` is not within 0 … 1.
        """
        with self.allocator(device) as allocator:
            allocator.set_per_process_memory_fraction(fraction)
            self._set_headroom(device)

    def mark(self) -> counts.Mark:
        """Returns the current point of the program. `counts_since` counts from it."""
        with self.simulated() as simulation:
            return counts.mark(simulation)

    def counts_since(self, mark: counts.Mark) -> counts.Counts:
        """Returns how many launches all threads made since the point `mark`, and the peak of
        reserved memory since then. This takes no virtual time, and makes no timeline.
        """
        with self.simulated() as simulation:
            return counts.since(simulation, mark)

    def race_mark(self) -> int:
        """Returns a number for the current point of the program. A range of two such numbers, given
        to `timeline`, selects the races between the two points.
        """
        with self.simulated():
            return self._log.races.kept

    def timeline(self, races_within: range | None = None) -> Timeline:
        """Returns the timeline of everything that ran so far.

        Args:
            races_within: A range between two numbers from `race_mark`: the timeline has only the
                races whose later access lies in it. None: it has all races.
        """
        from unstall.virtual.timeline.build import timeline_of

        with self.simulated():
            return timeline_of(
                self._log,
                self.options,
                self._log.races.races(races_within),
                self._clock_log,
                self._folder,
                self._digests,
            )

    def free_work(self) -> tuple[I64, I64, I64, I64]:
        """Returns the work of the host that took no time on the virtual clock, as columns: the numbers of the call
        stacks before and after it, the time in ns of the virtual clock at which it was done, and how long it took here.
        """
        with self.simulated():
            before, after, record, ns = self.simulation.clock.free.whole()
            done = self.simulation.history.done.whole()
            last = np.searchsorted(done.record, record, side="right") - 1
            return before, after, done.end[last] if len(done.end) else record, ns

    def frames(self, stack: int) -> list[dict[str, object]]:
        """Returns the frames of a Python stack of the log, innermost first, in the form of torch's memory snapshots.
        The simulation's own are left out.
        """
        return [
            {"name": code.co_name, "filename": code.co_filename, "line": line_at(code, offset)}
            for code, offset in self._stack(stack)
            if not code.co_filename.startswith((_OWN, "<frozen runpy>"))
        ]

    def place_between(self, pair: tuple[int, int]) -> str:
        """Returns words for where work lies between two call stacks, which are given by number: "at train.py:4"."""
        from unstall.virtual.timeline.notes import place_of

        return place_of(pair, self._log.stacks, self._folder)

    def _set_headroom(self, device: int) -> None:
        self._source.set_headroom(device, self.simulation.requests.headroom(device, self._workspace_bytes))

    def _spend(self, ns: int) -> int:
        """Brings the virtual clock of the calling thread up to date, and adds `ns` to it. Returns
        the number of the thread.

        For that, simulates all records of the shim's log, and adds the work that the thread did
        since its last record. The clock of a thread without records begins after all that was
        simulated so far.
        """
        thread, clock = self._source.this_thread(), self.simulation.clock
        if self._log.is_closed:
            self.simulation.spend(thread, ns)
            return thread
        self._log.up_to_date()
        if self.simulation.is_behind(thread):
            self._source.append(int(LogCode.ADVANCE))
            self._log.up_to_date()
        moment = Moment(thread, *self._source.moment())
        if moment.stack >= len(self._log.stacks):
            self._log.know()
        self.simulation.spend(thread, ns + clock.read(moment))
        clock.leave_out(thread, self._source.now_ns() - moment.host_ns)
        return thread

    def measure_host(self) -> None:
        """Measures the speed of this machine, if the times of the host depend on it. Call this
        after torch was imported.
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


def _torch_error() -> type[Exception]:
    torch = sys.modules.get("torch")
    found: type[Exception] = getattr(torch, "OutOfMemoryError", OutOfMemoryError)
    return found
