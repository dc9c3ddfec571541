"""The words that renderers of a `DiffResult` share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from unstall.diff.result import Account, CopyChange, Count, DiffResult, KernelChange, LineChange, Side, Time, WaitChange
from unstall.figures import counted, duration, size
from unstall.report.wording import device_of, place, short
from unstall.result import Where

LONGEST_KERNEL = 150
_LONGEST_ALIKE = 1_000
NOISE = (
    "noise: what the steps within each file differ by (95 % of the time); two runs of one program may differ by more"
)
_LABELS = {"both": "compute + copy"}


@dataclass(frozen=True, slots=True)
class Row:
    """One change: what or where, its figures, and what else is to be said."""

    title: str
    status: str
    figures: tuple[str, ...]
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Changes of one kind. `kind` says what titles are: places, or names from the trace."""

    heading: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    kind: Literal["place", "name"] = "place"


def sections(result: DiffResult) -> list[Section]:
    """What changed, in the order it is shown; sections with nothing are left out."""
    all_sections = [
        Section("Waits, per step", ("times", "host waits", "exposed"), tuple(map(_wait, result.waits))),
        Section("Copies, per step", ("times", "bytes", "device"), tuple(map(_copy, result.copies))),
        Section("Kernels, per step", ("times", "device", "change"), _kernels(result.kernels), "name"),
        Section("Cost by line, per step", ("device", "device idle", "host waits"), tuple(map(_line, result.lines))),
    ]
    return [section for section in all_sections if section.rows]


def run_line(side: Side) -> str:
    """What was recorded or simulated, and with what."""
    source = side.source
    known = (
        device_of(source),
        f"torch {source.torch}" if source.torch else None,
        f"CUDA {source.cuda}" if source.cuda else None,
        None if source.has_stacks else "no stacks",
    )
    return " · ".join(short(part) for part in known if part)


def steps_line(side: Side) -> str:
    """How long the steps are, and how much they differ."""
    steps = side.steps
    if steps.found_by == "whole":
        return f"the whole run, {duration(steps.wall_ns)}"
    text = f"{counted(steps.count, 'step')} of {duration(steps.mean_ns)}"
    if steps.count == 1:
        return text
    return f"{text} ({became(side.shortest_step_ns, side.longest_step_ns, 'to')})"


def label(account: Account) -> str:
    """The account's name, as `explain` calls it."""
    return f"idle: {account.key}" if account.kind == "idle" else _LABELS.get(account.key, account.key)


def became(a: int, b: int, arrow: str = "→") -> str:
    """Two durations, their unit once where it is the same."""
    left, right = duration(a), duration(b)
    number, _, unit = left.partition(" ")
    alike = unit and unit == right.partition(" ")[2]
    return f"{number if alike else left} {arrow} {right}"


def signed(ns: int) -> str:
    """A change with its sign."""
    return f"+{duration(ns)}" if ns > 0 else duration(ns)


def number(value: float) -> str:
    """A count per step, which need not be whole."""
    if value and value < 0.1:
        return "<0.1"
    return f"{value:,.1f}".removesuffix(".0")


def numbers(count: Count) -> str:
    """A count in both."""
    return number(count.a) if count.same else f"{number(count.a)} → {number(count.b)}"


def both_places(a: Where | None, b: Where | None) -> str:
    """One place for both; `train.py:12→14 def step` where only the line differs."""
    if a is None or b is None:
        return _named(a or b or Where())
    a, b = (msgspec.structs.replace(where, called_from=None) for where in (a, b))
    texts = _named(a), _named(b)
    if texts[0] == texts[1]:
        return texts[0]
    if a.file and a.line is not None and b.line is not None and msgspec.structs.replace(b, line=a.line) == a:
        return texts[0].replace(f":{a.line} ", f":{a.line}→{b.line} ", 1)
    return f"{texts[0]} → {texts[1]}"


def unchanged(result: DiffResult) -> str:
    """How much is as it was."""
    same = result.unchanged
    kinds = ((same.waits, "wait"), (same.copies, "copy"), (same.kernels, "kernel"), (same.lines, "line"))
    parts = [counted(number, noun) for number, noun in kinds if number]
    if not parts:
        return ""
    return f"As they were, but for noise: {', '.join(parts)}."


def launch_rows(result: DiffResult) -> list[tuple[str, str, str]]:
    """(what, in A, in B) of how work gets to the device, where that differs."""
    launches = result.launches
    if launches is None:
        return []
    rows = (
        ("calls that launch", launches.calls),
        ("graph launches", launches.graph_launches),
        ("kernels", launches.kernels),
        ("kernels in graphs", launches.kernels_in_graphs),
    )
    return [(name, number(count.a), number(count.b)) for name, count in rows if not count.same]


def _named(where: Where) -> str:
    text = place(where) or "no source line known"
    op = short(where.op or "")
    return f"{text} · {op}" if op and op != text else text


def _wait(change: WaitChange) -> Row:
    figures = numbers(change.count), _time(change.wait_ns), _time(change.exposed_ns)
    return Row(both_places(change.where_a, change.where_b), change.status, figures)


def _copy(change: CopyChange) -> Row:
    how = f"became {', '.join(change.became)}" if change.became else _memory(change)
    sizes = size(change.bytes.a), size(change.bytes.b)
    moved = sizes[0] if change.bytes.a == change.bytes.b else f"{sizes[0]} → {sizes[1]}"
    return Row(
        both_places(change.where_a, change.where_b),
        change.status,
        (numbers(change.count), moved, _time(change.device_ns)),
        ", ".join(part for part in (change.direction, how) if part),
    )


def _memory(change: CopyChange) -> str:
    """The kind of host memory, where it is one and the same."""
    pageable, pinned = (bool(kind.a or kind.b) for kind in (change.pageable, change.pinned))
    kind = "" if pageable == pinned else "pageable" if pageable else "pinned"
    return ", ".join(part for part in (kind, "blocking" if change.blocking.a or change.blocking.b else "") if part)


def _kernels(changes: Sequence[KernelChange]) -> tuple[Row, ...]:
    """Names are cut, unless two then look the same: kernels may differ in one template argument alone."""
    times = Counter(short(change.name, LONGEST_KERNEL) for change in changes)
    return tuple(
        _kernel(change, LONGEST_KERNEL if times[short(change.name, LONGEST_KERNEL)] == 1 else _LONGEST_ALIKE)
        for change in changes
    )


def _kernel(change: KernelChange, longest: int) -> Row:
    figures = numbers(change.count), _time(change.device_ns), signed(change.device_ns.change)
    named = any(place(where) for where in (change.where_a, change.where_b) if where)
    where = both_places(change.where_a, change.where_b) if named else ""
    return Row(short(change.name, longest), change.status, figures, where)


def _line(change: LineChange) -> Row:
    figures = _time(change.device_ns), _time(change.idle_ns), _time(change.wait_ns)
    status: str = "noise" if change.status == "within noise" else change.status
    if change.cost_ns.change:
        status = f"{status}, {signed(change.cost_ns.change)}"
    return Row(both_places(change.where_a, change.where_b), status, figures)


def _time(time: Time) -> str:
    return duration(time.a) if time.a == time.b else became(time.a, time.b)
