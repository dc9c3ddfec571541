"""Lays out the picture of a timeline: which tracks and lanes it has, and which events are drawn."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unstall.locate.kinds import is_communication
from unstall.report.backward_frames import cut_by_step
from unstall.report.nesting import depth_within, lane_of_overlap, shallowest
from unstall.report.picture import DrawnEvents, EventKind, Frames, IdleIntervals, Lanes, Picture, TrackKind, Tracks
from unstall.report.texts import Texts, described_copies, described_waits
from unstall.result import IDLE_CAUSES
from unstall.timeline.columns import I32, I64, Bool, HostKind, Timeline

EVENT_LIMIT = 2_000_000
"""The largest number of events that a picture has unless its maker says otherwise."""
_KINETOS_LABEL = re.compile(r"thread (\d+) \((.*)\)")


def picture_of(
    timeline: Timeline,
    *,
    window: tuple[int, int],
    idle: IdleIntervals,
    queue: tuple[I64, NDArray[np.integer]],
    steps: tuple[I64, I64],
    host_place: I32 | None = None,
    places: Sequence[str] = (),
    limit: int = EVENT_LIMIT,
) -> Picture:
    """Makes the picture of a run.

    If the run has more than `limit` events, some are left out: first the deepest Python frames,
    then the deepest calls, then the shortest ops.

    Args:
        timeline: The run.
        window: `(start, end)` in ns of the time that the account explains.
        idle: The intervals in which devices were idle.
        queue: `(times, depths)` of the launch queue: from each time in ns on, the number of
            launches that have not begun.
        steps: `(starts, ends)` of the steps in ns.
        host_place: For each row of `timeline.host`, the index of its source line in `places`. None
            if source lines are unknown.
        places: The source lines as text.
        limit: The largest number of events to draw.
    """
    host, device = timeline.host, timeline.device
    texts = Texts(timeline.strings)
    place_of_host = texts.add_all(places)[host_place] if host_place is not None else _none(len(host))

    is_python = np.asarray(host.kind == HostKind.PYTHON)
    depth = np.where(is_python, depth_within(host.parent, is_python), depth_within(host.parent, ~is_python))
    is_drawn = _device_ops_drawn(device.end - device.start, limit)
    room = limit - int(is_drawn.sum()) - len(idle.start) - len(steps[0])
    is_host_drawn = _host_events_drawn(depth, is_python, max(room, 0))

    layout = _Layout(texts)
    layout.add_steps(*steps)
    layout.add_devices(timeline, idle, is_drawn, place_of_host, with_queue=len(queue[0]) > 0)
    layout.add_threads(timeline, depth, is_python, is_host_drawn, place_of_host, steps[0])
    tracks, lanes, events, frames = layout.finish(timeline)
    return Picture(
        strings=texts.strings(),
        tracks=tracks,
        lanes=lanes,
        events=events,
        frames=frames,
        queue_time=queue[0],
        queue_depth=np.asarray(queue[1], np.int32),
        window=window,
        notes=_notes(is_drawn, is_host_drawn, is_python, limit),
    )


def _none(length: int) -> I32:
    return np.full(length, -1, np.int32)


def _device_ops_drawn(duration: I64, limit: int) -> Bool:
    is_drawn = np.ones(len(duration), np.bool_)
    if len(duration) > limit:
        is_drawn[np.argpartition(-duration, limit)[limit:]] = False
    return is_drawn


def _host_events_drawn(depth: I32, is_python: Bool, room: int) -> Bool:
    is_drawn = ~is_python
    if is_drawn.sum() > room:
        is_drawn[is_drawn] = shallowest(depth[is_drawn], room)
        return is_drawn
    is_drawn[is_python] = shallowest(depth[is_python], room - int(is_drawn.sum()))
    return is_drawn


def _notes(is_drawn: Bool, is_host_drawn: Bool, is_python: Bool, limit: int) -> tuple[str, ...]:
    dropped = (
        ("of the deepest Python frames", int((is_python & ~is_host_drawn).sum())),
        ("of the deepest calls", int((~is_python & ~is_host_drawn).sum())),
        ("of the shortest device ops", int((~is_drawn).sum())),
    )
    return tuple(
        f"{count:,} {what} are not drawn, to keep the page within {limit:,} events; all figures count them."
        for what, count in dropped
        if count
    )


class _Layout:
    """Collects the tracks of a picture and their events, and sorts the events into lanes when all are collected."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._tracks: list[tuple[int, int, int]] = []  # kind, label, device
        self._parts: list[dict[str, NDArray[np.integer]]] = []

    def _track(self, kind: TrackKind, label: str, device: int = -1) -> int:
        self._tracks.append((kind, self._texts.add(label), device))
        return len(self._tracks) - 1

    def _add(self, **columns: NDArray[np.integer] | int) -> None:
        """Adds events. A column is an array, or one number for all events.

        If the column `depth` is missing, the depth is 0. Of the columns `place`, `detail`, `stack`,
        `launch` and `host`, those that are missing are filled with -1, for unknown.
        """
        length = next(len(column) for column in columns.values() if isinstance(column, np.ndarray))
        part = {name: np.broadcast_to(np.asarray(column), (length,)) for name, column in columns.items()}
        for name in ("depth", "place", "detail", "stack", "launch", "host"):
            part.setdefault(name, np.broadcast_to(np.asarray(0 if name == "depth" else -1), (length,)))
        self._parts.append(part)

    def add_steps(self, start: I64, end: I64) -> None:
        if not len(start):
            return
        names = self._texts.add_all([f"step {number}" for number in range(1, len(start) + 1)])
        track = self._track(TrackKind.STEPS, "steps")
        self._add(track=track, kind=int(EventKind.STEP), start=start, end=end, name=names)

    def add_devices(
        self, timeline: Timeline, idle: IdleIntervals, is_drawn: Bool, place_of_host: I32, *, with_queue: bool
    ) -> None:
        device = timeline.device
        if with_queue:
            self._track(TrackKind.QUEUE, "launch queue")
        devices = np.unique(timeline.streams.device).tolist()
        causes = self._texts.add_all([f"idle: {cause}" for cause in IDLE_CAUSES])
        track_of_stream = _none(len(timeline.streams))
        for number in sorted({*devices, *np.unique(idle.device).tolist()}):
            if number == -1 and len(devices) == 1:
                continue  # a single device is the same as all together
            of_device = np.flatnonzero(idle.device == number)
            if len(of_device):
                self._add(
                    track=self._track(
                        TrackKind.IDLE, "all GPUs idle" if number == -1 else f"GPU {number} idle", number
                    ),
                    kind=EventKind.IDLE + idle.cause[of_device],
                    start=idle.start[of_device],
                    end=idle.end[of_device],
                    name=causes[idle.cause[of_device]],
                )
            for stream in np.flatnonzero(timeline.streams.device == number):
                label = f"GPU {number} stream {timeline.streams.stream[stream]}"
                track_of_stream[stream] = self._track(TrackKind.STREAM, label, number)

        rows = np.flatnonzero(is_drawn)
        kind = (EventKind.KERNEL + device.kind[rows]).astype(np.int8)
        kind[is_communication(timeline)[rows]] = EventKind.COLLECTIVE
        launch = device.launch[rows]
        self._add(
            track=track_of_stream[device.stream[rows]],
            depth=lane_of_overlap(device.stream[rows], device.start[rows], device.end[rows]),
            kind=kind,
            start=device.start[rows],
            end=device.end[rows],
            name=device.name[rows],
            detail=described_copies(self._texts, device, rows),
            place=_through(place_of_host, launch),
            stack=_through(timeline.host.stack, launch),
            launch=launch,
        )

    def add_threads(
        self, timeline: Timeline, depth: I32, is_python: Bool, is_drawn: Bool, place_of_host: I32, step_starts: I64
    ) -> None:
        host = timeline.host
        threads = _threads_in_order(timeline)
        detail = described_waits(self._texts, timeline)
        for kind, is_of_kind in ((TrackKind.THREAD, ~is_python), (TrackKind.PYTHON, is_python)):
            rows = np.flatnonzero(is_of_kind & is_drawn)
            start, end = host.start[rows], host.end[rows]
            if kind == TrackKind.PYTHON:
                rows, start, end = cut_by_step(timeline, rows, step_starts)
            has_rows = np.bincount(host.thread[rows], minlength=len(timeline.threads)) > 0
            track = _none(len(timeline.threads))
            for thread in threads[has_rows[threads]]:
                label = _thread_label(timeline, int(thread))
                track[thread] = self._track(kind, f"Python, {label}" if kind == TrackKind.PYTHON else label)
            self._add(
                track=track[host.thread[rows]],
                depth=depth[rows],
                kind=host.kind[rows],
                start=start,
                end=end,
                name=host.name[rows],
                detail=detail[rows],
                place=place_of_host[rows],
                stack=host.stack[rows],
                host=rows,
            )

    def finish(self, timeline: Timeline) -> tuple[Tracks, Lanes, DrawnEvents, Frames]:
        columns = {name: np.concatenate([part[name] for part in self._parts]) for name in self._parts[0]}
        order = np.lexsort((columns["start"], columns["depth"], columns["track"]))
        columns = {name: column[order] for name, column in columns.items()}

        event_of_host = _none(len(timeline.host))
        is_host = columns["host"] >= 0
        event_of_host[columns["host"][is_host]] = np.flatnonzero(is_host)
        frames, stack = _frames(timeline, columns["stack"], self._texts)
        tracks = np.array(self._tracks, np.int32).reshape(-1, 3)

        track, depth = columns["track"], columns["depth"]
        is_first = np.ones(len(track), np.bool_)
        is_first[1:] = (np.diff(track) != 0) | (np.diff(depth) != 0)
        first = np.flatnonzero(is_first)
        renumber = self._texts.keep(tracks[:, 1], columns["name"], columns["place"], columns["detail"], frames.text)
        return (
            Tracks(tracks[:, 0].astype(np.int8), renumber[tracks[:, 1]], tracks[:, 2]),
            Lanes(track[first].astype(np.int32), depth[first].astype(np.int32), first.astype(np.int32)),
            DrawnEvents(
                kind=columns["kind"].astype(np.int8),
                start=columns["start"].astype(np.int64),
                end=columns["end"].astype(np.int64),
                name=renumber[columns["name"]],
                place=renumber[columns["place"]],
                detail=renumber[columns["detail"]],
                stack=stack,
                launch=_through(event_of_host, columns["launch"]),
            ),
            Frames(frames.parent, renumber[frames.text]),
        )


def _through(column: I32, row: NDArray[np.integer]) -> I32:
    """Returns the value of `column` at each row number in `row`, and -1 for a row number of -1. If
    `column` is empty, returns -1 for all.
    """
    if not len(column):
        return _none(len(row))
    return np.where(row >= 0, column[row], -1).astype(np.int32)


def _threads_in_order(timeline: Timeline) -> I32:
    """Returns the threads' rows in `timeline.threads`, in the order in which the threads began.

    Threads that launch work on a device come before all other threads.
    """
    host = timeline.host
    is_launch = np.isin(host.kind, (HostKind.LAUNCH, HostKind.GRAPH_LAUNCH, HostKind.COPY))
    launches = np.bincount(host.thread[is_launch], minlength=len(timeline.threads))
    begin = np.full(len(timeline.threads), np.iinfo(np.int64).max)
    np.minimum.at(begin, host.thread, host.start)
    return np.lexsort((begin, launches == 0)).astype(np.int32)


def _thread_label(timeline: Timeline, thread: int) -> str:
    name = _KINETOS_LABEL.sub(r"\2 \1", timeline.text(int(timeline.threads.name[thread])))
    number = timeline.text(int(timeline.threads.thread[thread]))
    return name if number in name else f"{name or 'thread'} {number}"


def _frames(timeline: Timeline, stack: NDArray[np.integer], texts: Texts) -> tuple[Frames, I32]:
    """Returns `(frames, rows)`.

    `frames` has all frames of the given stacks. `rows` has, for each element of `stack`, its
    innermost frame's row in `frames`, or -1 if the element is -1.

    Args:
        timeline: The run.
        stack: For each event, its row in `timeline.stacks`, or -1.
        texts: The table to which the texts of the frames are added.
    """
    stacks, lines = timeline.stacks, timeline.lines
    is_used = np.zeros(len(stacks), np.bool_)
    fresh = np.unique(stack[stack >= 0])
    while len(fresh):
        is_used[fresh] = True
        parents = np.unique(stacks.parent[fresh])
        fresh = parents[(parents >= 0) & ~is_used[parents]]
    rows = np.flatnonzero(is_used)
    row_of = np.full(len(stacks), -1, np.int32)
    row_of[rows] = np.arange(len(rows))
    used_lines, line = np.unique(stacks.line[rows], return_inverse=True)
    text = texts.add_all(
        [
            _frame_text(timeline, *fields)
            for fields in zip(
                lines.file[used_lines].tolist(),
                lines.line[used_lines].tolist(),
                lines.function[used_lines].tolist(),
                strict=True,
            )
        ]
    )
    return Frames(_through(row_of, stacks.parent[rows]), text[line]), _through(row_of, stack)


def _frame_text(timeline: Timeline, file: int, line: int, function: int) -> str:
    place = timeline.text(file) + (f":{line}" if line >= 0 else "")
    return " ".join(part for part in (place, timeline.text(function)) if part)
