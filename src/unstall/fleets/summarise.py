"""The map: a rank's trace → its `Summary`. It runs on the machine that has the trace, and keeps only the summary."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from unstall.diagnose.analyse import analyse
from unstall.diagnose.explain import notes_of
from unstall.diagnose.graphed_checks import without_checks
from unstall.diagnose.input_check import load_usable
from unstall.diagnose.rules import all_rules
from unstall.diagnose.run import Run
from unstall.errors import TraceError
from unstall.fleets.identity import identify
from unstall.fleets.reduce import reduce
from unstall.fleets.summary import Calls, Cost, Costs, Group, Summary, encode, pack, pack_table
from unstall.locate.collectives import Kind, kind_of_kernel, kind_of_operation
from unstall.locate.kinds import is_asleep, is_communication, is_data_loading
from unstall.replay.build import build
from unstall.replay.engine import replay
from unstall.result import Where
from unstall.timeline.columns import I32, I64, Bool, DeviceKind, Host, HostKind, Timeline
from unstall.timeline.grouping import by_text, groups
from unstall.timeline.intervals import Intervals
from unstall.what_if.edits import parse
from unstall.what_if.subject import Subject

KINDS = tuple(Kind)
_CODE = {kind: code for code, kind in enumerate(KINDS)}
_MOST_MEMBERS = 1 << 17
_WORTH = 1000  # ns: if a line costs less in a stretch, the cost is not kept by line


def summarise(
    path: str | Path, *, step: str | None = None, user: Sequence[str] = (), edits: Sequence[str] = ()
) -> bytes:
    """Reads a rank's trace and returns its summary, encoded.

    Args:
        path: A trace or a saved timeline.
        step: The name of the annotation around each step; see `diagnose.analyse.analyse`.
        user: Globs of the files that count as the user's code.
        edits: Edits of this rank's program, as `unstall whatif` takes them.

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
    program = build(timeline, steps.start, steps.end)
    times = replay(program)
    subject = Subject(timeline, run.places, steps, program)
    for text in edits:
        subject = parse(text).apply(subject)
    comm = is_communication(timeline)
    of_program = comm[program.ops.device]
    reduced = reduce(subject.program, of_program)
    places = _Places(run)
    told = _Told(timeline)
    rows = program.ops.device[of_program].astype(np.int64)  # in order of launch
    step = program.step_of(program.launcher[of_program])
    op = np.full(len(timeline.device), -1, dtype=np.int64)
    op[program.ops.device[: len(reduced.op_of)]] = reduced.op_of
    calls = _calls(run, rows, step, op[rows], told, places)
    factor = np.full(len(timeline.device), 1000, dtype=np.int64)
    before, after = program.ops.duration, subject.program.ops.duration[: len(program.ops)]
    factor[program.ops.device] = np.rint(1000 * after / np.maximum(before, 1))
    who = identify(timeline, path)
    findings = without_checks(finding for rule in all_rules() for finding in rule(run))
    ends = run.window[0] + np.cumsum(run.step_lengths)
    final = reduced.program
    costs = _costs(run, calls, comm, program.thread_of, places)
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
        replay_step_ns=round(times.mean_step_ns(program)),
        plain_step_ns=timeline.meta.plain_step_ns,
        accounts=run.accounts,
        findings=tuple(msgspec.structs.replace(finding, spans=()) for finding in findings),
        groups=tuple(told.groups),
        places=tuple(places.found),
        calls=pack_table(calls),
        costs=pack_table(costs),
        instructions=pack_table(final.instructions, ("host", "recorded")),
        ops=pack_table(final.ops, ("device",)),
        arrivals={
            "host": pack(reduced.arrivals.host.reshape(-1)),
            "device": pack(reduced.arrivals.device.reshape(-1)),
        },
        device_of_stream=pack(final.device_of_stream),
        step_starts=pack(final.step_starts),
        step_ends=pack(final.step_ends),
        threads=final.threads,
        engines=final.engines,
        capacity=final.capacity,
        inferred=(*final.notes, *subject.notes),
        comm_factors=pack(factor[rows]),
    )


class _Places:
    """Numbers the places of a run's lines, in the order in which they are first used."""

    def __init__(self, run: Run) -> None:
        self.found: list[Where] = []
        self._run = run
        self._number: dict[int, int] = {}

    def of(self, host_rows: I64) -> I64:
        """Returns the number of the place of each host row. It is -1 for the row -1, and for unknown places."""
        places = self._run.places
        known = host_rows >= 0
        place = np.full(len(host_rows), -1, dtype=np.int64)
        place[known] = places.place[host_rows[known]]
        result = np.full(len(host_rows), -1, dtype=np.int64)
        for value, rows in groups(place):
            if value < 0:
                continue
            if value not in self._number:
                self._number[value] = len(self.found)
                self.found.append(places.where(value, host_rows[rows[:64]], None))
            result[rows] = self._number[value]
        return result


class _Told:
    """What torch recorded about the collectives of a trace, by device row."""

    def __init__(self, timeline: Timeline) -> None:
        self.groups: list[Group] = []
        self._timeline = timeline
        self._table = timeline.collectives
        self._row = np.full(len(timeline.device), -1, dtype=np.int64)
        self._row[self._table.op] = np.arange(len(self._table))
        self._config = {name: tuple(sorted(ranks)) for name, ranks in timeline.meta.groups}
        self._number: dict[tuple[str, str, int], int] = {}

    def column(self, name: str, ops: I64) -> I64:
        """Returns a column of `Timeline.collectives` for device rows; -1 where nothing is known."""
        row = self._row[ops]
        values = getattr(self._table, name)
        result = np.full(len(ops), -1, dtype=np.int64)
        result[row >= 0] = values[row[row >= 0]]
        return result

    def group(self, ops: I64) -> I64:
        """Returns the index into `groups` for each op."""
        timeline = self._timeline
        columns = [self.column(name, ops) for name in ("group", "members", "ranks")]
        result = np.empty(len(ops), dtype=np.int64)
        for number, (name, members, size) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            key = (timeline.text(name), timeline.text(members), size)
            if key not in self._number:
                self._number[key] = len(self.groups)
                self.groups.append(self._described(*key))
            result[number] = self._number[key]
        return result

    def _described(self, name: str, members: str, size: int) -> Group:
        ranks = ranks_in(members)
        if not ranks or (size > 0 and len(ranks) != size):  # torch shortens long lists: "[0, 1, ..., 63]"
            ranks = self._config.get(name, ())
        if not ranks and size == self._timeline.meta.world_size and size is not None and size > 0:
            ranks = tuple(range(size))
        return Group(name, ranks, len(ranks) or size)


def ranks_in(text: str) -> tuple[int, ...]:
    """Returns the ranks in a text such as "[0, 1, 2, 3]". Returns none if the text is shortened or is no such list."""
    if not text.startswith("[") or len(text) > 16 * _MOST_MEMBERS:
        return ()
    try:
        ranks = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ()
    if not isinstance(ranks, list) or not all(type(rank) is int and 0 <= rank < _MOST_MEMBERS for rank in ranks):
        return ()
    return tuple(sorted(set(ranks)))


def _calls(run: Run, rows: I64, step: I64, op: I64, told: _Told, places: _Places) -> Calls:
    timeline = run.timeline
    device, host = timeline.device, timeline.host
    launch = device.launch[rows].astype(np.int64)
    enqueued = device.start[rows].copy()
    enqueued[launch >= 0] = host.start[launch[launch >= 0]]
    # An op whose call is not in the file was launched before those that follow it.
    enqueued = np.minimum.accumulate(enqueued[::-1])[::-1]
    name = told.column("name", rows)
    said = by_text(name.astype(np.int32), lambda i: _CODE[kind_of_operation(timeline.text(i))])
    by_name = by_text(device.name[rows], lambda i: _CODE[kind_of_kernel(timeline.text(i)) or Kind.OTHER])
    position = np.full(len(rows), -1, dtype=np.int64)
    for number, mine in groups(step):
        if number >= 0:
            position[mine] = np.arange(len(mine))
    return Calls(
        op=op,
        group=told.group(rows),
        kind=np.where((name < 0) | (said == _CODE[Kind.OTHER]), by_name, said),
        **{column: told.column(column, rows) for column in ("sequence", "source", "target", "sent", "received")},
        enqueued=enqueued,
        started=device.start[rows],
        ended=device.end[rows],
        place=places.of(launch),
        step=step,
        position=position,
        beside=_beside(timeline, rows),
    )


def _beside(timeline: Timeline, rows: I64) -> I64:
    """Returns, for each collective, how long its device also did other work, in ns."""
    device = timeline.device
    comm = is_communication(timeline)
    result = np.zeros(len(rows), dtype=np.int64)
    for number, mine in groups(device.device[rows]):
        others = (device.device == number) & ~comm
        work = Intervals.union(device.start[others], device.end[others])
        result[mine] = work.covered(device.start[rows[mine]], device.end[rows[mine]])
    return result


def _costs(run: Run, calls: Calls, comm: Bool, part_of: I32, places: _Places) -> Costs:
    """Adds up what each line costs in each stretch. `part_of` is `Program.thread_of`."""
    timeline = run.timeline
    host, device = timeline.host, timeline.device
    parts: list[tuple[I64, I64, I64, I64, I64, I64]] = []  # time at which it began, host row, kind, ns, count, blocks

    own = np.flatnonzero(~comm & (device.launch >= 0))
    kind = np.where(device.kind[own] == DeviceKind.COPY, Cost.COPY, Cost.KERNEL)
    launch = device.launch[own].astype(np.int64)
    blocks = np.maximum(device.blocks[own], 0)
    one = np.ones(len(own), dtype=np.int64)
    parts.append((host.start[launch], launch, kind, device.end[own] - device.start[own], one, blocks))

    waits = run.activity.waits.row.astype(np.int64)
    state = np.full(len(host), Cost.HOST, dtype=np.int64)
    state[is_asleep(timeline)] = Cost.ASLEEP
    state[is_data_loading(timeline)] = Cost.LOADING
    state[waits] = Cost.WAIT
    from_, spent, busy = host_time(timeline, part_of)
    first = np.zeros(len(busy), dtype=np.int64)
    first[np.unique(busy, return_index=True)[1]] = 1
    parts.append((from_, busy, _inherited(timeline, state)[busy], spent, first, 0 * first))

    began, row, kind, time, count, blocks = (np.concatenate(column) for column in zip(*parts, strict=True))
    steps = run.steps
    step = np.searchsorted(steps.start, began, side="right") - 1
    inside = (step >= 0) & (began < steps.end[np.maximum(step, 0)])
    stretch = np.zeros(len(began), dtype=np.int64)
    for number in range(len(steps)):
        mine = np.flatnonzero(inside & (step == number))
        stretch[mine] = np.searchsorted(np.sort(calls.enqueued[calls.step == number]), began[mine], side="right")
    keep = np.flatnonzero(inside)
    place = places.of(row[keep])
    return _added_up(step[keep], stretch[keep], place, kind[keep], time[keep], count[keep], blocks[keep])


def host_time(timeline: Timeline, part_of: I32) -> tuple[I64, I64, I64]:
    """Splits the host's time among its events: at any time, the one that began last is at work.

    Threads that take turns, such as autograd's and its caller's, share their time: while one works, the other waits.

    Args:
        timeline: The run.
        part_of: By thread: its thread in the program, which is the same for threads that take turns; -1 for none.

    Returns:
        (start, time, row): spans in ns, sorted by start for each part, and the host row that each belongs to.
    """
    host = timeline.host
    of_thread = dict(groups(np.where((host.end > host.start) & (host.kind != HostKind.OVERHEAD), host.thread, -1)))
    found: list[tuple[I64, I64, I64]] = []
    for part, threads in groups(part_of.astype(np.int64)):
        alone = [[thread] for thread in threads.tolist()] if part < 0 else [threads.tolist()]
        for each in alone:
            found += _split(host, [of_thread[thread] for thread in each if thread in of_thread])
    if not found:
        none = np.zeros(0, dtype=np.int64)
        return none, none, none
    start, time, row = (np.concatenate(column) for column in zip(*found, strict=True))
    return start, time, row


def _split(host: Host, threads: list[I64]) -> list[tuple[I64, I64, I64]]:
    """Returns the spans of the host rows of each of the threads, which share their time."""
    if not threads:
        return []
    turns = [_innermost(host, rows) for rows in threads]
    times = turns[0][0] if len(turns) == 1 else np.unique(np.concatenate([time for time, _ in turns]))
    owner = np.full(len(times), -1, dtype=np.int64)
    for time, row in turns:
        at = np.searchsorted(time, times, side="right") - 1
        other = np.where(at >= 0, row[np.maximum(at, 0)], -1)
        begun = np.where(owner >= 0, host.start[np.maximum(owner, 0)], np.iinfo(np.int64).min)
        owner = np.where((other >= 0) & (host.start[np.maximum(other, 0)] >= begun), other, owner)
    changes = np.flatnonzero(np.diff(owner, prepend=-2) != 0)
    length = np.diff(np.append(times[changes], times[-1]))
    spent = np.flatnonzero((owner[changes] >= 0) & (length > 0))
    return [(times[changes][spent], length[spent], owner[changes][spent])]


def _innermost(host: Host, rows: I64) -> tuple[I64, I64]:
    """Returns (time, row): from each time on, the innermost open event of one thread is `row`; -1 for none."""
    time = np.concatenate((host.end[rows], host.start[rows]))
    opens = np.repeat([0, 1], len(rows))
    parent = host.parent[rows].astype(np.int64)
    after = np.concatenate((parent, rows))
    # At one time, events end first, inner ones before outer ones. A caller stands before its callees.
    order = np.lexsort((np.concatenate((-rows, rows)), opens, time))
    last = np.append(np.diff(time[order]) != 0, True)
    return time[order][last], after[order][last]


def _inherited(timeline: Timeline, state: I64) -> I64:
    """Returns the state of each host event: its own, or that of the nearest event around it which is no plain HOST.

    All that a loader of data does is loading, also if it sleeps or waits for the device.
    """
    host = timeline.host
    result = state.copy()
    loading = state == Cost.LOADING
    # Parents come before their callees, so a few rounds carry a state down as many levels.
    at = np.arange(len(host))
    parent = host.parent.astype(np.int64)
    up = parent.copy()
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


def _added_up(step: I64, stretch: I64, place: I64, kind: I64, time: I64, count: I64, blocks: I64) -> Costs:
    order = np.lexsort((kind, place, stretch, step))
    keys = np.stack([step, stretch, place, kind])[:, order]
    first = np.flatnonzero(np.append(True, (np.diff(keys) != 0).any(axis=0))[: len(order)])
    sums = [np.add.reduceat(column[order], first) if len(order) else column for column in (time, count, blocks)]
    keys = keys[:, first]
    worth = np.flatnonzero(sums[0] >= _WORTH)
    return Costs(*(column[worth] for column in (*keys, *sums)))


def edits_parse(edits: Sequence[str]) -> None:
    """Raises UsageError if one of the edits does not exist or is not valid."""
    for text in edits:
        parse(text)
