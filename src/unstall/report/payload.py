"""The binary format in which the HTML page holds a picture of a run. The page compresses it
further.

The format has three parts: the length of the header (uint32, little-endian), the header as JSON,
and the columns of the picture. The values of a column are stored as differences from the column's
smallest value. If a column rises, the differences between successive values take the place of the
values. The bytes of a column are stored plane by plane: first the lowest byte of each value, then
the next byte of each value, and so on. Most planes have few distinct bytes, so they compress well
with deflate. `web/src/decode.ts` reads this format.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstall.report.picture import Picture

_RISING = {"event.start", "lane.first", "queue.time"}


def pack_picture(picture: Picture, scrub: Callable[[str], str] | None = None) -> bytes:
    """Returns the picture in the binary format of this module. If `scrub` is given, each text of
    the picture is replaced by what `scrub` returns for it.
    """
    events, lanes, tracks, frames = picture.events, picture.lanes, picture.tracks, picture.frames
    columns: dict[str, NDArray[np.integer[Any]]] = {
        "track.kind": tracks.kind,
        "track.label": tracks.label,
        "track.device": tracks.device,
        "lane.track": lanes.track,
        "lane.depth": lanes.depth,
        "lane.first": lanes.first,
        "event.kind": events.kind,
        "event.start": events.start,
        "event.duration": events.end - events.start,
        "event.name": events.name,
        "event.place": events.place,
        "event.detail": events.detail,
        "event.stack": events.stack,
        "event.launch": events.launch,
        "frame.parent": frames.parent,
        "frame.text": frames.text,
        "queue.time": picture.queue_time,
        "queue.depth": picture.queue_depth,
    }
    packed = {name: pack_column(column, rising=name in _RISING) for name, column in columns.items()}
    header = {
        "columns": [[name, *fields] for name, (fields, _) in packed.items()],
        "strings": [scrub(text) if scrub else text for text in picture.strings],
        "window": picture.window,
        "notes": picture.notes,
    }
    head = json.dumps(header, separators=(",", ":"), default=int).encode()
    return struct.pack("<I", len(head)) + head + b"".join(planes for _, planes in packed.values())


def pack_column(column: NDArray[np.integer[Any]], *, rising: bool) -> tuple[tuple[int, int, int, bool], bytes]:
    """Returns a column of integers in the binary format of this module, as `(fields, planes)`.

    `fields` is `(length, bytes per value, smallest value, rising)`. `planes` has the bytes of all
    values after the smallest value is subtracted: first the lowest byte of each value, then the
    next byte of each value, and so on. If `rising` is True, the differences between successive
    values take the place of the values.
    """
    values = column.astype(np.int64)
    if rising:
        values = np.diff(values, prepend=0)
    if not len(values):
        return (0, 0, 0, rising), b""
    base = int(values.min())
    above = (values - base).astype("<u8")
    width = (int(above.max()).bit_length() + 7) // 8
    planes = above.view(np.uint8).reshape(-1, 8)[:, :width].T
    return (len(values), width, base, rising), planes.tobytes()
