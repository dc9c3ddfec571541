"""What changed between two runs, for a terminal, a pipe or a text file."""

from __future__ import annotations

import io
from functools import partial

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from unstall.diff.result import DiffResult, Side
from unstall.diff.wording import (
    NOISE,
    Section,
    label,
    launch_rows,
    run_line,
    sections,
    signed,
    steps_line,
    unchanged,
)
from unstall.figures import duration
from unstall.report.wording import plain

_TOP = 10
_WIDEST = 120
_FIGURE_WIDTH = 17
_STYLES = {"new": "yellow", "gone": "cyan", "noise": "dim"}

# Names from a trace are text: nothing in them is markup, an emoji or a number to colour.
_console = partial(Console, highlight=False, markup=False, emoji=False)


def render(result: DiffResult, *, top: int | None = None, width: int = 80) -> str:
    """The comparison as plain text, without colours."""
    console = _console(file=io.StringIO(), width=min(width, _WIDEST), color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(_report(result, top))
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def show(result: DiffResult, *, top: int | None = None) -> None:
    """Print it to stdout, in colour where that is a terminal (`NO_COLOR`, `COLUMNS` are honoured)."""
    console = _console()
    if not console.is_terminal:
        print(render(result, top=top, width=console.width), end="")
        return
    console.width = min(console.width, _WIDEST)
    console.print(_report(result, top))


def _report(result: DiffResult, top: int | None) -> Group:
    top = _TOP if top is None else top
    blocks = [
        Group(_run("A", result.a), _run("B", result.b)),
        _caveats(result),
        Text(plain(result.summary.text), style="bold"),
        _accounts(result),
        _launches(result),
        *(_section(section, top) for section in sections(result)),
        _foot(result),
    ]
    shown: list[RenderableType] = []
    for block in blocks:
        if block is not None:
            shown += [Text(), block] if shown else [block]
    return Group(*shown)


def _run(name: str, side: Side) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(name, style="bold"), Text(plain(side.source.path), style="bold", overflow="fold"))
    about = " · ".join(part for part in (run_line(side), steps_line(side)) if part)
    grid.add_row("", Text(about, style="dim"))
    return grid


def _caveats(result: DiffResult) -> RenderableType | None:
    if not result.caveats:
        return None
    bullets = Table.grid(padding=(0, 1))
    bullets.add_column(no_wrap=True)
    bullets.add_column(overflow="fold")
    for caveat in result.caveats:
        bullets.add_row("-", Text(plain(caveat.text)))
    return Group(Text("Before you compare", style="bold"), bullets)


def _accounts(result: DiffResult) -> RenderableType | None:
    if not result.accounts or result.empty:
        return None
    table = _figures("Where a step goes", "A", "B", "change")
    for account in result.accounts:
        time = account.time_ns
        table.add_row(label(account), duration(time.a), duration(time.b), signed(time.change))
    if result.step_ns is not None:
        step = result.step_ns
        table.add_row(
            Text("step", style="bold"), *(Text(text, style="bold") for text in _step(step.a, step.b, step.change))
        )
    return table


def _step(a: int, b: int, change: int) -> tuple[str, str, str]:
    return duration(a), duration(b), signed(change)


def _launches(result: DiffResult) -> RenderableType | None:
    rows = launch_rows(result)
    if not rows:
        return None
    table = _figures("Launches, per step", "A", "B", "")
    for row in rows:
        table.add_row(*row, "")
    return table


def _section(section: Section, top: int) -> RenderableType:
    blocks: list[RenderableType] = [_figures(section.heading, *section.columns)]
    for row in section.rows[:top]:
        title = Text(row.title, style="cyan" if section.kind == "place" else "", overflow="fold")
        figures = _figures(None, *section.columns)
        figures.add_row(Text(f"  {row.status}", style=_STYLES.get(row.status.partition(",")[0], "")), *row.figures)
        blocks += [title, figures]
        if row.detail:
            blocks.append(Padding(Text(row.detail, style="dim", overflow="fold"), (0, 0, 0, 2)))
    if len(section.rows) > top:
        more = f"… and {len(section.rows) - top:,} more: --top {len(section.rows)}"
        blocks.append(Text(more, style="dim"))
    return Group(*blocks)


def _figures(title: str | None, *columns: str) -> Table:
    """Text on the left, figures on the right, which line up under the same names whether these are shown or not."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, expand=True, show_header=title is not None)
    table.add_column(Text(title or "", style="bold"), ratio=1, overflow="fold")
    for name in columns:
        table.add_column(Text(name, style="dim"), justify="right", width=_FIGURE_WIDTH, no_wrap=True)
    return table


def _foot(result: DiffResult) -> RenderableType | None:
    lines = [] if result.empty else [unchanged(result), NOISE if result.step_ns and result.step_ns.noise else ""]
    shown = [Text(line, style="dim") for line in lines if line]
    return Group(*shown) if shown else None
