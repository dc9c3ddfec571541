"""The report of `unstall diff` for two runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from unstall.changes.result import (
    CopyChange,
    Count,
    DiffResult,
    KernelChange,
    LineChange,
    Side,
    Status,
    Time,
    WaitChange,
)
from unstall.document.document import (
    Annotation,
    Bullets,
    Column,
    Document,
    Page,
    Prose,
    Role,
    Row,
    Span,
    Table,
    Words,
    words,
)
from unstall.document.plain import short
from unstall.figures import counted, duration, size
from unstall.report.pictures import Draw, no_pictures
from unstall.report.promise import ending, waterfall
from unstall.report.wording import UNKNOWN_LINE, label_of, operator, place, row, software
from unstall.result import Where

_LONGEST_KERNEL = 150
_LONGEST_ALIKE = 1_000
_NOISE = "noise: how much steps of the same file differ; two runs of the same program may differ more"
_ROLES: dict[Status, Role] = {"new": "warning", "gone": "same", "within noise": "dim", "changed": ""}


def document(result: DiffResult, draw: Draw = no_pictures) -> Document:
    """Returns the report of `unstall diff`, which compares two runs, A and B. `draw` draws the
    pictures of both runs for the HTML page.
    """
    caveats = Bullets(words("Before you compare"), tuple(words(caveat.text) for caveat in result.caveats))
    foot = _foot(result)
    over = result.a.steps.over if result.of_whole_runs else "per step"
    tables = (
        _accounts(result),
        _launches(result, over),
        _table(f"Waits, {over}", ("times", "host waits", "exposed"), map(_wait, result.waits)),
        _table(f"Copies, {over}", ("times", "bytes", "device"), map(_copy, result.copies)),
        _table(f"Kernels, {over}", ("times", "device", "change"), _kernels(result.kernels)),
        _table(f"Cost by line, {over}", ("device", "device idle", "host waits"), map(_line, result.lines)),
    )
    promise = waterfall(result)
    end = (ending(result),) if result.promise else ()
    text = result.summary.text
    return Document(
        title="unstall diff",
        about=(*_side("A", result.a), *_side("B", result.b)),
        summary=text,
        caveats=(caveats,) if caveats.items else (),
        blocks=(
            *((promise,) if promise else ()),
            *(table for table in tables if table.rows),
            *((foot,) if foot.lines else ()),
            *end,
        ),
        data=result,
        annotations=(
            Annotation("notice", "unstall diff", text),
            *(Annotation("warning", "unstall diff", caveat.text) for caveat in result.caveats),
        ),
        page=Page({}, draw, promise),
    )


def _side(name: str, side: Side) -> tuple[Words, Words]:
    known = *software(side.source), None if side.source.has_stacks else "no stacks", _steps(side)
    about = " · ".join(short(part) for part in known if part)
    return words(Span(f"{name} ", "dim"), Span(side.source.path, "subject")), words(Span(f"  {about}", "dim"))


def _steps(side: Side) -> str:
    """Returns a text with the number of steps in a run, their mean duration, and their shortest and
    longest duration.
    """
    steps = side.steps
    if steps.found_by == "whole":
        return f"the whole run, {duration(steps.wall_ns)}"
    text = f"{counted(steps.count, 'step')} of {duration(steps.mean_ns)}"
    if duration(side.shortest_step_ns) == duration(side.longest_step_ns):
        return text
    return f"{text} ({became(side.shortest_step_ns, side.longest_step_ns, 'to')})"


def _table(title: str, names: Sequence[str], rows: Iterable[Row], fold: Literal["", "open"] = "open") -> Table:
    columns = tuple(map(Column, names))
    return Table(words(title), columns, tuple(rows), limited=bool(fold), fold=fold)


def _accounts(result: DiffResult) -> Table:
    of = "run" if result.of_whole_runs else "step"
    rows = []
    for account in result.accounts if not result.empty else ():
        time = account.time_ns
        label = label_of(account.key, account.kind)
        rows.append(row(label, duration(time.a), duration(time.b), signed(time.change)))
    if rows and result.step_ns is not None:
        step = result.step_ns
        figures = duration(step.a), duration(step.b), signed(step.change)
        rows.append(row(words(Span(of, "strong")), *(words(Span(figure, "strong")) for figure in figures)))
    title = f"Where {'the run' if result.of_whole_runs else 'a step'} goes"
    return _table(title, ("A", "B", "change"), rows, fold="")


def _launches(result: DiffResult, over: str) -> Table:
    """Returns a table with the numbers of launches in both runs. Numbers that are the same in both are left out."""
    launches = result.launches
    counts = (
        ()
        if launches is None
        else (
            ("calls that launch", launches.calls),
            ("graph launches", launches.graph_launches),
            ("kernels", launches.kernels),
            ("kernels in graphs", launches.kernels_in_graphs),
        )
    )
    rows = (row(name, number(count.a), number(count.b)) for name, count in counts if not count.same)
    return _table(f"Launches, {over}", ("A", "B"), rows, fold="")


def _foot(result: DiffResult) -> Prose:
    lines = [] if result.empty else [_unchanged(result), _NOISE if result.step_ns and result.step_ns.noise else ""]
    return Prose(tuple(words(line) for line in lines if line), small=True)


def _unchanged(result: DiffResult) -> str:
    same = result.unchanged
    kinds = ((same.waits, "wait"), (same.copies, "copy"), (same.kernels, "kernel"), (same.lines, "line"))
    parts = [counted(number, noun) for number, noun in kinds if number]
    return f"Unchanged, apart from noise: {', '.join(parts)}." if parts else ""


def became(a: int, b: int, arrow: str = "→") -> str:
    """Returns two durations, given in ns, as one text such as "2.00 → 3.00 ms". `arrow` is what
    stands between them.

    If both durations have the same unit, the text names the unit once.
    """
    left, right = duration(a), duration(b)
    number, _, unit = left.partition(" ")
    alike = unit and unit == right.partition(" ")[2]
    return f"{number if alike else left} {arrow} {right}"


def signed(ns: int) -> str:
    """Returns a change of a duration, given in ns, as text with a sign, such as "+2.00 ms"."""
    return f"+{duration(ns)}" if ns > 0 else duration(ns)


def number(value: float) -> str:
    """Returns a mean count per step as text, such as "8", or "0.5" for something that occurs once in two steps."""
    if value and value < 0.1:
        return "<0.1"
    return f"{value:,.1f}".removesuffix(".0")


def _numbers(count: Count) -> str:
    """Returns the counts of both runs as text, such as "2 → 3". If the counts are equal, the text is one number."""
    return number(count.a) if count.same else f"{number(count.a)} → {number(count.b)}"


def _time(time: Time) -> str:
    return duration(time.a) if time.a == time.b else became(time.a, time.b)


def both_places(a: Where | None, b: Where | None) -> str:
    """Returns the place of one source line in run A and its place in run B as one text.

    If only the line number differs, the text is like `train.py:14 (was 12) in step`. If the places
    differ otherwise, an arrow stands between them. A place that is None is left out.
    """
    if a is None or b is None:
        return _named(a or b or Where())
    a, b = (msgspec.structs.replace(where, called_from=None) for where in (a, b))
    texts = _named(a), _named(b)
    if texts[0] == texts[1]:
        return texts[0]
    if a.line is not None and b.line is not None and msgspec.structs.replace(b, line=a.line) == a:
        return texts[1].replace(f":{b.line}", f":{b.line} (was {a.line})", 1)
    return f"{texts[0]} → {texts[1]}"


def _named(where: Where) -> str:
    return " · ".join(part for part in (place(where), operator(where)) if part) or UNKNOWN_LINE


def _change(title: Span, status: Status, figures: Sequence[str], *details: str) -> Row:
    """Returns a table row for one change. The text below the row says the change's status, followed by `details`."""
    said = ", ".join(detail for detail in details if detail)
    label = "noise" if status == "within noise" else status
    below = words(Span(label, _ROLES[status]), Span(f", {said}", "dim") if said else "")
    return row(words(title), *figures, below=[below])


def _wait(change: WaitChange) -> Row:
    figures = _numbers(change.count), _time(change.wait_ns), _time(change.exposed_ns)
    return _change(Span(both_places(change.where_a, change.where_b), "place"), change.status, figures)


def _copy(change: CopyChange) -> Row:
    how = f"became {', '.join(change.became)}" if change.became else _memory(change)
    sizes = size(change.bytes.a), size(change.bytes.b)
    moved = sizes[0] if change.bytes.a == change.bytes.b else f"{sizes[0]} → {sizes[1]}"
    figures = _numbers(change.count), moved, _time(change.device_ns)
    title = Span(both_places(change.where_a, change.where_b), "place")
    return _change(title, change.status, figures, change.direction, how)


def _memory(change: CopyChange) -> str:
    """Returns a text such as "pageable, blocking" for copies between host and device.

    The first word is the kind of host memory. It is left out if the kind is unknown, or if both
    kinds occur. The second word is left out if no copy blocked the host.
    """
    pageable, pinned = (bool(kind.a or kind.b) for kind in (change.pageable, change.pinned))
    kind = "" if pageable == pinned else "pageable" if pageable else "pinned"
    return ", ".join(part for part in (kind, "blocking" if change.blocking.a or change.blocking.b else "") if part)


def _kernels(changes: Sequence[KernelChange]) -> Iterator[Row]:
    """Yields a table row for each changed kernel.

    Names are shortened to 150 characters. If that makes the names of two kernels equal, these two
    are shortened to 1,000 characters instead: the names of two kernels may differ in a single
    template argument.
    """
    times = Counter(short(change.name, _LONGEST_KERNEL) for change in changes)
    for change in changes:
        longest = _LONGEST_KERNEL if times[short(change.name, _LONGEST_KERNEL)] == 1 else _LONGEST_ALIKE
        figures = _numbers(change.count), _time(change.device_ns), signed(change.device_ns.change)
        named = any(place(where) for where in (change.where_a, change.where_b) if where)
        where = both_places(change.where_a, change.where_b) if named else ""
        yield _change(Span(short(change.name, longest), "name"), change.status, figures, where)


def _line(change: LineChange) -> Row:
    figures = _time(change.device_ns), _time(change.idle_ns), _time(change.wait_ns)
    cost = signed(change.cost_ns.change) if change.cost_ns.change else ""
    return _change(Span(both_places(change.where_a, change.where_b), "place"), change.status, figures, cost)
