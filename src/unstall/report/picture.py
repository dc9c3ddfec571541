"""The picture of one run that the HTML report shows on its timeline, as numpy columns.

A picture has tracks, a track has lanes, and a lane has events. A *track* is a horizontal band: it
shows a stream, the calls of a thread, the Python frames of a thread, the idle time of a device, or
the steps. A *lane* is one row of a track: it shows the events of one nesting depth. Events are
stored lane by lane, and by start within a lane. So each lane is a slice of the columns, and a
binary search finds the part of a lane that is visible.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from unstall.timeline.columns import I8, I32, I64


class TrackKind(IntEnum):
    """What a track shows. The tracks of a device are drawn in the order of these numbers, and so
    are the tracks of the host.
    """

    STEPS = 0
    QUEUE = 1  # the launch queue's depth; it has no events
    IDLE = 2
    STREAM = 3
    THREAD = 4  # operators, calls and annotations
    PYTHON = 5


class EventKind(IntEnum):
    """The kinds of events that `HostKind` does not have. Their numbers are larger than those of
    `HostKind`.

    `IDLE` is idle time by the first cause in `IDLE_CAUSES`. `IDLE + i` is idle time by the cause
    with index i.
    """

    KERNEL = 15
    DEVICE_COPY = 16
    DEVICE_MEMSET = 17
    COLLECTIVE = 18
    STEP = 19
    IDLE = 20


@dataclass(frozen=True, eq=False, slots=True)
class Tracks:
    """The tracks of a picture, one row for each track, from top to bottom.

    Attributes:
        kind: What the track shows, as `TrackKind`.
        label: Index of the track's label in `Picture.strings`.
        device: The device's number; -1 for tracks of the host, and for the idle time of all devices
            together.
    """

    kind: I8
    label: I32
    device: I32

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(frozen=True, eq=False, slots=True)
class Lanes:
    """The lanes of all tracks, one row for each lane.

    Attributes:
        track: The lane's row in `Tracks`.
        depth: The nesting depth of the lane's events, counted from 0.
        first: The first row of the lane in `DrawnEvents`. Its last row is the one before `first` of
            the next lane.
    """

    track: I32
    depth: I32
    first: I32

    def __len__(self) -> int:
        return len(self.track)


@dataclass(frozen=True, eq=False, slots=True)
class DrawnEvents:
    """The events of a picture, sorted by track, depth and start. Events of one lane do not overlap,
    unless the recording is faulty or a stream runs very many ops at once.

    Attributes:
        kind: What the event is, as `HostKind` or `EventKind`.
        start: When the event begins, in ns.
        end: When the event ends, in ns.
        name: Index of the event's name in `Picture.strings`.
        place: Index of the user's source line in `Picture.strings`, or -1.
        detail: Index in `Picture.strings` of the shapes of an operator's inputs or the description
            of a copy or wait, or -1.
        stack: The row in `Frames` of the innermost frame of the event's call stack, or -1.
        launch: For an op, the row of the call that launched it, among these events. Ops of one
            graph launch share one. -1 for other events.
    """

    kind: I8
    start: I64
    end: I64
    name: I32
    place: I32
    detail: I32
    stack: I32
    launch: I32

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, eq=False, slots=True)
class Frames:
    """Call stacks as trees of frames, one row for each frame. The outermost frames are the roots.

    Attributes:
        parent: The row of the calling frame, which is smaller than the frame's own row; -1 for a
            root.
        text: Index of the frame's text in `Picture.strings`.
    """

    parent: I32
    text: I32

    def __len__(self) -> int:
        return len(self.parent)


@dataclass(frozen=True, eq=False, slots=True)
class Picture:
    """A run that is ready to be drawn. Times are in ns, counted from time 0 of the run's timeline.

    Attributes:
        strings: All texts of the picture. The other columns refer to a text by its index in
            `strings`.
        tracks: The tracks, from top to bottom.
        lanes: The lanes of the tracks.
        events: The events of the lanes.
        frames: The call stacks of the events.
        queue_time: The times at which the depth of the launch queue changes.
        queue_depth: For each such time, the number of launches that have not begun from then on.
        window: `(start, end)` of the time that the account explains. The recording may have begun
            earlier and ended later.
        notes: One sentence for each kind of event that is not drawn completely.
    """

    strings: tuple[str, ...]
    tracks: Tracks
    lanes: Lanes
    events: DrawnEvents
    frames: Frames
    queue_time: I64
    queue_depth: I32
    window: tuple[int, int]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class IdleIntervals:
    """The intervals in which devices were idle, one row for each interval.

    Attributes:
        start: When the interval begins, in ns.
        end: When the interval ends, in ns.
        cause: Index of the cause in `IDLE_CAUSES`.
        device: The device's number, or -1 if all devices were idle at once.
    """

    start: I64
    end: I64
    cause: NDArray[np.integer]
    device: NDArray[np.integer]
