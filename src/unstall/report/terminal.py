"""The result for a terminal, a pipe or a text file.

Only the sixteen colours that a terminal's theme defines are used, and never white or black, so that light and
dark themes both read well; what a colour says is said by a glyph or a word too.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from unstall.figures import duration, share
from unstall.report.wording import (
    EXPOSED,
    Part,
    costly,
    device_rows,
    harmless,
    often,
    parts,
    per_step,
    place,
    plain,
    said,
    short,
    source_line,
    steps_line,
)
from unstall.result import Finding, LineCost, Result, Where

_TOP = 10
_WIDEST = 120
_FIGURE_WIDTH = 8
_TAIL = 2  # last components of a path that tables show
_STYLES: dict[str, tuple[str, str]] = {
    "compute": ("█", "green"),
    "both": ("▓", "cyan"),
    "copy": ("▒", "blue"),
    "comm": ("▚", "magenta"),
    "idle: sync": ("░", "red"),
    "idle: launch": (":", "yellow"),
    "idle: input": ("~", "magenta"),
    "idle: copy": ("-", "blue"),
    "idle: allocator": ("+", "red"),
    "idle: comm": ("=", "magenta"),
    "idle: startup": ("^", "cyan"),
    "idle: python": ("%", "yellow"),
    "idle: event": ("!", "red"),
    "idle: latency": ("·", "dim"),
}


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
    blocks = [
        _heading(result),
        Text(plain(result.verdict.text), style="bold"),
        _accounts(result),
        _devices(result),
        _findings(result, top),
        _harmless(harmless(result), top),
        _lines(result.lines, top),
        _notes(result),
    ]
    shown: list[RenderableType] = []
    for block in blocks:
        if block is not None:
            shown += [Text(), block] if shown else [block]
    return Group(*shown)


def _heading(result: Result) -> RenderableType:
    return Group(
        Text(plain(result.source.path), style="bold", overflow="fold"),
        Text(source_line(result), style="dim"),
        Text(steps_line(result), style="dim"),
    )


def _devices(result: Result) -> RenderableType | None:
    rows = device_rows(result)
    if not rows:
        return None
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="dim")
    table.add_column(Text("Each device", style="bold"), overflow="fold")
    table.add_column("busy", justify="right", no_wrap=True)
    table.add_column("idle", no_wrap=True)
    for name, busy, idle in rows:
        table.add_row(Text(name), busy, idle)
    return table


class _Bar:
    """The accounts as one bar over the whole width, each part at least a cell."""

    def __init__(self, accounts: list[Part]) -> None:
        self._accounts = accounts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> list[Text]:
        bar = Text(no_wrap=True)
        for part, cells in zip(self._accounts, _cells(self._accounts, options.max_width), strict=True):
            glyph, style = _look(part)
            bar.append(glyph * cells, style)
        return [bar]


def _cells(accounts: list[Part], width: int) -> list[int]:
    """Cells of each part: in proportion, none empty, and exactly `width` in all."""
    total = sum(part.ns for part in accounts)
    spare = width - len(accounts)
    bounds, seen = [0], 0
    for part in accounts:
        seen += part.ns
        bounds.append(spare * seen // total)
    return [1 + right - left for left, right in pairwise(bounds)]


def _accounts(result: Result) -> RenderableType | None:
    accounts = parts(result.accounts)
    if not accounts or result.verdict.bound_by == "none":
        return None
    legend = Table.grid(padding=(0, 1))
    for _ in range(2):
        for justify in ("left", "left", "right", "right"):
            legend.add_column(justify=justify, no_wrap=True)
        legend.add_column(min_width=3)
    cells = [_legend(result, part) for part in accounts]
    half = (len(cells) + 1) // 2
    for row, left in enumerate(cells[:half]):
        right = cells[half + row] if half + row < len(cells) else ()
        legend.add_row(*left, "", *right)
    return Group(_Bar(accounts), Text(), legend)


def _look(part: Part) -> tuple[str, str]:
    return _STYLES[f"idle: {part.key}" if part.kind == "idle" else part.key]


def _legend(result: Result, part: Part) -> tuple[Text, ...]:
    glyph, style = _look(part)
    return (
        Text(glyph * 2, style),
        Text(part.label),
        Text(duration(per_step(result, part.ns))),
        Text(share(part.ns, result.accounts.wall_ns)),
    )


def _findings(result: Result, top: int) -> RenderableType:
    findings = costly(result)
    if not findings:
        return Text("No finding that costs anything.")
    with_gain = any(finding.gain_ns is not None for finding in findings)
    gain_column = ["gain"] if with_gain else []
    blocks: list[RenderableType] = [_table("Findings, per step", *gain_column, "exposed", "host waits")]
    for number, finding in enumerate(findings[:top], 1):
        gain = [_gain(finding)] if with_gain else []
        row = _table(None, *gain_column, "exposed", "host waits")
        row.add_row(_title(number, finding), *gain, duration(finding.exposed_ns), duration(finding.wait_ns))
        blocks += [*([Text()] if number > 1 else []), row, Padding(_details(finding), (0, 0, 0, 3))]
    return Group(*blocks, *_more(findings, top), Text(), Text(EXPOSED, style="dim"))


def _title(number: int, finding: Finding) -> RenderableType:
    numbered = Table.grid(padding=(0, 1))
    numbered.add_column(no_wrap=True)
    numbered.add_column(overflow="fold")
    numbered.add_row(f"{number}.", Text.assemble((plain(finding.title), "bold"), (often(finding), "dim")))
    return numbered


def _gain(finding: Finding) -> str:
    return "" if finding.gain_ns is None else duration(finding.gain_ns)


def _details(finding: Finding) -> RenderableType:
    where = finding.where
    rows = Table.grid(padding=(0, 1))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    line = Text(place(where) or "no source line known", style="cyan")
    if where.op:
        line.append(f" · {short(where.op)}", "dim")
    rows.add_row("at", line)
    if where.called_from:
        rows.add_row("from", Text(place(where.called_from), style="cyan"))
    for label, text in (("saw", finding.saw), ("do", finding.fix), ("safe if", finding.safe_if)):
        if said(text):
            rows.add_row(label, Text(plain(text)))
    return rows


def _harmless(findings: list[Finding], top: int) -> RenderableType | None:
    if not findings:
        return None
    table = _table("Costing nothing", "exposed", "host waits")
    for finding in findings[:top]:
        line = Text(f"{plain(finding.title)}{often(finding)}", overflow="fold")
        line.append(f" · {_brief(finding.where)}", "dim")
        table.add_row(line, duration(finding.exposed_ns), duration(finding.wait_ns))
    return Group(table, *_more(findings, top))


def _lines(lines: tuple[LineCost, ...], top: int) -> RenderableType | None:
    if not lines:
        return None
    table = _table("Cost by line, per step", "launches", "device", "device idle", "host waits")
    for line in lines[:top]:
        place_and_op = Text(_brief(line.where), overflow="fold")
        if line.where.op:
            place_and_op.append(f" · {short(line.where.op)}", "dim")
        table.add_row(
            place_and_op,
            f"{line.launches:,}",
            duration(line.device_ns),
            duration(line.idle_ns),
            duration(line.wait_ns),
        )
    return Group(table, *_more(lines, top))


def _brief(where: Where) -> str:
    """The place with no more of its path than tells files apart at a glance."""
    if where.file:
        where = msgspec.structs.replace(where, file=_tail(where.file))
    return place(where) or "no source line known"


def _tail(path: str) -> str:
    parts = path.replace("\\", "/").split("/")
    return path if len(parts) <= _TAIL else "…/" + "/".join(parts[-_TAIL:])


def _table(title: str | None, *figures: str) -> Table:
    """Text on the left, figures on the right, which line up under the same names whether these are shown or not."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, expand=True, show_header=title is not None)
    table.add_column(Text(title or "", style="bold"), ratio=1, overflow="fold")
    for name in figures:
        table.add_column(Text(name, style="dim"), justify="right", width=max(len(name), _FIGURE_WIDTH), no_wrap=True)
    return table


def _more(items: Sequence[object], top: int) -> list[Text]:
    return [Text(f"… and {len(items) - top:,} more: --top {len(items)}", style="dim")] if len(items) > top else []


def _notes(result: Result) -> RenderableType | None:
    notes = result.integrity.notes
    if not notes:
        return None
    heading = Text("Notes on the data", style="bold")
    if not result.integrity.ok:
        heading = Text("The data is not sound: figures may be wrong", style="bold red")
    bullets = Table.grid(padding=(0, 1))
    bullets.add_column(no_wrap=True)
    bullets.add_column(overflow="fold")
    for note in notes:
        bullets.add_row("-", Text(plain(note)))
    return Group(heading, bullets)
