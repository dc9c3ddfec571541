"""Reads the table that `key_averages().table()` of torch's profiler prints, from a file into which
somebody pasted it. The pasted table may be indented, quoted, have `|` between its columns, or have
wrapped lines.

The columns differ between versions of torch. So columns are found by their titles, and values by
their form.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from unstall.errors import TraceError
from unstall.timeline.limits import LONGEST_TABLE_LINE, MOST_TABLE_BYTES, MOST_TABLE_ROWS

_FEWEST_TITLES = 3
_MOST_WRAPPED = 6  # lines of one row
_UNIT_NS = {"ns": 1.0, "us": 1e3, "μs": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
_MOST_NS = 1e18

_DEVICE = r"\b[A-Za-z][A-Za-z0-9]{0,30}"
_TITLE = re.compile(
    r"(?P<calls># of Calls|Number of Calls|Calls)"
    r"|(?P<text>Overload Name|Full Name|Input Shapes|Source Location|Node ID|Total [KMGTP]?FLOPs?)"
    rf"|(?P<own>Self )(?P<of>{_DEVICE})(?: (?P<what>total %|total|Mem|%))?"
    rf"|(?P<of2>{_DEVICE}) (?P<what2>total %|total|time avg|time|Mem)"
    r"|(?P<name>Name)"
)
_HEAD = re.compile(r"\bName\b.*\b(?:Self CPU|CPU total|CPU time)\b")
_LINE_START = re.compile(r"[>\s|#]*")
_RULE = re.compile(r"[-=+|:\s─│┼]*")  # a line between parts of the table
_BETWEEN = r"[\s|│]+"
_TIME = r"(-?\d[\d.,]*)\s?(ns|us|μs|µs|ms|s)"
_VALUE = {
    "%": r"(?:-?\d[\d.]*\s?%|-?\d[\d.]*|nan|NaN)",
    "time": _TIME,
    "Mem": r"(?:-?\d[\d.]*\s?[KMGT]?i?[bB])",
    "calls": r"(\d[\d,]*)",
}
_TOTAL = re.compile(rf"(?:Self )?({_DEVICE}) time total:\s*{_TIME}")


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of the table that torch's profiler prints. A field is None if the table lacks its
    column.

    Attributes:
        name: The name of an operator, a kernel or a call.
        calls: How often it ran.
        self_host_ns: The host's time in it, without the time in what it called, in ns.
        host_ns: The host's time in it, in ns.
        self_device_ns: The device's time for it, without the time for what it called, in ns.
        device_ns: The device's time for it, in ns.
    """

    name: str
    calls: int | None
    self_host_ns: int | None
    host_ns: int | None
    self_device_ns: int | None
    device_ns: int | None


@dataclass(frozen=True, slots=True)
class ProfilerTable:
    """A table of torch's profiler, as it was pasted into a file.

    Attributes:
        path: The path of the file.
        device: The device's name in the titles, such as "CUDA"; None if the table has no times of a
            device.
        rows: The rows, in the order of the table.
        host_total_ns: The total time of the host, which is printed below the table; None if it is
            missing.
        device_total_ns: The total time of the device, which is printed below the table; None if it
            is missing.
        unread: The number of lines between the first and the last row that could not be read.
        more: The number of further tables in the file. They are not read.
    """

    path: str
    device: str | None
    rows: tuple[TableRow, ...]
    host_total_ns: int | None
    device_total_ns: int | None
    unread: int
    more: int


@dataclass(frozen=True, slots=True)
class _Column:
    kind: str  # a key of _VALUE, or "text"
    field: str = ""  # of TableRow


def is_profiler_table(path: Path) -> bool:
    """Returns whether a file has, in its first 4 MiB, a table of torch's profiler. The table is
    recognised by the titles of its columns.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MOST_TABLE_BYTES)
    except OSError:
        return False
    return b"\0" not in text and any(True for _ in _heads(_lines(text)))


def read_profiler_table(path: Path) -> ProfilerTable:
    """Reads the first table of torch's profiler in a file.

    Raises:
        TraceError: The file cannot be read, is too large, or none of the table's rows can be read.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MOST_TABLE_BYTES + 1)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(text) > MOST_TABLE_BYTES:
        raise TraceError(
            f"{path}: longer than {MOST_TABLE_BYTES >> 20} MiB, which no profiler's table is: paste only the table"
        )
    lines = _lines(text)
    heads = list(_heads(lines))
    if not heads:
        raise TraceError(f"{path}: this has no head of a profiler's table (Name, Self CPU %, …, # of Calls)")
    first = heads[0]
    until = heads[1] if len(heads) > 1 else len(lines)
    begin = _head_end(lines, first)
    titles = _titles(" ".join(lines[first:begin]))[0]
    columns = [_column(title) for title in titles if title["name"] is None]
    rows, unread = _rows(lines[begin:until], columns)
    if not rows:
        raise TraceError(
            f"{path}: this is the head of a profiler's table, but none of its rows can be read: paste the whole table, "
            "as text"
        )
    host, device = None, None
    for found in _TOTAL.finditer("\n".join(lines[begin:until])):
        ns = _ns(found[2], found[3])
        if found[1] == "CPU":
            host = ns if host is None else host
        else:
            device = ns if device is None else device
    names = [column.field for column in columns]
    of = _device_of(titles) if {"self_device_ns", "device_ns"} & set(names) else None
    return ProfilerTable(str(path), of, tuple(rows), host, device, unread, len(heads) - 1)


def _lines(text: bytes) -> list[str]:
    """Returns the lines of `text`. Removes indentation and quote marks at the start of a line.
    Omits lines that are too long.
    """
    lines = text.decode("utf-8", "replace").replace("\r", "").split("\n")
    cleaned = (
        "".join(c for c in line if c.isprintable() or c == "\t") for line in lines if len(line) <= LONGEST_TABLE_LINE
    )
    return [line[_LINE_START.match(line).end() :].rstrip(" |") for line in cleaned]  # type: ignore[union-attr]


def _heads(lines: list[str]) -> Iterator[int]:
    """Yields, for each table, the index of the line with which its head begins. The head of a
    wrapped table goes on in the next lines.
    """
    for number, line in enumerate(lines):
        joined = " ".join(lines[number : number + _MOST_WRAPPED])
        if line.startswith("Name") and _HEAD.match(joined) and len(_titles(joined)[0]) >= _FEWEST_TITLES:
            yield number


def _titles(line: str) -> tuple[list[re.Match[str]], str]:
    """Returns `(titles, rest)`: the titles of columns at the start of a line, and the text after them."""
    found: list[re.Match[str]] = []
    at = 0
    while (title := _TITLE.match(line, at)) is not None:
        found.append(title)
        at = title.end()
        while at < len(line) and line[at] in " \t|│":
            at += 1
    return found, line[at:]


def _head_end(lines: list[str], first: int) -> int:
    """Returns the index of the line after the head that begins at line `first`. A title may be
    wrapped into the next line.
    """
    joined, end = "", first
    for at in range(first, min(len(lines), first + _MOST_WRAPPED)):
        joined = f"{joined} {lines[at]}".strip()
        if not _titles(joined)[1]:
            end = at + 1
    return end


def _column(title: re.Match[str]) -> _Column:
    if title["calls"]:
        return _Column("calls", "calls")
    if title["text"]:
        return _Column("text")
    own = title["own"] is not None
    of, what = (title["of"], title["what"]) if own else (title["of2"], title["what2"])
    if what == "Mem":
        return _Column("Mem")
    if what in ("%", "total %"):
        return _Column("%")
    if what in ("time avg", "time"):
        return _Column("time")
    place = "host" if of == "CPU" else "device"
    return _Column("time", f"self_{place}_ns" if own else f"{place}_ns")


def _device_of(titles: list[re.Match[str]]) -> str | None:
    devices = (title["of"] or title["of2"] for title in titles)
    return next((device for device in devices if device and device != "CPU"), None)


def _rows(lines: list[str], columns: list[_Column]) -> tuple[list[TableRow], int]:
    """Returns `(rows, unread)`: the rows that can be read, and the number of lines that belong to no row."""
    figures = [column for column in columns if column.kind != "text"]
    leading = "overload" if columns and columns[0].kind == "text" else ""
    values = "".join(_BETWEEN + _VALUE[column.kind] for column in figures)
    pattern = re.compile(rf"(?P<label>\S.*?){values}(?:{_BETWEEN}(?P<tail>.*))?")
    rows: list[TableRow] = []
    pending: list[str] = []
    unread = 0
    for line in lines:
        if _RULE.fullmatch(line):
            continue
        if _TOTAL.search(line) or len(rows) >= MOST_TABLE_ROWS:
            break
        for tried in (line, " ".join([*pending, line])):
            found = pattern.fullmatch(tried)
            if found is not None:
                break
        if found is None:
            pending.append(line)
            if len(pending) >= _MOST_WRAPPED:
                pending.pop(0)
                unread += 1
            continue
        if tried == line:
            unread += len(pending)
        pending = []
        rows.append(_row(found, figures, leading))
    return rows, unread + len(pending)


def _row(found: re.Match[str], figures: list[_Column], leading: str) -> TableRow:
    values: dict[str, int | None] = {}
    group = 2  # the first is the label
    for column in figures:
        if column.kind == "time":
            if column.field:
                values[column.field] = _ns(found[group], found[group + 1])
            group += 2
        elif column.kind == "calls":
            values["calls"] = int(found[group].replace(",", "")[:15])
            group += 1
    name = found["label"].strip(" |")
    if leading:
        name = re.split(r"\s{2,}|\s*\|\s*", name)[0]
    calls = values.pop("calls", None)
    times = {field: values.get(field) for field in ("self_host_ns", "host_ns", "self_device_ns", "device_ns")}
    return TableRow(name=name, calls=calls, **times)


def _ns(number: str, unit: str) -> int:
    """Returns the time `number` in ns, or 0 if it is no number. `unit` is its unit, such as "us"."""
    try:
        ns = float(number.replace(",", "")) * _UNIT_NS[unit]
    except ValueError:
        return 0
    return round(ns) if math.isfinite(ns) and 0 <= ns <= _MOST_NS else 0
