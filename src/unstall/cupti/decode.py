"""Reads the files of the recorder `cupti` into numpy tables."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unstall.cupti import layouts
from unstall.cupti.layouts import FIELDS, Kind
from unstall.cupti.recorder import CALLS, CHUNK_BYTES, NAMES, RECORDS, VERSION
from unstall.errors import TraceError
from unstall.timeline.columns import I64
from unstall.timeline.grouping import groups

_NAME_HEAD = struct.Struct("<QI")
_LONGEST_NAME = 1 << 16
_CALL = np.dtype(
    [
        ("start", "<u8"),
        ("end", "<u8"),
        ("what", "<u4"),
        ("correlation", "<u4"),
        ("thread", "<u4"),
        ("stack", "<i4"),
        ("event", "<u8"),
        ("stream", "<u4"),
        ("context", "<u4"),
        ("spare", "<u8", 2),
    ]
)
SPAN = 1 << 30  # as in _cupti.c


@dataclass(frozen=True, eq=False, slots=True)
class Activity:
    """The contents of a recording of the recorder `cupti`.

    Attributes:
        tables: For each kind of CUPTI's records, an unsorted numpy table. `record_types` returns
            the tables' dtypes.
        calls: Calls to the CUDA driver, sorted by thread and start time.
        spans: Calls to the Python functions that `call_stacks` watches, sorted by thread and start
            time. The field `what` is the number of the function.
        names: The names of kernels. The key is the address by which the records refer to the name.
        cupti_version: The version of CUPTI.
    """

    tables: dict[Kind, np.ndarray]
    calls: np.ndarray
    spans: np.ndarray
    names: dict[int, str]
    cupti_version: int


def read_activity(folder: Path) -> Activity:
    """Reads a recording of the recorder `cupti` from a folder, even if the recorded process was
    killed.

    Raises:
        TraceError: The recording is empty or missing.
    """
    try:
        about = json.loads((folder / VERSION).read_text())
    except (OSError, ValueError) as error:
        raise TraceError("nothing was recorded: CUPTI had not begun") from error
    of_kind = layouts.sizes(about["version"], about["library"])
    try:
        tables = _tables(folder / RECORDS, of_kind)
        calls = _calls(folder / CALLS)
        names = _names((folder / NAMES).read_bytes())
    except FileNotFoundError as error:
        raise TraceError(f"{error.filename}: gone, and with it what the recording is of") from error
    is_span = calls["what"] >= SPAN
    spans = calls[is_span]
    spans["what"] -= SPAN
    return Activity(tables, calls[~is_span], spans, names, about["version"])


def record_types(of_kind: dict[Kind, int]) -> dict[Kind, np.dtype[np.void]]:
    """Returns the numpy dtype of each kind of CUPTI's records. `of_kind` maps each kind to the size
    of a record in bytes.
    """
    return {kind: _type(kind, size) for kind, size in of_kind.items()}


def _tables(path: Path, of_kind: dict[Kind, int]) -> dict[Kind, np.ndarray]:
    from unstall.cupti import _cupti

    sizes = layouts.size_table(of_kind)
    found: dict[Kind, list[np.ndarray]] = {kind: [] for kind in of_kind}
    with path.open("rb") as file:
        while block := file.read(CHUNK_BYTES):
            chunk = np.frombuffer(block, np.uint8)
            offsets: I64 = np.frombuffer(_cupti.walk(chunk, sizes), np.int64)
            for kind in of_kind if len(offsets) else ():
                found[kind].append(rows(chunk, offsets, kind, of_kind))
    empty = {kind: np.zeros(0, type_) for kind, type_ in record_types(of_kind).items()}
    return {kind: np.concatenate(each) if each else empty[kind] for kind, each in found.items()}


def _type(kind: Kind, size: int) -> np.dtype[np.void]:
    fields = FIELDS[kind]
    return np.dtype(
        {
            "names": list(fields),
            "offsets": [offset for offset, _ in fields.values()],
            "formats": [form for _, form in fields.values()],
            "itemsize": size,
        }
    )


def rows(chunk: np.ndarray, offsets: I64, kind: Kind, of_kind: dict[Kind, int]) -> np.ndarray:
    """Returns the records of one kind in a piece of the recording, as an array of the kind's numpy
    dtype.

    Args:
        chunk: The bytes of the piece, which has records of all kinds.
        offsets: The offset of each record in the piece, in bytes, for records of all kinds.
        kind: The kind of the records to return.
        of_kind: Maps each kind to the size of a record in bytes.
    """
    if not len(offsets):
        return np.zeros(0, _type(kind, of_kind[kind]))
    kinds = chunk[offsets[:, None] + np.arange(4)].view(np.uint32)[:, 0]
    mine = offsets[kinds == kind]
    picked = np.ascontiguousarray(chunk[mine[:, None] + np.arange(of_kind[kind])])
    return picked.view(_type(kind, of_kind[kind]))[:, 0]


def _calls(path: Path) -> np.ndarray:
    """Returns the recorded calls. Skips the zeros that fill the rest of each chunk of the file."""
    rows = np.fromfile(path, _CALL, count=path.stat().st_size // _CALL.itemsize)
    rows = rows[rows["start"] > 0]
    return rows[np.lexsort((rows["start"], rows["thread"]))]


def _names(text: bytes) -> dict[int, str]:
    """Returns the kernel names by pointer. Stops at the first name that is incomplete."""
    names, at = {}, 0
    while at + _NAME_HEAD.size <= len(text):
        pointer, length = _NAME_HEAD.unpack_from(text, at)
        at += _NAME_HEAD.size
        if length > _LONGEST_NAME or at + length > len(text):
            break
        names[pointer] = text[at : at + length].decode(errors="replace")
        at += length
    return names


def outermost(calls: np.ndarray) -> np.ndarray:
    """Returns the calls that are not inside another call of the same thread, sorted by start time.

    If two calls of a thread begin at the same time, the shorter call counts as inside the longer
    one.

    Args:
        calls: The calls, as rows with the fields start, end and thread.
    """
    calls = calls[np.lexsort((-calls["end"].astype(np.int64), calls["start"]))]
    chosen = np.ones(len(calls), np.bool_)
    for _, mine in groups(calls["thread"].astype(np.int64)):
        reach = np.maximum.accumulate(calls["end"][mine])
        chosen[mine[1:]] = calls["start"][mine[1:]] >= reach[:-1]
    return calls[chosen]
