"""Simulates the shim's log: turns its records into instructions, and lets the replay engine work out their times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from unstall.replay.engine import begin
from unstall.replay.program import Code as Do
from unstall.replay.program import Instructions, Ops, Program, Replayed
from unstall.timeline.columns import I32, I64, Bool
from unstall.virtual.costs.model import Costs, Startup
from unstall.virtual.log import LogCode, RawSignature, Stack, chosen
from unstall.virtual.simulation.actions import Actions
from unstall.virtual.simulation.captures import Place
from unstall.virtual.simulation.first_uses import FirstUses
from unstall.virtual.simulation.hand_overs import EventHandOvers, HandOvers, Join, MomentHandOvers
from unstall.virtual.simulation.history import History
from unstall.virtual.simulation.host_clock import HostClock
from unstall.virtual.simulation.log_batch import Insertions, LogBatch
from unstall.virtual.simulation.recipes import PARTS, EnginePart, RuntimeCall
from unstall.virtual.simulation.requests import Requests
from unstall.virtual.simulation.serve import Server
from unstall.virtual.simulation.stream_rows import StreamRows

_NO_RECORDED = np.zeros((0, 5), np.int32)


class _Rows(NamedTuple):
    """What is simulated, in order: the records of a batch, and the joins and calls that are inserted before them.

    Attributes:
        row: The row of the record in its batch, or of the record right before which it is inserted.
        recipe: The number of the recipe.
        device: The device, or -1.
        stream: The stream.
        event: The CUDA event, or 0.
        own: Whether it is a record, and is not inserted.
    """

    row: I64
    recipe: I64
    device: I64
    stream: I64
    event: I64
    own: Bool

    def with_insertions(self, joins: Sequence[Join], more: Insertions, join_recipe: int) -> _Rows:
        """Returns these records with insertions right before them: first joins, then calls of the driver."""
        none = np.zeros(len(joins), np.int64)
        columns = (
            ([self.row[0] + join.row for join in joins], more.row, self.row),
            (none + join_recipe, more.recipe, self.recipe),
            (none - 1, more.device, self.device),
            (none, more.stream, self.stream),
            (none, more.event, self.event),
        )
        row, recipe, device, stream, event = (np.concatenate(parts).astype(np.int64) for parts in columns)
        own = np.arange(len(row)) >= len(row) - len(self.row)
        order = np.lexsort((np.arange(len(row)), row))
        return _Rows(row[order], recipe[order], device[order], stream[order], event[order], own[order])


class Simulation:
    """The simulation of the shim's log, which arrives in batches of records.

    Attributes:
        costs: The costs of operators, copies and calls.
        clock: Finds how long the host worked between records.
        devices: The number of devices.
        actions: Finds what is simulated for each record.
        streams: The streams of all devices, numbered.
        history: All that was simulated so far.
        server: Handles memory requests and the captures of CUDA graphs.
        events: By CUDA event, the number of the instruction that last recorded it. Events of the
            program have positive numbers, and are removed when nothing refers to them any more.
            Events of the allocators and of copies have negative numbers, and are removed when they
            are complete.
        arrived: By CUDA event of the program, the virtual time, in ns, at which the recording of
            the event reached the device.
    """

    def __init__(
        self,
        costs: Costs,
        clock: HostClock,
        *,
        devices: int = 1,
        settings: str = "",
        warm: bool = False,
        clocks: Iterable[tuple[int, float]] = (),
    ) -> None:
        """Begins a simulation in which nothing has happened.

        Args:
            costs: The costs of the GPU and its host.
            clock: Finds how long the host worked between records.
            devices: The number of devices.
            settings: The settings of the caching allocator, in the format of PYTORCH_ALLOC_CONF.
            warm: Whether first uses cost no more than later ones.
            clocks: For each device with lower clock rates, a pair `(device, factor)`: its kernels
                take 1 / factor times as long.
        """
        self.costs = costs
        self.clock = clock
        self.devices = devices
        self._slowness = np.ones(devices)
        for device, factor in clocks:
            self._slowness[device] = 1 / factor
        self.actions = Actions(costs)
        self.streams = StreamRows(devices)
        self.history = History()
        self.first_uses = FirstUses(Startup() if warm else costs.startup, self.actions)
        self.server = Server(self, settings)
        self.events: dict[int, int] = {}
        self.arrived: dict[int, int] = {}
        self._turns = HandOvers()
        self._handed = EventHandOvers()
        self._moments = MomentHandOvers()
        self._engine = begin(costs.limits.queue_capacity, fills_gaps=True)
        self._threads = 1
        self._simulated_threads = 0
        self._owed: dict[int, int] = {}
        self._reads: list[tuple[int, int]] = []  # (number, ns) of CLOCK records

    @property
    def requests(self) -> Requests:
        """Serves the requests for memory."""
        return self.server.requests

    def know(self, signatures: Sequence[RawSignature], stacks: Sequence[Stack], names: Sequence[str]) -> None:
        """Adds the next signatures of operators, the next Python stacks, and the next names of
        operators and annotations, of the shim's log. Each of the three is numbered in the order in
        which it is added.
        """
        for name in names:
            self.actions.know_operator(name)
        for raw in signatures:
            self.actions.know(raw)
        self.clock.know(stacks)

    def feed(self, records: np.ndarray, uses: np.ndarray) -> None:
        """Simulates the next records of the shim's log. All signatures and stacks to which the
        records refer must have been passed to `know` before.

        Args:
            records: The records.
            uses: The memory that they use, an array of USE, in the order of the records.
        """
        if not len(records):
            return
        self._threads = max(self._threads, int(records["thread"].max()) + 1)
        batch = LogBatch(records, self.history.happened.length, uses)
        self.first_uses.serve(batch)
        self.server.serve(batch)
        self.run(batch, len(records))
        self.server.data.forget_freed()
        columns = self.requests.take_changes().T
        names = ("record", "device", "size", "reserved", "address")
        self.history.allocated.append(**dict(zip(names, columns, strict=True)))

    def take_reads(self) -> list[tuple[int, int]]:
        """Returns the reads of the clock that were simulated since the last call of this method, as
        pairs `(number, time)`. `number` is the one in the log's CLOCK record, and `time` is in ns
        of the virtual clock.
        """
        taken, self._reads = self._reads, []
        return taken

    def clear_workspaces(self) -> None:
        """Frees the workspaces of cuBLAS, as of the last record so far."""
        self.requests.clear_workspaces(max(self.history.happened.length - 1, 0))

    def is_behind(self, thread: int) -> bool:
        """Returns whether the clock of `thread` may be too early until its next record is
        simulated. That is so in two cases: the thread is new, or it waited for a thread that runs
        no Python.
        """
        return self._turns.is_behind(thread)

    def now(self, thread: int) -> int:
        """Returns the virtual time of `thread`, in ns, after all of its records that were simulated."""
        return (self._engine.clock(thread) if thread < self._simulated_threads else 0) + self._owed.get(thread, 0)

    def synchronised_ns(self, thread: int, first: int) -> int:
        """Returns how long `thread` was in synchronisations, in ns. Only instructions from number `first` on count."""
        done = self.history.done
        mine = (done.since("thread", first) == thread) & _SYNCHRONISES[done.since("what", first)]
        return int((done.since("end", first) - done.since("start", first))[mine].sum())

    def spend(self, thread: int, ns: int) -> None:
        """Adds `ns` to the virtual time of `thread`. The time passes before the thread's next record."""
        self._owed[thread] = self._owed.get(thread, 0) + ns

    def ask(self, thread: int, event: int) -> None:
        """Advances the virtual clock of `thread` to the time at which the last recording of `event`
        reached the device, if another thread recorded it. Does nothing if `thread` itself recorded
        it.
        """
        if self._handed.to(thread, event) and event in self.arrived:
            self.spend(thread, max(0, self.arrived[event] - self.now(thread)))

    def when_done(self, event: int) -> int | None:
        """Returns when the last recording of `event` completes, in ns of the virtual clock. Returns
        None if the event was never recorded.
        """
        instruction = self.events.get(event)
        return None if instruction is None else self._engine.marked(instruction)

    def forget(self, events: Iterable[int]) -> None:
        """Forgets CUDA events that nothing refers to any more."""
        events = list(events)
        self._handed.forget(events)
        for event in events:
            self.events.pop(event, None)
            self.arrived.pop(event, None)

    def when_passed(self, event: int) -> int | None:
        """Returns the time stamp that the device writes for the last recording of `event`, in ns of
        the virtual clock. From then on, cudaEventQuery says that the event is complete. Returns
        None if the event was never recorded.
        """
        instruction = self.events.get(event)
        if instruction is None:
            return None
        return max(self._engine.marked(instruction), self.arrived[event] + self.costs.limits.event_latency)

    def can_start(self, thread: int, place: Place) -> int:
        """Returns when a kernel that the last call of `thread` launched on the stream `place` could
        start, in ns of the virtual clock.
        """
        return max(self.now(thread) + self.costs.limits.launch_latency, self.when_stream_done(place))

    def when_stream_done(self, place: Place) -> int:
        """Returns when all work so far on the stream `place` is complete, in ns of the virtual
        clock. Returns 0 if the stream had no work.
        """
        row = self.streams.find(place)
        known = row is not None and self.history.done.length > 0 and row < self.streams.fed
        return self._engine.done(row) if known and row is not None else 0

    def run(self, batch: LogBatch, until: int) -> None:
        """Simulates the records of `batch` before row `until` that are not simulated yet, with the
        calls that are inserted before them.
        """
        first = batch.simulated
        if until <= first:
            return
        records = batch.records[first:until]
        captured = batch.captured[first:until]
        recipe = batch.recipes(self.actions, first, until)
        recipe[captured] = self.actions.captured
        event = _events(records, captured)
        joins, woken, begun = self._turns.joins(records)
        joins += self._handed.joins(records, event, self.events)
        joins += self._moments.joins(records)
        joins.sort(key=attrgetter("row"))
        for copy, number in batch.events.items():
            if first <= copy < until:
                event[copy - first] = number
        more = batch.take_insertions(until)
        thread = records["thread"]
        steps = self.actions.recipes.steps

        own = np.ones(len(records), np.bool_)
        device = records["device"].astype(np.int64)
        rows = _Rows(np.arange(first, until), recipe, device, records["stream"], event, own)
        if joins or more.row:
            rows = rows.with_insertions(joins, more, self.actions.join)
        row, recipe, own = rows.row, rows.recipe, rows.own
        count = self.actions.recipes.count[recipe]
        base = self.history.done.length
        position = base + np.cumsum(count) - count

        # Instructions: the steps of the rows.
        of_row = np.repeat(np.arange(len(row)), count)
        nth = np.arange(len(of_row)) - np.repeat(position - base, count)
        step = self.actions.recipes.first[recipe][of_row] + nth
        code = steps.code[step]
        work = np.where(nth > 0, steps.work[step], 0)  # before each record, the clock says how long the host worked
        usual = steps.work[self.actions.recipes.first[recipe[own]]]
        own_work = self.clock.work(records, usual, woken, begun)
        own_work[records["code"] == LogCode.COLLECTIVE] = 0  # the ranks met after the previous record
        work[position[own] - base] = own_work + self._pay(thread)
        instruction_thread = thread[row[of_row] - first].astype(np.int32)
        target = np.full(len(step), -1, np.int64)
        last_step = self.actions.recipes.first[recipe] + count - 1
        recorded = self._resolve(rows.event, position + count - 1, code, steps.code[last_step], target, base)
        ends_of_own = (position + count)[own]
        if joins:
            target[position[recipe == self.actions.join] - base] = self._turns.targets(joins, ends_of_own)
        self._turns.remember(ends_of_own)
        self._moments.remember(ends_of_own)
        stream_row = self._streams_of(code, of_row, rows.device, rows.stream)

        data = batch.data(self.server.data, first, until)[row[of_row] - first]
        ops, op_of, op = self._ops(step, stream_row, rows.device[of_row], data)
        program = Program(
            instructions=Instructions(
                code=code,
                thread=instruction_thread,
                stream=stream_row,
                target=target.astype(np.int32),
                work=work,
                call=steps.call[step],
                latency=steps.latency[step],
                ops=np.cumsum(steps.ops[step]),
                host=np.zeros(0, np.int32),
                recorded=_NO_RECORDED,
            ),
            ops=ops,
            threads=self._threads,
            device_of_stream=self.streams.device_of_stream(),
            engines=self.devices * PARTS,
            capacity=self.costs.limits.queue_capacity,
            step_starts=np.zeros(0, np.int64),
            step_ends=np.zeros(0, np.int64),
            thread_of=np.zeros(0, np.int32),
        )
        replayed = self._engine.feed(program)
        self._simulated_threads = self._threads
        batch.simulated = until
        for number, at in recorded.items():
            self.arrived[number] = int(replayed.end[at - base])
        for at in np.flatnonzero(records["code"] == LogCode.CLOCK).tolist():
            self._reads.append((int(records["a"][at]), int(replayed.end[ends_of_own[at] - 1 - base])))
        self._keep(program, replayed, op_of, op, record=batch.number + row[of_row], what=steps.what[step])
        columns = ("code", "thread", "stack", "id", "a", "b")
        self.history.happened.append(**{name: records[name] for name in columns})

    def _ops(self, step: I64, stream_row: I32, device: I64, data: I64) -> tuple[Ops, I64, I64]:
        """Returns the device ops of instructions, the instruction of each op, and the row of each op in the recipes.

        Args:
            step: The step of each instruction, as a row of the recipes.
            stream_row: The stream of each instruction, or -1.
            device: The device of each instruction, or -1.
            data: A number of the memory that each instruction uses, or 0.
        """
        steps, rows = self.actions.recipes.steps, self.actions.recipes.ops
        count = steps.ops[step]
        op_of = np.repeat(np.arange(len(step)), count)
        first = np.cumsum(count) - count
        op = steps.first_op[step][op_of] + np.arange(len(op_of)) - np.repeat(first, count)
        on_device = np.maximum(device[op_of], 0)
        part = rows.part[op]
        slowness = np.where(part == EnginePart.PROCESSORS, self._slowness[on_device], 1.0)
        before = self.history.ran.length
        ops = Ops(
            stream=self.streams.branches(stream_row[op_of], rows.branch[op]),
            engine=np.where(part >= 0, on_device * PARTS + part, -1).astype(np.int32),
            share=rows.share[op],
            blocks=rows.blocks[op],
            size=rows.size[op],
            cached=rows.cached[op],
            data=np.maximum(rows.data[op], data[op_of]).astype(np.int32),
            uncached=rows.uncached[op],
            again=np.rint(rows.again[op] * slowness).astype(np.int64),
            after=np.where(rows.after[op] >= 0, before + first[op_of] + rows.after[op], -1).astype(np.int32),
            duration=np.rint(rows.duration[op] * slowness).astype(np.int64),
            latency=rows.latency[op],
            gap=rows.gap[op],
            lag=np.zeros(len(op), np.int64),
            device=np.zeros(0, np.int32),
        )
        return ops, op_of, op

    def _keep(
        self, program: Program, replayed: Replayed, op_of: I64, op: I64, *, record: I64, what: np.ndarray
    ) -> None:
        """Adds a replayed program to the history.

        Args:
            program: The program.
            replayed: Its times.
            op_of: The instruction of each device op.
            op: The row of each device op in the recipes.
            record: The number of the log's record of each instruction.
            what: What each instruction does, as `RecipeSteps.what` has it.
        """
        do, history = program.instructions, self.history
        history.ran.append(
            instruction=history.done.length + op_of,
            stream=program.ops.stream,
            op=op,
            start=replayed.op_start,
            end=replayed.op_end,
        )
        history.done.append(
            record=record,
            what=what,
            thread=do.thread,
            stream=do.stream,
            target=do.target,
            start=replayed.start,
            end=replayed.end,
        )

    def _pay(self, thread: np.ndarray) -> I64:
        """Returns, for each record of the shim's log, how many ns calls of `spend` added right
        before it. They all go to the first record of their thread.
        """
        owed = np.zeros(len(thread), np.int64)
        for number in [number for number in self._owed if self._owed[number]]:
            mine = np.flatnonzero(thread == number)
            if len(mine):
                owed[mine[0]] = self._owed.pop(number)
        return owed

    def _resolve(
        self, event: I64, last: I64, code: np.ndarray, last_code: np.ndarray, target: I64, base: int
    ) -> dict[int, int]:
        """Finds, for each wait for a CUDA event, the instruction that last recorded the event. If
        none did, the wait becomes a call that does not wait.

        Args:
            event: For each row, its event; 0 if it has none. A row is a record of the log, or a
                call that was inserted.
            last: For each row, the number of its last instruction: the one that records the event
                or waits for it.
            code: For each instruction, what it does. It is changed.
            last_code: For each row, what its last instruction does.
            target: For each instruction, the number of the instruction that it waits for. It is
                changed.
            base: The number of the first instruction.

        Returns:
            By CUDA event that the program recorded in these rows, the number of the instruction
            that last recorded it.
        """
        now: dict[int, int] = {}
        for row in np.flatnonzero(event).tolist():
            number, at = int(event[row]), int(last[row])
            if last_code[row] == Do.RECORD:
                self.events[number] = at
                if number > 0:
                    now[number] = at
            elif last_code[row] in (Do.STREAM_WAIT, Do.SYNC_EVENT):
                recorded = self.events.get(number)
                if recorded is None:
                    code[at - base] = Do.CALL
                else:
                    target[at - base] = recorded
                    if number < 0:
                        self.forget([number])
        return now

    def _streams_of(self, code: np.ndarray, of_row: I64, device: I64, stream: I64) -> np.ndarray:
        """Returns the stream of each instruction, as a row of `StreamRows`. For a wait for a whole
        device, it is the number of the device. It is -1 for an instruction without a stream.
        """
        result = np.full(len(code), -1, np.int32)
        on_stream = np.flatnonzero(_ON_STREAM[code])
        rows = of_row[on_stream]
        result[on_stream] = self.streams.rows(np.maximum(device[rows], 0), stream[rows])
        whole = np.flatnonzero(code == Do.SYNC_DEVICE)
        result[whole] = device[of_row[whole]]
        return result


_ON_STREAM = chosen(Do.LAUNCH, Do.RECORD, Do.STREAM_WAIT, Do.SYNC_STREAM)
_SYNCHRONISES = chosen(RuntimeCall.SYNC_STREAM, RuntimeCall.SYNC_DEVICE, RuntimeCall.SYNC_EVENT)
_OF_EVENTS = chosen(LogCode.EVENT_RECORD, LogCode.EVENT_WAIT, LogCode.SYNC_EVENT)


def _events(records: np.ndarray, captured: Bool) -> I64:
    """Returns, for each record of the shim's log, the CUDA event that it records or waits for; 0 if
    it has none or if it is captured.
    """
    events: I64 = np.where(_OF_EVENTS[records["code"]] & ~captured, records["a"], 0)
    return events
