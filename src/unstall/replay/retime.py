"""Makes a `Timeline` of a replayed program: the events of the recorded timeline at their replayed times."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from unstall.replay.program import Code, Program, Replayed
from unstall.timeline.columns import I32, I64, Bool, Collectives, HostKind, Streams, Timeline
from unstall.timeline.grouping import groups


def retime(
    timeline: Timeline,
    program: Program,
    replayed: Replayed,
    recorded: tuple[I64, I64],
    gone: Bool,
    graphs: I32,
) -> Timeline:
    """Returns the timeline `timeline` with all events moved to their replayed times.

    An event between two instructions is moved in proportion to how the instructions around it
    moved.

    Args:
        timeline: The recorded run.
        program: The program of the run, after edits.
        replayed: The replayed times of the program.
        recorded: (starts, ends) of the instructions as recorded, in ns.
        gone: A mask of the program's ops that an edit removed.
        graphs: The kernel launches that an edit turned into graph launches, as rows of
            `timeline.host`.
    """
    host = timeline.host
    part = program.thread_of[host.thread]
    start, end = host.start.copy(), host.end.copy()
    thread = program.instructions.thread
    for number, mine in groups(thread):
        events = np.flatnonzero(part == number)
        if not len(events):
            continue
        then, now = (
            np.maximum.accumulate(np.append(0, np.stack((begun[mine], done[mine]), axis=1)))
            for begun, done in (recorded, (replayed.start, replayed.end))
        )
        for times in (start, end):
            times[events] = _moved(times[events], then, now)
    kind = host.kind.copy()
    code = program.instructions.code
    kind[graphs] = HostKind.GRAPH_LAUNCH
    moved_host = replace(host, kind=kind, start=start, end=np.maximum(end, start))

    device = timeline.device
    rows = program.ops.device
    launch = device.launch.copy()
    by = program.instructions.host[program.launcher]
    launch[rows] = np.where(by >= 0, by, launch[rows])
    op_start, op_end, stream = device.start.copy(), device.end.copy(), device.stream.copy()
    op_start[rows], op_end[rows], stream[rows] = replayed.op_start, replayed.op_end, program.ops.stream
    stays = np.ones(len(device), dtype=np.bool_)
    stays[rows[gone]] = False
    order = np.flatnonzero(stays)
    order = order[np.argsort(op_start[order], kind="stable")]
    moved_device = replace(
        device,
        **{
            name: getattr(device, name)[order]
            for name in ("kind", "device", "name", "correlation", "bytes", "direction", "host_memory")
        },
        stream=stream[order],
        start=op_start[order],
        end=op_end[order],
        launch=launch[order],
    )
    waiting = np.isin(timeline.waits.host, program.instructions.host[code != Code.CALL])
    waits = replace(
        timeline.waits,
        **{name: getattr(timeline.waits, name)[waiting] for name in timeline.waits.__struct_fields__},
    )
    return replace(
        timeline,
        host=moved_host,
        device=moved_device,
        waits=waits,
        streams=_streams(timeline, program),
        collectives=_collectives(timeline.collectives, order, len(device)),
    )


def _collectives(told: Collectives, order: I64, ops: int) -> Collectives:
    """Returns the collectives whose op was not removed. Their column `op` has the new rows of the
    ops.

    Args:
        told: The collectives.
        order: The former row of each op that remains.
        ops: The former number of ops.
    """
    now = np.full(ops, -1, dtype=np.int32)
    now[order] = np.arange(len(order))
    stays = np.flatnonzero(now[told.op] >= 0)
    columns = {name: getattr(told, name)[stays] for name in told.__struct_fields__}
    return replace(told, **columns | {"op": now[told.op[stays]]})


def _moved(times: I64, then: I64, now: I64) -> I64:
    """Maps old times to new times by linear interpolation between points. Point i moves from `then[i]` to `now[i]`.

    A time after the last point is shifted by the same amount as the last point.
    """
    at = np.clip(np.searchsorted(then, times, side="right") - 1, 0, len(then) - 1)
    onward = np.minimum(at + 1, len(then) - 1)
    length = np.maximum(then[onward] - then[at], 1)
    share = np.clip((times - then[at]) / length, 0, 1)
    inside = now[at] + np.rint(share * (now[onward] - now[at])).astype(np.int64)
    moved: I64 = np.where(times >= then[-1], times + now[-1] - then[-1], inside)
    return moved


def _streams(timeline: Timeline, program: Program) -> Streams:
    """Returns the timeline's streams together with those that an edit added. The added streams get
    the next free numbers.
    """
    streams = timeline.streams
    more = len(program.device_of_stream) - len(streams)
    numbers = int(streams.stream.max(initial=0)) + 1 + np.arange(more)
    return Streams(device=program.device_of_stream, stream=np.append(streams.stream, numbers))
