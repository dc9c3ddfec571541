"""Makes recordings smaller: leaves out what the reader does not look at.

Usage: python tests/data/trim.py FOLDER TRACE [TRACE …]

Writes each trace into FOLDER under its own name, and checks that what is read of it is the same, column by column.
`zopfli` or `advdef -z4` makes the files a tenth smaller still.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from unstall import Timeline, load
from unstall.read.schema import Args

_TEXTS = {"file", "function", "name", "process", "shapes", "thread"}
_READ = {field.encode_name for field in msgspec.structs.fields(Args)}


def trimmed(document: dict[str, Any]) -> dict[str, Any]:
    """The same events in the same order, without arrows between calls and device ops, and arguments not read."""
    events = [event for event in document["traceEvents"] if event.get("cat") != "ac2g"]
    # An operator's own text of its stack is read only on threads without Python frames.
    framed = {event["tid"] for event in events if event.get("cat") == "python_function"}
    return {
        **{key: value for key, value in document.items() if key != "traceName"},
        "traceEvents": [_event(event, _READ - {"Call stack"} if event["tid"] in framed else _READ) for event in events],
    }


def _event(event: dict[str, Any], keys: set[str]) -> dict[str, Any]:
    if event["ph"] != "X" or "args" not in event:
        return event
    return {**event, "args": {key: value for key, value in event["args"].items() if key in keys}}


def same(one: Timeline, other: Timeline) -> bool:
    """Whether the two are one run; the path of its file and the numbers of its texts aside."""
    return replace(one.meta, path="") == replace(other.meta, path="") and all(
        np.array_equal(_column(one, table, column), _column(other, table, column))
        for table, columns in one.tables.items()
        for column in columns.__struct_fields__
    )


def _column(timeline: Timeline, table: str, column: str) -> Any:
    values = getattr(timeline.tables[table], column)
    return [timeline.text(int(value)) for value in values] if column in _TEXTS else values


def main(folder: Path, traces: list[Path]) -> None:
    for trace in traces:
        text = json.dumps(trimmed(json.loads(gzip.decompress(trace.read_bytes()))), separators=(",", ":"))
        small = folder / trace.name
        small.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        if not same(load(trace), load(small)):
            small.unlink()
            raise SystemExit(f"{trace.name}: what is read would not be the same")
        print(f"{trace.name}: {trace.stat().st_size:,} -> {small.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(trace) for trace in sys.argv[2:]])
