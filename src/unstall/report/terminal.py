"""The result for a terminal, a pipe or a text file.

Only the sixteen colours that a terminal's theme defines are used, and never white or black, so that light and
dark themes both read well; what a colour says is said by a glyph or a word too.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import partial
from itertools import zip_longest
from typing import TypeAlias

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from unstall.figures import duration, share
from unstall.report.bar import Bar, look
from unstall.report.wording import (
    HARMLESS,
    INTEGRITY,
    UNSOUND,
    WRONG,
    Part,
    aside,
    costly,
    device_rows,
    footnote,
    gain_of,
    harmless,
    has_device_work,
    operator,
    over,
    parts,
    per_step,
    place,
    plain,
    plan_rows,
    rate,
    run_lines,
    said,
    same_advice,
    source_line,
    wrong,
)
from unstall.result import Finding, Result, Where

_TOP = 10
_WIDEST = 120
_FIGURE_WIDTH = 8
_LEAST_TEXT = 24  # columns beside figures; with fewer, figures go below the text
_INDENT = 3
_LINES_TEXT = 35  # columns beside the figures of lines, of 80
_TAIL = 2  # last components of a path that tables show

# Names from a trace are text: nothing in them is markup, an emoji or a number to colour.
_console = partial(Console, highlight=False, markup=False, emoji=False)


def render(result: Result, *, top: int | None = None, width: int = 80) -> str:
    """The report as plain text, without colours."""
    console = _console(file=io.StringIO(), width=min(width, _WIDEST), color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(_report(result, top))
    return _without_trailing_blanks(capture.get())


def show(result: Result, *, top: int | None = None) -> None:
    """Print the report to stdout, in colour where that is a terminal (`NO_COLOR`, `COLUMNS` are honoured)."""
    console = _console()
    if not console.is_terminal:
        print(render(result, top=top, width=console.width), end="")
        return
    console.width = min(console.width, _WIDEST)
    console.print(_report(result, top))


def notebook(result: Result) -> str:
    """The report as an HTML fragment for a notebook's output cell."""
    console = _console(file=io.StringIO(), width=100, record=True, color_system="standard")
    console.print(_report(result, None))
    return console.export_html(inline_styles=True, code_format='<pre style="line-height:normal">{code}</pre>')


def _without_trailing_blanks(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def _report(result: Result, top: int | None) -> Group:
    top = _TOP if top is None else top
    sound = result.integrity.ok
    blocks = [
        _heading(result),
        Text(plain(result.verdict.text), style="bold"),
        None if sound else _notes(result),
        _wrong(result, top),
        _accounts(result),
        _devices(result),
        _findings(result, top) if has_device_work(result) else None,
        _plan(result),
        _harmless(result, top),
        _lines(result, top),
        _notes(result) if sound else None,
    ]
    shown: list[RenderableType] = []
    for block in blocks:
        if block is not None:
            shown += [Text(), block] if shown else [block]
    return Group(*shown)


def _heading(result: Result) -> RenderableType:
    about = source_line(result), *run_lines(result)
    return Group(
        Text(plain(result.source.path), style="bold", overflow="fold"),
        *(Text(line, style="dim") for line in about),
    )


def _devices(result: Result) -> RenderableType | None:
    rows = device_rows(result)
    if not rows:
        return None
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="dim")
    table.add_column(Text("Each device", style="bold"), overflow="fold")
    table.add_column("busy", justify="right", no_wrap=True)
    table.add_column("idle")
    for name, busy, idle in rows:
        table.add_row(Text(name), busy, idle)
    return table


def _accounts(result: Result) -> RenderableType | None:
    accounts = parts(result.accounts)
    if not accounts or not has_device_work(result):
        return None
    return Group(Bar(accounts), Text(), _Legend([_legend(result, part) for part in accounts]))


class _Legend:
    """The accounts in two columns, or in one where two are too wide."""

    def __init__(self, rows: list[tuple[Text, ...]]) -> None:
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> list[Table]:
        two = self._table(2)
        needed = console.measure(two, options=options.update_width(_WIDEST)).maximum
        return [two if needed <= options.max_width else self._table(1)]

    def _table(self, columns: int) -> Table:
        table = Table.grid(padding=(0, 1))
        for column in range(columns):
            if column:
                table.add_column(min_width=3)
            for justify in ("left", "left", "right", "right"):
                table.add_column(justify=justify, no_wrap=True)
        height = -(-len(self._rows) // columns)
        for left, right in zip_longest(self._rows[:height], self._rows[height:], fillvalue=()):
            table.add_row(*left, "", *right)
        return table


def _legend(result: Result, part: Part) -> tuple[Text, ...]:
    glyph, style = look(part)
    return (
        Text(glyph * 2, style),
        Text(part.label),
        Text(duration(per_step(result, part.ns))),
        Text(share(part.ns, result.accounts.wall_ns)),
    )


def _wrong(result: Result, top: int) -> RenderableType | None:
    findings = wrong(result)
    if not findings:
        return None
    blocks: list[RenderableType] = [Text(WRONG, style="bold red")]
    for number, (finding, same) in enumerate(zip(findings[:top], same_advice(findings), strict=False), 1):
        blocks += [
            *([Text()] if number > 1 else []),
            _title(result, number, finding),
            Padding(_details(finding, same), (0, 0, 0, _INDENT)),
        ]
    return Group(*blocks, *_more(findings, top))


def _findings(result: Result, top: int) -> RenderableType:
    findings = costly(result)
    if not findings:
        return Text("No finding that costs anything.")
    with_gain = any(finding.gain_ns is not None for finding in findings)
    names = [*(["gain"] if with_gain else []), "exposed", "host waits"]
    blocks: list[RenderableType] = [_Ledger(f"Findings, {over(result)}", names)]
    for number, (finding, same) in enumerate(zip(findings[:top], same_advice(findings), strict=False), 1):
        gains = [gain_of(result, finding) or "-"] if with_gain else []
        figures = [*gains, duration(finding.exposed_ns), duration(finding.wait_ns)]
        blocks += [
            *([Text()] if number > 1 else []),
            _Ledger(None, names, [(_title(result, number, finding), figures)]),
            Padding(_details(finding, same), (0, 0, 0, _INDENT)),
        ]
    return Group(*blocks, *_more(findings, top), Text(), Text(footnote(result), style="dim"))


def _title(result: Result, number: int, finding: Finding) -> RenderableType:
    numbered = Table.grid(padding=(0, 1))
    numbered.add_column(no_wrap=True)
    numbered.add_column(overflow="fold")
    numbered.add_row(f"{number}.", _named(result, finding, "bold"))
    return numbered


def _named(result: Result, finding: Finding, style: str = "") -> Text:
    beside = aside(result, finding)
    return Text.assemble((plain(finding.title), style), (f"  {beside}" if beside else "", "dim"), overflow="fold")


def _details(finding: Finding, same: int | None) -> RenderableType:
    """`same` is the number of the finding whose advice is this one's too."""
    where = finding.where
    rows = Table.grid(padding=(0, 1))
    rows.add_column(style="dim", no_wrap=True, min_width=len("safe if"))
    rows.add_column(overflow="fold")
    line = Text(place(where) or "no source line known", style="cyan")
    if op := operator(where):
        line.append(f" · {op}", "dim")
    rows.add_row("at", line)
    if where.called_from:
        rows.add_row("from", Text(place(where.called_from), style="cyan"))
    advice = (("do", finding.fix), ("safe if", finding.safe_if)) if same is None else (("do", f"as in {same}"),)
    for label, text in (("saw", finding.saw), *advice):
        if said(text):
            rows.add_row(label, Text(plain(text)))
    return rows


def _plan(result: Result) -> RenderableType | None:
    """The edits in the order to make them, from the step as it is to the floor."""
    rows: list[_Row] = []
    for row in plan_rows(result):
        below = [
            Text(text, style, overflow="fold")
            for text, style in ((row.where, "cyan"), *((n, "dim") for n in row.notes))
        ]
        text = Group(Text(row.what), *(Padding(line, (0, 0, 0, _INDENT)) for line in below if line.plain))
        rows.append((text, (row.step, row.gain)))
    return _Ledger("Plan: the changes in the order to make them", ["a step takes", "gain"], rows) if rows else None


def _harmless(result: Result, top: int) -> RenderableType | None:
    findings = harmless(result)
    if not findings:
        return None
    rows: list[_Row] = []
    for finding in findings[:top]:
        line = _named(result, finding)
        line.append(f" · {_brief(finding.where)}", "dim")
        rows.append((line, [duration(finding.exposed_ns), duration(finding.wait_ns)]))
    return Group(_Ledger(HARMLESS, ["exposed", "host waits"], rows), *_more(findings, top))


def _lines(result: Result, top: int) -> RenderableType | None:
    lines = result.lines
    if not lines:
        return None
    rows: list[_Row] = []
    for line in lines[:top]:
        place_and_op = Text(_brief(line.where), overflow="fold")
        if op := operator(line.where):
            place_and_op.append(f" · {op}", "dim")
        times = (line.device_ns, line.idle_ns, line.wait_ns)
        rows.append((place_and_op, [rate(result, line.launches), *map(duration, times)]))
    names = ["launches", "device", "device idle", "host waits"]
    return Group(_Ledger(f"Cost by line, {over(result)}", names, rows), *_more(lines, top))


def _brief(where: Where) -> str:
    """The place with no more of its path than tells files apart at a glance."""
    if where.file:
        number = len(f":{where.line}") if where.line is not None else 0
        tail = _tail(where.file, _TAIL)
        # One that is longer than its column would be broken within the line's number.
        shown = tail if len(tail) + number <= _LINES_TEXT else _tail(where.file, 1)
        where = msgspec.structs.replace(where, file=shown)
    return place(where) or "no source line known"


def _tail(path: str, most: int) -> str:
    parts = path.replace("\\", "/").split("/")
    return path if len(parts) <= most else "…/" + "/".join(parts[-most:])


_Row: TypeAlias = tuple[RenderableType, Sequence[str]]


class _Ledger:
    """Rows of a text and its figures, which line up under the same names in every ledger; below it in a narrow space.

    Without a title the names are not shown.
    """

    def __init__(self, title: str | None, names: Sequence[str], rows: Sequence[_Row] = ()) -> None:
        self._title, self._names, self._rows = title, names, rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> list[RenderableType]:
        widths = [max(len(name), _FIGURE_WIDTH) for name in self._names]
        if options.max_width - sum(widths) - 2 * len(widths) >= _LEAST_TEXT:
            return [self._beside(widths)]
        return self._below(options.max_width)

    def _beside(self, widths: list[int]) -> Table:
        title = self._title
        table = Table(box=None, padding=(0, 1), pad_edge=False, expand=True, show_header=title is not None)
        table.add_column(Text(title or "", style="bold"), ratio=1, overflow="fold")
        for name, width in zip(self._names, widths, strict=True):
            table.add_column(Text(name, style="dim"), justify="right", width=width, no_wrap=True)
        for text, figures in self._rows:
            table.add_row(text, *figures)
        return table

    def _below(self, width: int) -> list[RenderableType]:
        blocks: list[RenderableType] = [Text(self._title, style="bold")] if self._title else []
        for text, figures in self._rows:
            named = [f"{name} {figure}" for name, figure in zip(self._names, figures, strict=True) if figure]
            lines = _packed(named, width - _INDENT)
            blocks += [text, *(Padding(Text(line, style="dim"), (0, 0, 0, _INDENT)) for line in lines)]
        return blocks


def _packed(items: Sequence[str], width: int) -> list[str]:
    """The items on as few lines as hold them, none broken."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(item) + 3 <= width:
            lines[-1] += f" · {item}"
        else:
            lines.append(item)
    return lines


def _more(items: Sequence[object], top: int) -> list[Text]:
    return [Text(f"… and {len(items) - top:,} more: --top {len(items)}", style="dim")] if len(items) > top else []


def _notes(result: Result) -> RenderableType | None:
    notes = result.integrity.notes
    if not notes:
        return None
    heading = Text(INTEGRITY, style="bold")
    if not result.integrity.ok:
        heading = Text(f"{INTEGRITY}: {UNSOUND}", style="bold red")
    bullets = Table.grid(padding=(0, 1))
    bullets.add_column(no_wrap=True)
    bullets.add_column(overflow="fold")
    for note in notes:
        bullets.add_row("-", Text(plain(note)))
    return Group(heading, bullets)
