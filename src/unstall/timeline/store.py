"""The file of a saved timeline: a zip file of .npy columns and one JSON header. It is safe to open
one from an untrusted source.

Nothing in the file is unpickled. Every column is checked before it is used: its type, its length,
and whether each index in it is in range.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from enum import IntEnum
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from unstall.decoding import from_json
from unstall.errors import TraceError
from unstall.figures import MOST_NS
from unstall.files import write_atomically
from unstall.timeline.columns import (
    ClockReads,
    Collectives,
    CopyDirection,
    Dependencies,
    Device,
    DeviceKind,
    FaultKind,
    Faults,
    Held,
    Host,
    HostKind,
    HostMemory,
    Lines,
    Memory,
    Meta,
    RaceKind,
    Races,
    Stacks,
    Streams,
    Threads,
    Timeline,
    Uploads,
    WaitKind,
    Waits,
)
from unstall.timeline.limits import (
    ALWAYS_UNPACKED_HEADER_BYTES,
    ALWAYS_UNPACKED_TIMELINE_BYTES,
    MOST_HEADER_EXPANSION,
    MOST_TIMELINE_BYTES,
    MOST_TIMELINE_EXPANSION,
)

SCHEMA = "unstall.timeline/1"
_HEADER = "timeline.json"
_FURTHEST_NS = 2**54  # from the run's zero
_TABLES: dict[str, type[Any]] = {
    "host": Host,
    "device": Device,
    "waits": Waits,
    "threads": Threads,
    "streams": Streams,
    "lines": Lines,
    "stacks": Stacks,
    "memory": Memory,
    "races": Races,
    "faults": Faults,
    "held": Held,
    "collectives": Collectives,
    "dependencies": Dependencies,
    "uploads": Uploads,
    "clock_reads": ClockReads,
}
_NOT_ALWAYS: dict[str, Any] = {
    "races": Races.none,
    "faults": Faults.none,
    "held": Held.none,
    "collectives": Collectives.none,
    "dependencies": Dependencies.none,
    "uploads": Uploads.none,
    "clock_reads": ClockReads.none,
}  # tables that files of older versions lack
# Columns that files of older versions lack; -1 stands in, or True.
_NEWER_COLUMNS = frozenset(
    {
        *("lines.digest", "device.blocks", "device.share", "memory.address", "clock_reads.of_host"),
        *("collectives.members", "collectives.sequence", "collectives.source", "collectives.target"),
    }
)
_TEXT = "strings"
_UNREADABLE = (
    *(OSError, KeyError, ValueError, EOFError, RecursionError, MemoryError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, msgspec.MsgspecError),
)
# What each index column points into.
_POINTS_INTO = {
    "host": {
        "thread": "threads",
        "name": _TEXT,
        "parent": "host",
        "op": "host",
        "forward": "host",
        "stack": "stacks",
        "shapes": _TEXT,
    },
    "device": {"stream": "streams", "name": _TEXT, "launch": "host"},
    "waits": {"host": "host", "stream": "streams", "record": "host", "on_stream": "streams"},
    "threads": {"process": _TEXT, "thread": _TEXT, "name": _TEXT},
    "lines": {"file": _TEXT, "function": _TEXT},
    "stacks": {"parent": "stacks", "line": "lines"},
    "races": {"earlier": "host", "later": "host", "earlier_stream": "streams", "later_stream": "streams"},
    "faults": {"call": "host", "replay": "host", "noticed": "host", "stream": "streams", "details": _TEXT},
    "held": {"call": "host"},
    "collectives": {"op": "device", "name": _TEXT, "group": _TEXT, "members": _TEXT},
    "dependencies": {"earlier": "host", "later": "host"},
    "clock_reads": {"line": "lines"},
    "uploads": {
        "call": "host",
        "previous": "uploads",
        "used_before": "host",
        "first_use": "host",
        "last_use": "host",
    },
}
_NEVER_NONE = frozenset(
    {
        "host.thread",
        "host.name",
        "device.stream",
        "device.name",
        "waits.host",
        "lines.file",
        "lines.function",
        "stacks.line",
        "dependencies.earlier",
        "dependencies.later",
        "collectives.op",
        "collectives.name",
        "uploads.call",
        "clock_reads.line",
    }
)
_KINDS: dict[str, dict[str, type[IntEnum]]] = {
    "host": {"kind": HostKind},
    "device": {"kind": DeviceKind, "direction": CopyDirection, "host_memory": HostMemory},
    "waits": {"kind": WaitKind},
    "races": {"kind": RaceKind},
    "faults": {"kind": FaultKind},
}


class _Header(msgspec.Struct):
    schema: str
    strings: list[str]
    meta: Meta


def save(timeline: Timeline, path: Path) -> None:
    """Writes a timeline to a file. An existing file is replaced only when the new one is complete.

    Raises:
        UsageError: The file cannot be written.
    """
    write_atomically(path, packed(timeline))


def packed(timeline: Timeline) -> bytes:
    """Returns the bytes of the file in which a timeline is saved."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(_HEADER, msgspec.json.encode(_Header(SCHEMA, list(timeline.strings), timeline.meta)))
        for table, columns in timeline.tables.items():
            for column in columns.__struct_fields__:
                buffer = io.BytesIO()
                npy.write_array(buffer, getattr(columns, column), allow_pickle=False)
                archive.writestr(f"{table}.{column}.npy", buffer.getvalue())
    return file.getvalue()


def load(path: Path) -> Timeline:
    """Reads a saved timeline.

    Raises:
        TraceError: The file is not a saved timeline, is damaged, or comes from a version with
            another schema.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            _check_size(archive, path)
            header = from_json(archive.read(_HEADER), _Header)
            if header.schema != SCHEMA:
                raise TraceError(f"{path}: a timeline of schema {header.schema!r}; this version reads {SCHEMA!r}")
            tables = {name: _table(archive, name, cls) for name, cls in _TABLES.items()}
    except _UNREADABLE as error:
        raise TraceError(f"{path}: not a whole saved timeline ({error}); save it again from the trace") from None
    plain_ns = header.meta.plain_step_ns
    if plain_ns is not None and not 0 < plain_ns < MOST_NS:
        raise TraceError(f"{path}: meta.plain_step_ns is {plain_ns}, which is no time")
    if not all(0 <= count < 2**31 for count in header.meta.multiprocessors):
        raise TraceError(f"{path}: meta.multiprocessors holds what is no count")
    timeline = Timeline(strings=tuple(header.strings), meta=header.meta, **tables)
    _check_indices(timeline, path)
    return timeline


def _check_size(archive: zipfile.ZipFile, path: Path) -> None:
    whole = sum(info.file_size for info in archive.infolist())
    size = max(path.stat().st_size, 1)
    most = min(MOST_TIMELINE_BYTES, size * MOST_TIMELINE_EXPANSION + ALWAYS_UNPACKED_TIMELINE_BYTES)
    names = archive.getinfo(_HEADER).file_size
    if whole > most:
        raise TraceError(f"{path}: claims to unpack to {whole:,} bytes from {size:,}; refused")
    if names > size * MOST_HEADER_EXPANSION + ALWAYS_UNPACKED_HEADER_BYTES:
        raise TraceError(f"{path}: its names claim to unpack to {names:,} bytes from {size:,}; refused")


def _table(archive: zipfile.ZipFile, name: str, cls: type[Any]) -> Any:
    if name in _NOT_ALWAYS and not any(member.startswith(f"{name}.") for member in archive.namelist()):
        return _NOT_ALWAYS[name]()
    columns: dict[str, NDArray[Any]] = {}
    members = frozenset(archive.namelist())
    for column, kind in cls.dtypes().items():
        member, dtype = f"{name}.{column}.npy", np.dtype(kind)
        if f"{name}.{column}" in _NEWER_COLUMNS and member not in members:
            columns[column] = np.full(len(next(iter(columns.values()))), -1, dtype)
        else:
            columns[column] = _column(archive.read(member), dtype, member)
    if len({len(array) for array in columns.values()}) > 1:
        raise ValueError(f"the columns of {name} differ in length")
    return cls(**columns)


# https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, as numpy writes a column; its own reader
# would evaluate the header as Python.
_NPY = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '(...)', 'fortran_order': False, 'shape': \((\d+),\), \} *\n", re.DOTALL
)


def _column(member: bytes, dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    header = _NPY.match(member)
    if not header or header[1].decode("latin-1") != npy.dtype_to_descr(dtype):
        raise ValueError(f"{name} is no column of {dtype}")
    if int(header[2]) * dtype.itemsize != len(member) - header.end():
        raise ValueError(f"{name} is not as long as it says")
    column = np.frombuffer(member, dtype, offset=header.end())
    return column if column.flags.aligned else column.copy()  # numpy pads the header, others may not


def _check_indices(timeline: Timeline, path: Path) -> None:
    tables = timeline.tables
    for name, columns in _POINTS_INTO.items():
        for column, target in columns.items():
            size = len(timeline.strings) if target == _TEXT else len(tables[target])
            least = 0 if f"{name}.{column}" in _NEVER_NONE else -1
            _check_range(timeline, name, column, (least, size), f"points outside of {target}", path)
    for name, columns_of_kinds in _KINDS.items():
        for column, kinds in columns_of_kinds.items():
            _check_range(timeline, name, column, (0, len(kinds)), f"holds what is no {kinds.__name__}", path)
    for name, timed in (("host", timeline.host), ("device", timeline.device)):
        start, end = timed.start, timed.end
        if (end < start).any() or (len(start) and max(-int(start.min()), int(end.max())) > _FURTHEST_NS):
            raise TraceError(f"{path}: the table {name} has times out of range")
    by_thread = np.diff(timeline.host.thread)
    if ((by_thread < 0) | ((by_thread == 0) & (np.diff(timeline.host.start) < 0))).any():
        raise TraceError(f"{path}: the table host is not in order")
    if (np.diff(timeline.device.start) < 0).any():
        raise TraceError(f"{path}: the table device is not in order")
    for table, column in (("host", "parent"), ("stacks", "parent")):
        parent = getattr(tables[table], column)
        if (parent >= np.arange(len(parent))).any():
            raise TraceError(f"{path}: column {table}.{column} does not point upwards")


def _check_range(
    timeline: Timeline, table: str, column: str, allowed: tuple[int, int], otherwise: str, path: Path
) -> None:
    values = getattr(timeline.tables[table], column)
    if len(values) and (values.min() < allowed[0] or values.max() >= allowed[1]):
        raise TraceError(f"{path}: column {table}.{column} {otherwise}")
