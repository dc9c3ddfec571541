"""Reads the trace of one rank and makes a `Summary` of it. This runs on the machine that has the trace. Only the
summary is needed afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec.structs import replace

from unstall.decoding import from_json
from unstall.diagnose.analyse import analyse
from unstall.diagnose.graphed_checks import without_checks
from unstall.diagnose.input_check import load_usable
from unstall.diagnose.notes import notes_of
from unstall.diagnose.rules import all_rules
from unstall.diagnose.rules.data_loading import data_loading
from unstall.diagnose.rules.exposed_comm import exposed_comm
from unstall.diagnose.run import Run
from unstall.errors import TraceError
from unstall.fleets.host_time import host_time
from unstall.fleets.identity import identify
from unstall.fleets.reduce import Reduced, reduce
from unstall.fleets.summary import Calls, Cost, Costs, Group, Summary, encode, explains, pack, pack_table
from unstall.locate.collectives import Kind, kind_of_kernel, kind_of_operation
from unstall.locate.kinds import is_asleep, is_communication, is_data_loading
from unstall.replay.build import build
from unstall.replay.engine import replay
from unstall.result import Finding, Where
from unstall.timeline.ancestry import nearest
from unstall.timeline.columns import I8, I32, I64, Bool, DeviceKind, Timeline
from unstall.timeline.grouping import by_text, distinct, groups, is_in, order_of
from unstall.timeline.intervals import Intervals
from unstall.timeline.limits import MOST_RANKS
from unstall.what_if.edits import parse
from unstall.what_if.subject import Subject

KINDS = tuple(Kind)
_ANNOTATED = "nccl:"  # begins the annotations of torch's process group around what it launches
_CODE = {kind: code for code, kind in enumerate(KINDS)}
_WAYS = {"send": 1, "recv": 2}  # torch's names of single sends and receives
_Member = Annotated[int, msgspec.Meta(ge=0, lt=MOST_RANKS)]
_SOME = 64  # rows that tell what a place is
_AT_ONCE = 1 << 16  # rows: their columns fit into the cache
_WORTH = 1000  # ns: if a line costs less in a stretch, the cost is not kept by line


def summarise(
    path: str | Path, *, step: str | None = None, user: Sequence[str] = (), edits: Sequence[str] = ()
) -> bytes:
    """Reads the trace of one rank and returns its summary as bytes, which `unstall.fleets.summary.decode` decodes.

    Args:
        path: The path of a trace or of a saved timeline.
        step: The name (or glob) of the annotation around one step. None: steps are detected.
        user: Globs of the files that count as the user's code. If empty, these are all files except framework files.
        edits: Edits that are made to the rank's program, as `unstall whatif` takes them.

    Raises:
        TraceError: The file cannot be read, or its steps have no device work.
        UsageError: An edit does not exist, or the trace has no annotation called `step`.
    """
    path = Path(path)
    timeline = load_usable(path)
    run = analyse(timeline, step=step, user=user)
    if not run.ops_inside.any():
        raise TraceError(f"{path}: no device work falls into its steps, so there is nothing to replay")
    return encode(_summary(path, run, edits))


def _summary(path: Path, run: Run, edits: Sequence[str]) -> Summary:
    timeline, steps = run.timeline, run.steps
    comm = is_communication(timeline)
    work = _work(run, edits, comm)
    places = _Places(run)
    told = _Told(timeline)
    who = identify(timeline, path)
    calls = _calls(run, work, told, places, who.rank)
    costs = _costs(run, calls, comm, work.thread_of, places)
    ends = run.window[0] + np.cumsum(run.step_lengths)
    final, arrivals = work.reduced.program, work.reduced.arrivals
    return Summary(
        path=str(path),
        size_bytes=path.stat().st_size,
        rank=who.rank,
        rank_by=who.by,
        world_size=timeline.meta.world_size,
        machine=who.machine,
        device=next(iter(timeline.meta.devices), None),
        torch=timeline.meta.torch,
        edits=tuple(edits),
        zero_ns=timeline.meta.zero_ns,
        sound=timeline.meta.sound,
        notes=notes_of(run),
        steps_by=steps.found_by,
        unit=steps.unit,
        step_start=pack(np.append(run.window[0], ends[:-1])),
        step_end=pack(ends),
        mean_step_ns=run.per_step(run.wall),
        replay_step_ns=work.step_ns,
        plain_step_ns=timeline.meta.plain_step_ns,
        findings=_findings(run),
        groups=tuple(told.groups),
        places=tuple(places.found),
        calls=pack_table(calls),
        costs=pack_table(costs),
        instructions=pack_table(final.instructions, ("host", "recorded")),
        ops=pack_table(final.ops, ("device",)),
        arrivals={"host": pack(arrivals.host.reshape(-1)), "device": pack(arrivals.device.reshape(-1))},
        device_of_stream=pack(final.device_of_stream),
        step_starts=pack(final.step_starts),
        step_ends=pack(final.step_ends),
        threads=final.threads,
        engines=final.engines,
        capacity=final.capacity,
        inferred=(*final.notes, *work.notes),
        comm_factors=pack(work.factor),
    )


def _findings(run: Run) -> tuple[Finding, ...]:
    """Returns the findings in a rank's trace that may explain why the rank is late. Rules whose findings cannot explain
    this are not run."""
    # Without lines of source, all that a cause can be compared with is that data are loaded.
    rules = list(all_rules()) if len(run.timeline.lines) else [data_loading]
    asked = [rule for rule in rules if rule is not exposed_comm]
    found = without_checks(finding for rule in asked for finding in rule(run))
    return tuple(msgspec.structs.replace(finding, spans=()) for finding in found if explains(finding))


class _Work(msgspec.Struct, frozen=True, eq=False):
    """A rank's program after it has been reduced, and its collectives. The arrays `rows`, `step`, `op` and `factor`
    have one value for each collective, in the order of their launches.

    Attributes:
        reduced: The reduced program.
        rows: The row number of the collective in `timeline.device`.
        step: The index of the step that launched the collective, or -1.
        op: The index of the collective's op in the reduced program, or -1.
        factor: The length of the collective after the edits, in thousandths of its length before.
        step_ns: The mean step time in a replay without edits, in ns.
        notes: Sentences about what the edits assumed.
        thread_of: For each thread of the timeline, the thread of the program that it belongs to, or -1.
    """

    reduced: Reduced
    rows: I64
    step: I64
    op: I64
    factor: I64
    step_ns: int
    notes: tuple[str, ...]
    thread_of: I32


def _work(run: Run, edits: Sequence[str], comm: Bool) -> _Work:
    timeline, steps = run.timeline, run.steps
    program = build(timeline, steps.start, steps.end)
    step_ns = round(replay(program).mean_step_ns(program))
    subject = Subject(timeline, run.places, steps, program)
    for text in edits:
        subject = parse(text).apply(subject)
    of_program = comm[program.ops.device]
    reduced = reduce(subject.program, of_program)
    rows = program.ops.device[of_program].astype(np.int64)
    op = np.full(len(timeline.device), -1, dtype=np.int64)
    op[program.ops.device[: len(reduced.op_of)]] = reduced.op_of
    before, after = program.ops.duration, subject.program.ops.duration[: len(program.ops)]
    return _Work(
        reduced=reduced,
        rows=rows,
        step=program.step_of(program.launcher[of_program]),
        op=op[rows],
        factor=np.rint(1000 * after[of_program] / np.maximum(before[of_program], 1)).astype(np.int64),
        step_ns=step_ns,
        notes=subject.notes,
        thread_of=program.thread_of,
    )


class _Places:
    """Gives numbers to the source lines of a trace, in the order in which they are first used."""

    def __init__(self, run: Run) -> None:
        self.found: list[Where] = []
        self._run = run
        self._number: dict[int, int] = {}

    def number(self, place: int, host_rows: I64) -> int:
        """Returns the number of a source line. Returns -1 if the line is not known.

        Args:
            place: The number of the line in the run, or -1.
            host_rows: Some row numbers of `timeline.host` whose events belong to the line.
        """
        if place >= 0 and place not in self._number:
            self._number[place] = len(self.found)
            self.found.append(self._run.places.where(place, host_rows[:_SOME], None))
        return self._number.get(place, -1)

    def of(self, host_rows: I64) -> I64:
        """Returns, for each value of `host_rows`, the number of the source line to which this row of `timeline.host`
        belongs. -1 if the row is -1 or if its line is not known."""
        known = host_rows >= 0
        place = np.full(len(host_rows), -1, dtype=np.int64)
        place[known] = self._run.places.place[host_rows[known]]
        result = np.empty(len(host_rows), dtype=np.int64)
        for value, rows in groups(place):
            result[rows] = self.number(value, host_rows[rows])
        return result


class _Told:
    """What torch recorded about the collectives of a trace, such as their groups and sizes. It is looked up by row
    number of `timeline.device`."""

    def __init__(self, timeline: Timeline) -> None:
        self.groups: list[Group] = []
        self._timeline = timeline
        self._table = timeline.collectives
        self._row = np.full(len(timeline.device), -1, dtype=np.int64)
        self._row[self._table.op] = np.arange(len(self._table))
        self._config = {name: tuple(sorted(ranks)) for name, ranks in timeline.meta.groups}
        self._number: dict[tuple[str, str, int], int] = {}

    def column(self, name: str, ops: I64) -> I64:
        """Returns the value of a column of `timeline.collectives` for each device op in `ops`. -1 for ops about which
        torch recorded nothing.

        Args:
            name: The name of the column.
            ops: Row numbers of `timeline.device`.
        """
        row = self._row[ops]
        values = getattr(self._table, name)
        result = np.full(len(ops), -1, dtype=np.int64)
        result[row >= 0] = values[row[row >= 0]]
        return result

    def name(self, ops: I64) -> I64:
        """Returns, for each device op in `ops`, the index of the text that names its collective, or -1. `ops` has row
        numbers of `timeline.device`.

        If torch recorded nothing about an op, as before torch 2.1, this is the annotation around its launch, such as
        "nccl:all_to_all": the name of NCCL's kernel is the same for all that sends and receives.
        """
        name = self.column("name", ops)
        launch = self._timeline.device.launch[ops]
        if (unnamed := np.flatnonzero((name < 0) & (launch >= 0))).size:
            host = self._timeline.host
            around = by_text(host.name, lambda i: self._timeline.text(i).startswith(_ANNOTATED)) > 0
            found = nearest(host.parent, around)[launch[unnamed]]
            name[unnamed] = np.where(found >= 0, host.name[found], -1)
        return name

    def ways(self, ops: I64, rank: int) -> tuple[I64, I64]:
        """Returns which rank sends and which rank receives, for each device op in `ops`: row numbers of
        `timeline.device`. -1 if this is unknown. `rank` is the number of this trace's rank: of a send or receive, torch
        tells the other rank only (saveNcclMeta of torch/csrc/profiler/util.cpp)."""
        source, target, name = (self.column(each, ops) for each in ("source", "target", "name"))
        way = by_text(name.astype(np.int32), lambda i: _WAYS.get(self._timeline.text(i), 0))
        return (
            np.where((way == _WAYS["send"]) & (source < 0) & (target >= 0), rank, source),
            np.where((way == _WAYS["recv"]) & (target < 0) & (source >= 0), rank, target),
        )

    def group(self, ops: I64) -> I64:
        """Returns, for each device op in `ops`, the index of its process group in `groups`. `ops` has row numbers of
        `timeline.device`."""
        timeline = self._timeline
        columns = [self.column(name, ops) for name in ("group", "members", "ranks")]
        alike = np.zeros(len(ops), dtype=np.int64)
        for column in columns:
            found, which = distinct(column)
            alike = distinct(alike * len(found) + which)[1]
        result = np.empty(len(ops), dtype=np.int64)
        for _, mine in sorted(groups(alike), key=lambda each: int(each[1][0])):  # by their first op
            name, members, size = (int(column[mine[0]]) for column in columns)
            key = (timeline.text(name), timeline.text(members), size)
            if key not in self._number:
                self._number[key] = len(self.groups)
                self.groups.append(self._described(*key))
            result[mine] = self._number[key]
        return result

    def _described(self, name: str, members: str, size: int) -> Group:
        ranks = ranks_in(members)
        if not ranks or (size > 0 and len(ranks) != size):  # torch shortens long lists: "[0, 1, ..., 63]"
            ranks = self._config.get(name, ())
        if not ranks and size == self._timeline.meta.world_size and size is not None and size > 0:
            ranks = tuple(range(size))
        return Group(name, ranks, len(ranks) or size)


def ranks_in(text: str) -> tuple[int, ...]:
    """Returns the ranks in a text such as "[0, 1, 2, 3]", in ascending order. Returns () if the text is shortened ("[0,
    1, ..., 63]"), is not a list of ranks, or has more than a job may have."""
    if not text.startswith("[") or text.count(",") >= MOST_RANKS:
        return ()
    try:
        return tuple(sorted(set(from_json(text, list[_Member]))))
    except (msgspec.MsgspecError, UnicodeError):
        return ()


def _calls(run: Run, work: _Work, told: _Told, places: _Places, rank: int) -> Calls:
    timeline, rows, step = run.timeline, work.rows, work.step
    device, host = timeline.device, timeline.host
    launch = device.launch[rows].astype(np.int64)
    enqueued = device.start[rows].copy()
    enqueued[launch >= 0] = host.start[launch[launch >= 0]]
    # An op whose call is not in the file was launched before those that follow it.
    enqueued = np.minimum.accumulate(enqueued[::-1])[::-1]
    name = told.name(rows)
    said = by_text(name.astype(np.int32), lambda i: _CODE[kind_of_operation(timeline.text(i))])
    by_name = by_text(device.name[rows], lambda i: _CODE[kind_of_kernel(timeline.text(i)) or Kind.OTHER])
    position = np.full(len(rows), -1, dtype=np.int64)
    for number, mine in groups(step):
        if number >= 0:
            position[mine] = np.arange(len(mine))
    return Calls(
        op=work.op,
        group=told.group(rows),
        kind=np.where((name < 0) | (said == _CODE[Kind.OTHER]), by_name, said),
        **dict(zip(("source", "target"), told.ways(rows, rank), strict=True)),
        **{column: told.column(column, rows) for column in ("sequence", "sent", "received")},
        enqueued=enqueued,
        started=device.start[rows],
        ended=device.end[rows],
        place=places.of(launch),
        step=step,
        position=position,
        beside=_beside(timeline, rows),
    )


def _beside(timeline: Timeline, rows: I64) -> I64:
    """Returns, for each collective in `rows`, for how much of its time its device also did other work, in ns. `rows`
    has row numbers of `timeline.device`."""
    device = timeline.device
    comm = is_communication(timeline)
    result = np.zeros(len(rows), dtype=np.int64)
    for number, mine in groups(device.device[rows]):
        others = (device.device == number) & ~comm
        work = Intervals.union(device.start[others], device.end[others])
        result[mine] = work.covered(device.start[rows[mine]], device.end[rows[mine]])
    return result


def _costs(run: Run, calls: Calls, comm: Bool, part_of: I32, places: _Places) -> Costs:
    """Adds up what each source line costs in each stretch. A stretch is the part of a step from one collective's launch
    to the next. What is between two steps counts in the later one, as in the rank's own work.

    Args:
        run: The analysed trace.
        calls: The collectives of the rank.
        comm: A mask with one value for each row of `timeline.device`: True for communication.
        part_of: For each thread of the timeline, the thread of the program that it belongs to, or -1.
        places: Gives numbers to source lines.
    """
    steps = run.steps
    enqueued = [np.sort(calls.enqueued[calls.step == number]) for number in range(len(steps))]
    found: list[Costs] = []
    firsts: list[tuple[I64, I64]] = []  # places and host rows: the first rows of each place
    for began, row, kind, time, count, blocks in _spent(run, comm, part_of):
        step = np.searchsorted(steps.end, began, side="right")
        keep = np.flatnonzero((step < len(steps)) & (began >= steps.start[0]))
        stretch = np.zeros(len(began), dtype=np.int64)
        for number, mine in groups(step[keep]):
            stretch[keep[mine]] = np.searchsorted(enqueued[number], began[keep[mine]], side="right")
        place = run.places.place[row[keep]].astype(np.int64)
        firsts.append(_first_rows(place, row[keep]))
        found.append(
            _added_up(Costs(step[keep], stretch[keep], place, kind[keep], time[keep], count[keep], blocks[keep]))
        )
    costs = _added_up(_joined(found))
    worth = costs.time >= _WORTH
    costs = Costs(*(getattr(costs, name)[worth] for name in Costs.__struct_fields__))
    every_place, every_row = (np.concatenate(each) for each in zip(*firsts, strict=True))
    needed = is_in(every_place, costs.place)
    place, row = _first_rows(every_place[needed], every_row[needed])
    number_of = {value: places.number(value, row[mine]) for value, mine in groups(place)}
    numbered = replace(costs, place=by_text(costs.place.astype(np.int32), lambda value: number_of[value]))
    order = np.lexsort((numbered.kind, numbered.place, numbered.stretch, numbered.step))
    return Costs(*(getattr(numbered, name)[order] for name in Costs.__struct_fields__))


def _first_rows(place: I64, row: I64) -> tuple[I64, I64]:
    """Returns the first rows of each place, as many as tell what it is: (places, rows), by place."""
    order = order_of(place + 1, int(place.max(initial=0)) + 1)  # of unknown places: -1
    place = place[order]
    begins = np.flatnonzero(np.diff(place, prepend=-2))
    nth = np.arange(len(place)) - np.repeat(begins, np.diff(np.append(begins, len(place))))
    return place[nth < _SOME], row[order[nth < _SOME]]


def _joined(tables: Sequence[Costs]) -> Costs:
    none = np.zeros(0, dtype=np.int64)
    return Costs(*(np.concatenate([none, *(getattr(each, n) for each in tables)]) for n in Costs.__struct_fields__))


def _spent(run: Run, comm: Bool, part_of: I32) -> Iterator[tuple[I64, I64, I64, I64, I64, I64]]:
    """Yields the times of device ops and of host events, in batches. Each batch is a tuple of arrays `(begin, row,
    kind, time, count, blocks)`: the begin on the host in ns, the row number of `timeline.host`, the `Cost`, the time in
    ns, the number of ops or events, and the number of thread blocks."""
    timeline = run.timeline
    host, device = timeline.host, timeline.device

    own = np.flatnonzero(~comm & (device.launch >= 0))
    for begin in range(0, len(own), _AT_ONCE):
        some = own[begin : begin + _AT_ONCE]
        kind = np.where(device.kind[some] == DeviceKind.COPY, Cost.COPY, Cost.KERNEL)
        launch = device.launch[some].astype(np.int64)
        blocks = np.maximum(device.blocks[some], 0).astype(np.int64)
        one = np.ones(len(some), dtype=np.int64)
        yield host.start[launch], launch, kind, device.end[some] - device.start[some], one, blocks

    state = np.full(len(host), Cost.HOST, dtype=np.int8)
    state[is_asleep(timeline)] = Cost.ASLEEP
    state[is_data_loading(timeline)] = Cost.LOADING
    state[run.activity.waits.row] = Cost.WAIT
    state = _inherited(timeline, state)
    first_span = np.full(len(host), -1, dtype=np.int32)
    for from_, time, busy in host_time(timeline, part_of):
        first_span[busy[::-1]] = np.arange(len(busy) - 1, -1, -1, dtype=np.int32)  # of several, the last stays
        for begin in range(0, len(busy), _AT_ONCE):
            now = slice(begin, begin + _AT_ONCE)
            row = busy[now].astype(np.int64)
            first = (first_span[row] == np.arange(begin, begin + len(row))).astype(np.int64)
            yield from_[now], row, state[row].astype(np.int64), time[now], first, 0 * first


def _inherited(timeline: Timeline, state: I8) -> I8:
    """Returns the state (a `Cost`) of each host event. If the state of an event is HOST, the event gets the state of
    the nearest event around it whose state is not HOST.

    All events inside an event that loads data get the state LOADING, also those that sleep or wait for the device.
    """
    host = timeline.host
    if (state[host.parent[host.parent >= 0]] == Cost.HOST).all():
        return state  # only events without callees have a state of their own
    result = state.copy()
    loading = state == Cost.LOADING
    # Parents come before their callees, so a few rounds carry a state down as many levels.
    at, parent = np.arange(len(host), dtype=np.int32), host.parent
    up = parent
    for _ in range(64):
        open_ = ~loading[at] & (up >= 0)
        at, up = at[open_], up[open_]
        if not len(at):
            break
        plain = result[at] == Cost.HOST
        result[at[plain]] = state[up[plain]]
        loading[at] = state[up] == Cost.LOADING
        up = parent[up]
    result[loading] = Cost.LOADING
    return result


def _added_up(costs: Costs) -> Costs:
    """Returns one row for each step, stretch, place and kind, in this order."""
    key = distinct(costs.step)[1]
    for column in (costs.stretch, costs.place, costs.kind):
        found, which = distinct(column)
        key = key * len(found) + which
    found, key = distinct(key)  # in the order of all columns
    order = order_of(key, len(found))
    first = np.flatnonzero(np.diff(key[order], prepend=-1))
    sums = [
        np.add.reduceat(column[order], first) if len(order) else column
        for column in (costs.time, costs.count, costs.blocks)
    ]
    return Costs(*(column[order[first]] for column in (costs.step, costs.stretch, costs.place, costs.kind)), *sums)
