"""A slow and obvious reader of Chrome traces: the whole text at once, character by character, then event by event.

What `unstall.read.kineto` reads must be the same. It shares no code with it, and cuts nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from decimal import ROUND_FLOOR, Decimal
from math import prod
from typing import Any

import numpy as np

from unstall.read.events import Events

Row = dict[str, Any]
UNKNOWN_U32 = 2**32 - 1
MOST_US = 3 * 10**15
DEVICE_CATEGORIES = {"kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset", "cuda_sync"}
OP_CATEGORIES = {"cpu_op", "Operator", "user_annotation"}
NO_WORK = {"gpu_user_annotation", "cuda_event", "graph_event_node", "graph_host_node", "cuda_profiler_range"}
HOST_CATEGORIES = OP_CATEGORIES | {"cuda_runtime", "python_function"}
COPY_KINDS = {**dict(enumerate(["HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"], 1))}
MEMORY_KINDS = {
    number: (text, text.lower().replace(" ", "_"))
    for number, text in enumerate(
        ["Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static"]
    )
}
ABSENT = "absent"


@dataclass
class Reading:
    """Rows with their texts spelled out, times from the file's own zero."""

    rows: list[Row] = field(default_factory=list)
    arrows: list[Row] = field(default_factory=list)
    memory: list[Row] = field(default_factory=list)
    labels: dict[tuple[str, str], str] = field(default_factory=dict)
    zero: int = 0
    negative: int = 0


class Figure(Decimal):
    """A number as it is spelled."""

    text: str

    def __new__(cls, text: str) -> Figure:
        made = super().__new__(cls, text)
        made.text = text
        return made


def reading(text: bytes) -> Reading:
    """Of text that is JSON, at least once it is `mended`."""
    decoded = text.decode("utf-8", "replace").removeprefix("\ufeff")
    try:
        document = json.loads(decoded, parse_float=Figure)
        is_clean = "\\ud" not in decoded  # Python lets half a surrogate pair pass
    except json.JSONDecodeError:
        is_clean = False
    if not is_clean:
        document = json.loads(mended(decoded), parse_float=Figure)
    found = Reading()
    for event in document["traceEvents"] if isinstance(document, dict) else document:
        if isinstance(event, dict) and text_of(event.get("ph")):
            read_event(event, found)
    found.zero = min((row["time"] for row in found.rows), default=0)
    for row in found.rows + found.arrows + found.memory:
        row["time"] -= found.zero
    if isinstance(document, dict):
        found.zero += document.get("baseTimeNanoseconds", 0)
    found.memory.sort(key=lambda row: row["time"])
    return found


def mended(text: str) -> str:
    """Control characters become spaces, escapes that are none become the characters they are, NaN becomes null."""
    out: list[str] = []
    at = 0
    in_text = False
    while at < len(text):
        char = text[at]
        if in_text and char == "\\":
            length = escape_length(text[at : at + 12])
            out.append(text[at : at + length] if length > 1 else "\\\\" if length == 1 else "\ufffd")
            at += max(length, 1) if length else 6
            continue
        if not in_text and (
            number := next((n for n in ("-Infinity", "Infinity", "NaN") if text.startswith(n, at)), "")
        ):
            out.append("null")
            at += len(number)
            continue
        in_text ^= char == '"'
        out.append(" " if char < " " else char)
        at += 1
    return "".join(out)


def escape_length(text: str) -> int:
    """Of the escape that `text` begins with: 1 if it is none, 0 for half a surrogate pair, which stands for nothing."""
    if text[1:2] and text[1] in '"\\/bfnrt':
        return 2
    digits = text[2:6]
    if text[1:2] != "u" or len(digits) < 4 or any(c not in "0123456789abcdefABCDEF" for c in digits):
        return 1
    code = int(digits, 16)
    if 0xD800 <= code < 0xDC00:
        low = text[8:12]
        paired = text[6:8] == "\\u" and len(low) == 4 and all(c in "0123456789abcdefABCDEF" for c in low)
        return 12 if paired and 0xDC00 <= int(low, 16) < 0xE000 else 0
    return 0 if 0xDC00 <= code < 0xE000 else 6


def read_event(event: Row, found: Reading) -> None:
    phase = text_of(event["ph"])
    time = ns_of(event.get("ts"))
    category, name = text_of(event.get("cat")), text_of(event.get("name"))
    process, thread = text_of(event.get("pid")), text_of(event.get("tid"))
    args = event.get("args")
    args = args if isinstance(args, dict) else {}
    if phase == "M":
        if name == "thread_name":
            found.labels[process, thread] = text_of(args.get("name"))
        elif name == "process_name":
            found.labels[process, ""] = text_of(args.get("name"))
    elif phase in ("s", "f") and category in ("fwdbwd", "forward_backward"):
        if isinstance(time, int):
            arrow = {"time": time, "id": whole_of(event.get("id")), "is_end": phase == "f", "thread": thread}
            found.arrows.append(arrow)
    elif phase == "i" and name == "[memory]":
        if isinstance(time, int):
            found.memory.append({"time": time} | memory_of(args))
    elif phase == "X" and category not in ("Trace", "Spans"):
        duration = ns_of(event.get("dur", 0))
        duration = 0 if duration == ABSENT else duration
        if not isinstance(time, int) or not isinstance(duration, int):
            return
        found.negative += duration < 0
        if category in ("gpu_memcpy", "Memcpy", "gpu_memset", "Memset"):
            name = named(name, args)
        row = {"time": time, "duration": max(0, duration), "category": category, "name": name}
        found.rows.append(row | {"process": process, "thread": thread} | args_of(args, category))


def named(name: str, args: Row) -> str:
    """By the fields of torch's second profiler: a copy's and a memset's name in Kineto's words."""

    def said(key: str) -> object:
        return None if isinstance(args.get(key), bool) else args.get(key)

    def memory(key: str) -> str | None:
        return next((shown for number, (shown, text) in MEMORY_KINDS.items() if said(key) in (number, text)), None)

    if name == "Memset" and (kind := memory("memory kind")):
        return f"Memset ({kind})"
    for number, text in COPY_KINDS.items():
        if name == "Memcpy" and said("copy kind") in (number, text):
            return f"Memcpy {text} ({memory('src kind') or 'Unknown'} -> {memory('dst kind') or 'Unknown'})"
    return name


def memory_of(args: Row) -> Row:
    device = whole_of(args.get("Device Id"))
    return {
        "device": device if whole_of(args.get("Device Type"), 0) != 0 and -1 <= device < 2**31 else -1,
        "size": whole_of(args.get("Bytes"), 0),
        "allocated": whole_of(args.get("Total Allocated")),
        "reserved": whole_of(args.get("Total Reserved")),
        "address": whole_of(args.get("Addr")),
    }


def args_of(args: Row, category: str) -> Row:
    def figure(*keys: str) -> int:
        return max(-1, next((v for v in (whole_of(args.get(key)) for key in keys) if v >= 0), -1))

    def known(key: str) -> int:
        value = figure(key)
        return -1 if value == UNKNOWN_U32 else value

    is_device = category in DEVICE_CATEGORIES or category not in NO_WORK | HOST_CATEGORIES
    lane = known("stream")
    stream = figure("original_stream")
    stream = lane if stream < 0 else -1 if stream == UNKNOWN_U32 else stream
    is_op = category in OP_CATEGORIES
    shapes = next((args[key] for key in ("Input Dims", "Input dims") if key in args), None)
    device = known("device")
    row: Row = {
        "external": figure("External id", "external id"),
        "correlation": figure("correlation"),
        "device": device if is_device and device < 2**31 else -1,
        "stream": stream if is_device else -1,
        "bytes": known("bytes") if is_device else -1,
        "blocks": blocks_of(args.get("grid")) if is_device else -1,
        "share": figure("device share") if is_device and figure("device share") <= 1000 else -1,
        "sequence": known("Sequence number") if is_op else -1,
        "forward_thread": known("Fwd thread id") if is_op else -1,
        "stack": (text_of(args.get("Call stack")) or None) if is_op else None,
        "shapes": json.dumps(shapes, separators=(",", ":"), ensure_ascii=False)
        if is_op and shapes is not None
        else None,
    }
    if category == "cuda_sync":
        row["sync"] = (
            known("wait_on_cuda_event_record_corr_id"),
            known("wait_on_cuda_event_id"),
            known("wait_on_stream"),
        )
    return row


def blocks_of(grid: Any) -> int:
    if not isinstance(grid, list) or len(grid) != 3:
        return -1
    if any(isinstance(length, bool) or not isinstance(length, int) for length in grid):
        return -1
    return min(prod(grid), 2**31 - 1) if all(0 < length < 2**31 for length in grid) else -1


def text_of(value: Any) -> str:
    match value:
        case str():
            return value
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case Figure():
            return value.text
        case int():
            return str(value)
    raise AssertionError(f"what text should {value!r} be?")


def whole_of(value: Any, default: int = -1) -> int:
    if isinstance(value, str) and value.removeprefix("-").isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or value != int(value):
        return default
    return int(value) if -(2**63) <= value < 2**63 else default


def ns_of(value: Any) -> int | str:
    """To the nearest ns, halves to the even one."""
    if isinstance(value, str):
        value = Decimal(value) if value.removeprefix("-").replace(".", "", 1).isdecimal() else None
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return ABSENT
    if not -MOST_US <= value <= MOST_US:
        return "beyond all clocks"
    ns = Decimal(value) * 1000
    whole = int(ns.to_integral_value(ROUND_FLOOR))
    part = ns - whole
    up = part > Decimal("0.5") or (part == Decimal("0.5") and whole % 2 != 0)
    return whole + up


def spelled_out(events: Events) -> Reading:
    """The columns of `Events` in the same form."""

    def texts(column: Any) -> list[str | None]:
        return [events.strings[i] if i >= 0 else None for i in column.tolist()]

    columns: dict[str, list[Any]] = {
        "time": events.start.tolist(),
        "category": texts(events.category),
        "name": texts(events.name),
        "process": texts(events.process),
        "thread": texts(events.thread),
        "stack": texts(events.stack),
        "shapes": texts(events.shapes),
    } | {
        name: getattr(events, name).tolist()
        for name in (
            *(
                "duration",
                "external",
                "correlation",
                "device",
                "stream",
                "bytes",
                "blocks",
                "share",
                "sequence",
                "forward_thread",
            ),
        )
    }
    found = Reading(labels=events.thread_names, zero=events.meta.zero_ns)
    found.rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    syncs = (events.sync_record.tolist(), events.sync_event.tolist(), events.sync_on_stream.tolist())
    for row, *sync in zip(events.sync_row.tolist(), *syncs, strict=True):
        found.rows[row]["sync"] = tuple(sync)
    found.arrows = [
        {"time": time, "id": number, "is_end": bool(is_end), "thread": thread}
        for time, number, is_end, thread in zip(
            events.flow_time.tolist(),
            events.flow_id.tolist(),
            events.flow_is_end.tolist(),
            texts(events.flow_thread),
            strict=True,
        )
    ]
    names = ("time", "device", "size", "allocated", "reserved", "address")
    memory = [getattr(events, f"memory_{name}").tolist() for name in names]
    found.memory = [dict(zip(names, values, strict=True)) for values in zip(*memory, strict=True)]
    dtypes = {events.category.dtype, events.name.dtype, events.device.dtype, events.stack.dtype}
    assert dtypes == {np.dtype(np.int32)}
    return found
