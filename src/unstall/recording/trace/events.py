"""Writes the events of a recording as a Chrome trace in Kineto's format. Perfetto opens this
format, and `unstall.read` reads it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from unstall.chrome_trace import Text
from unstall.cupti.decode import Activity
from unstall.cupti.driver_calls import DRIVER
from unstall.cupti.layouts import Kind
from unstall.recording.trace.slices import Slices
from unstall.timeline.columns import I64

_DIRECTIONS = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
}
_MEMORY = {0: "Unknown", 1: "Pageable", 2: "Pinned", 3: "Device", 4: "Array", 5: "Managed", 6: "Device Static"}
_SYNCS = {
    "StreamWaitEvent": "Stream Wait Event",
    "EventSynchronize": "Event Sync",
    "EventQuery": "Event Sync",
    "StreamSynchronize": "Stream Sync",
    "StreamQuery": "Stream Sync",
    "CtxSynchronize": "Context Sync",
}
_OVERHEADS = {
    1: "Driver Compiler",
    1 << 16: "Buffer Flush",
    2 << 16: "Instrumentation",
    3 << 16: "Resource",
    4 << 16: "Runtime Triggered Module Loading",
    5 << 16: "Lazy Function Loading",
    6 << 16: "Command Buffer Full",
    7 << 16: "Activity Buffer Request",
    8 << 16: "UVM Activity Init",
}
_NO_ID = 2**32 - 1


def call_events(activity: Activity, process: int, text: Text) -> Iterator[str]:
    for call in activity.calls.tolist():
        start, end, what, correlation, thread = call[:5]
        name = DRIVER.get(what, f"call {what}")
        yield text.span("cuda_driver", name, process, thread, start, end, f'"cbid":{what},"correlation":{correlation}')


def device_events(activity: Activity, text: Text) -> Iterator[str]:
    tables = activity.tables
    for row in _rows(tables[Kind.KERNEL]):
        shared = row["static_shared"] + row["dynamic_shared"]
        name = activity.names.get(row["name"], "a kernel whose name was not written")
        yield text.span(
            *("kernel", name, row["device"], row["stream"], row["start"], row["end"]),
            f"{_where(row)},{_graph(row)}"
            f'"registers per thread":{row["registers"]},"shared memory":{shared},'
            f'"grid":{_triple(row["grid"])},"block":{_triple(row["block"])}',
        )
    for kind in (Kind.MEMCPY, Kind.MEMCPY_PEER):
        for row in _rows(tables[kind]):
            source, target = (_MEMORY.get(row[side], "Unknown") for side in ("source", "target"))
            name = f"Memcpy {_DIRECTIONS.get(row['direction'], 'Unknown')} ({source} -> {target})"
            yield text.span(
                *("gpu_memcpy", name, row["device"], row["stream"], row["start"], row["end"]),
                f'{_where(row)},{_graph(row)}"bytes":{row["bytes"]}',
            )
    for row in _rows(tables[Kind.MEMSET]):
        yield text.span(
            *("gpu_memset", "Memset (Device)", row["device"], row["stream"], row["start"], row["end"]),
            f'{_where(row)},{_graph(row)}"bytes":{row["bytes"]}',
        )


def wait_events(activity: Activity, text: Text) -> Iterator[str]:
    """Yields an event for each wait and each query, as JSON text. It has the form of the events
    that Kineto writes for CUPTI's synchronization records.

    The event names the stream, CUDA event or context that the call waited for or queried.
    """
    calls = activity.calls
    kernels = activity.tables[Kind.KERNEL]
    contexts, first = np.unique(kernels["context"], return_index=True)
    device_of = dict(zip(contexts.tolist(), kernels["device"][first].tolist(), strict=True))
    names = {number: name for number, call in DRIVER.items() if (name := _sync_of(call)) is not None}
    waits = calls[np.isin(calls["what"], list(names))]
    records = calls[np.isin(calls["what"], [number for number, call in DRIVER.items() if "EventRecord" in call])]
    for row, at in zip(_rows(waits), _records_waited_for(waits, records).tolist(), strict=True):
        name, device = names[row["what"]], device_of.get(row["context"], 0)
        stream = -1 if row["stream"] == _NO_ID else row["stream"]
        arguments = (
            f'"cuda_sync_kind":"{name}","stream":{stream},"correlation":{row["correlation"]},'
            f'"device":{device},"context":{row["context"]}'
        )
        if row["event"]:
            on, correlation = (-1, -1) if at < 0 else (int(records["stream"][at]), int(records["correlation"][at]))
            arguments += (
                f',"wait_on_stream":{on},"wait_on_cuda_event_record_corr_id":{correlation},'
                f'"wait_on_cuda_event_id":{row["event"]}'
            )
        yield text.span("cuda_sync", name, device, stream, row["start"], row["end"], arguments)


def _sync_of(call: str) -> str | None:
    """Returns CUPTI's name for the kind of wait or query that the driver function `call` makes.

    Returns None if the function neither waits nor queries.
    """
    return next((name for pattern, name in _SYNCS.items() if pattern in call), None)


def _records_waited_for(waits: np.ndarray, records: np.ndarray) -> I64:
    """Returns, for each wait for a CUDA event, the row in `records` of the call that recorded this
    event, or -1 if there is none.

    This is the last row that has the wait's event and began before the wait.
    """
    found = np.full(len(waits), -1, np.int64)
    events = np.unique(records["event"])
    for event in events[np.isin(events, waits["event"])]:
        mine = np.flatnonzero(records["event"] == event)
        mine = mine[np.argsort(records["start"][mine], kind="stable")]
        asked = np.flatnonzero(waits["event"] == event)
        at = np.searchsorted(records["start"][mine], waits["start"][asked]) - 1
        found[asked] = np.where(at >= 0, mine[np.maximum(at, 0)], -1)
    return found


def overhead_events(activity: Activity, text: Text) -> Iterator[str]:
    for row in _rows(activity.tables[Kind.OVERHEAD]):
        name = _OVERHEADS.get(row["what"], f"overhead {row['what']}")
        yield text.span("overhead", name, -1, 0, row["start"], row["end"], "")


def slice_events(slices: Slices, process: int, text: Text) -> Iterator[str]:
    names = [f"{file}({line}): {function}" for file, line, function in slices.frames]
    columns = (column.tolist() for column in (slices.thread, slices.start, slices.end, slices.frame))
    for thread, start, end, frame in zip(*columns, strict=True):
        yield text.span("python_function", names[frame], process, thread, start, end, "")


def _rows(table: np.ndarray) -> Iterator[dict[str, int]]:
    """Yields the rows of a table as dicts of Python ints, by the names of its columns."""
    names = table.dtype.names or ()
    columns = [table[name].tolist() for name in names]
    for row in zip(*columns, strict=True):
        yield dict(zip(names, row, strict=True))


def _where(row: dict[str, int]) -> str:
    return (
        f'"device":{row["device"]},"context":{row["context"]},"stream":{row["stream"]},'
        f'"correlation":{row["correlation"]}'
    )


def _graph(row: dict[str, int]) -> str:
    return f'"graph id":{row["graph"]},' if row["graph"] else ""


def _triple(numbers: object) -> str:
    return str(numbers).replace(" ", "")
