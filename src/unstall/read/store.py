"""A timeline's own file: a zip of .npy columns and one JSON header. Compact, quick, and safe to open.

Nothing in it is unpickled. Every column is checked against the schema before use: type, length, and that
each index points into its table.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.lib import format as npy

from unstall.errors import TraceError
from unstall.files import write_atomically
from unstall.timeline import (
    Device,
    Host,
    Lines,
    Memory,
    Meta,
    Stacks,
    Streams,
    Threads,
    Timeline,
    Waits,
)

SCHEMA = "unstall.timeline/1"
_HEADER = "timeline.json"
_MOST_BYTES = 16 << 30
_MOST_EXPANSION = 1000
_TABLES: dict[str, type[Any]] = {
    "host": Host,
    "device": Device,
    "waits": Waits,
    "threads": Threads,
    "streams": Streams,
    "lines": Lines,
    "stacks": Stacks,
    "memory": Memory,
}
_DTYPES = {"I8": np.int8, "I32": np.int32, "I64": np.int64, "Bool": np.bool_}
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
}


class _Header(msgspec.Struct):
    schema: str
    strings: list[str]
    meta: Meta


def is_timeline(path: Path) -> bool:
    """Whether the file begins as a saved timeline does."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PK\x03\x04"
    except OSError:
        return False


def save(timeline: Timeline, path: Path) -> None:
    """Write a timeline; a file of that name is always whole. Raises UsageError where it cannot be written."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(_HEADER, msgspec.json.encode(_Header(SCHEMA, list(timeline.strings), timeline.meta)))
        for table, columns in timeline.tables.items():
            for column in fields(columns):
                buffer = io.BytesIO()
                npy.write_array(buffer, getattr(columns, column.name), allow_pickle=False)
                archive.writestr(f"{table}.{column.name}.npy", buffer.getvalue())
    write_atomically(path, packed.getvalue())


def load(path: Path) -> Timeline:
    """Read a saved timeline. Raises TraceError for anything that `save` did not write."""
    try:
        with zipfile.ZipFile(path) as archive:
            _check_size(archive, path)
            header = msgspec.json.decode(archive.read(_HEADER), type=_Header)
            if header.schema != SCHEMA:
                raise TraceError(f"{path}: a timeline of schema {header.schema!r}; this version reads {SCHEMA!r}")
            tables = {name: _table(archive, name, cls) for name, cls in _TABLES.items()}
    except _UNREADABLE as error:
        raise TraceError(f"{path}: not a whole saved timeline ({error}); save it again from the trace") from None
    timeline = Timeline(strings=tuple(header.strings), meta=header.meta, **tables)
    _check_indices(timeline, path)
    return timeline


def _check_size(archive: zipfile.ZipFile, path: Path) -> None:
    whole = sum(info.file_size for info in archive.infolist())
    packed = max(path.stat().st_size, 1)
    if whole > _MOST_BYTES or whole > packed * _MOST_EXPANSION + (64 << 20):
        raise TraceError(f"{path}: claims to unpack to {whole:,} bytes from {packed:,}; refused")


def _table(archive: zipfile.ZipFile, name: str, cls: type[Any]) -> Any:
    columns = {}
    for column in fields(cls):
        array = npy.read_array(io.BytesIO(archive.read(f"{name}.{column.name}.npy")), allow_pickle=False)
        expected = _DTYPES[str(column.type)]
        if array.ndim != 1 or array.dtype != expected:
            raise ValueError(f"column {name}.{column.name} is {array.dtype}, {array.ndim}-d")
        columns[column.name] = array
    if len({len(array) for array in columns.values()}) > 1:
        raise ValueError(f"the columns of {name} differ in length")
    return cls(**columns)


def _check_indices(timeline: Timeline, path: Path) -> None:
    tables = timeline.tables
    for name, columns in _POINTS_INTO.items():
        for column, target in columns.items():
            size = len(timeline.strings) if target == _TEXT else len(tables[target])
            values = getattr(tables[name], column)
            if len(values) and (values.min() < -1 or values.max() >= size):
                raise TraceError(f"{path}: column {name}.{column} points outside of {target}")
    for table, column in (("host", "parent"), ("stacks", "parent")):
        parent = getattr(tables[table], column)
        if (parent >= np.arange(len(parent))).any():
            raise TraceError(f"{path}: column {table}.{column} does not point upwards")
