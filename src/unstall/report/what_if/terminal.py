"""The answer for a terminal, a pipe or a text file."""

from __future__ import annotations

import io
from functools import partial

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from unstall.figures import duration, share
from unstall.report.bar import Bar, look
from unstall.report.what_if.wording import conclusion, rows
from unstall.report.wording import Part, parts, plain, run_lines, source_line
from unstall.result import WhatIf

_WIDEST = 120
_INDENT = 3

# Names from a trace are text: nothing in them is markup, an emoji or a number to colour.
_console = partial(Console, highlight=False, markup=False, emoji=False)


def render(result: WhatIf, *, width: int = 80) -> str:
    """The answer as plain text, without colours."""
    console = _console(file=io.StringIO(), width=min(width, _WIDEST), color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(_answer(result))
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def show(result: WhatIf) -> None:
    """Print it to stdout, in colour where that is a terminal (`NO_COLOR`, `COLUMNS` are honoured)."""
    console = _console()
    if not console.is_terminal:
        print(render(result, width=console.width), end="")
        return
    console.width = min(console.width, _WIDEST)
    console.print(_answer(result))


def _answer(result: WhatIf) -> Group:
    blocks: list[RenderableType] = [
        Text(plain(result.source.path), style="bold", overflow="fold"),
        Text(source_line(result), style="dim"),
        *(Text(line, style="dim") for line in run_lines(result)),
        Text(),
        Text(conclusion(result), style="bold"),
        Text(),
        _steps(result),
        Text(),
        *_accounts(result),
    ]
    said = [*(f"inferred: {text}" for text in result.inferred), *(f"note: {text}" for text in result.integrity.notes)]
    if said:
        blocks += [Text(), *(Text(plain(text), style="dim") for text in said)]
    return Group(*blocks)


def _steps(result: WhatIf) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, expand=True, header_style="dim")
    table.add_column(Text("A step", style="bold"), ratio=1, overflow="fold")
    table.add_column("takes", justify="right", no_wrap=True)
    table.add_column("gain", justify="right", no_wrap=True)
    for what, takes, gain, remarks in rows(result):
        said = [Padding(Text(remark, "dim"), (0, 0, 0, _INDENT)) for remark in remarks]
        table.add_row(Group(Text(what, "cyan" if gain else ""), *said), Text(takes, "bold"), gain)
    return table


def _accounts(result: WhatIf) -> list[RenderableType]:
    """Both runs' accounts on one scale: a shorter step is a shorter bar. Without an edit there is one run."""
    before, after = parts(result.before), parts(result.after)
    if not before or not after:
        return []
    if not result.edits:
        return [Bar(before), Text(), _legend(before, result)]
    longest = max(result.before.wall_ns, result.after.wall_ns)
    known = {part.key + part.kind: part for part in (*before, *after)}
    legend = Table.grid(padding=(0, 1))
    for justify in ("left", "left", "right", "right", "right"):
        legend.add_column(justify=justify, no_wrap=True)
    legend.add_row("", Text("per step", style="dim"), Text("before", style="dim"), Text("after", style="dim"), "")
    for key, part in known.items():
        glyph, style = look(part)
        legend.add_row(
            Text(glyph * 2, style),
            part.label,
            _of(before, key, result),
            _of(after, key, result),
            _change(before, after, key, result),
        )
    return [
        Text("before", style="dim"),
        _Scaled(before, result.before.wall_ns / longest),
        Text("after", style="dim"),
        _Scaled(after, result.after.wall_ns / longest),
        Text(),
        legend,
    ]


def _legend(accounts: list[Part], result: WhatIf) -> Table:
    legend = Table.grid(padding=(0, 1))
    for justify in ("left", "left", "right", "right"):
        legend.add_column(justify=justify, no_wrap=True)
    legend.add_row("", Text("per step", style="dim"), "", "")
    for part in accounts:
        glyph, style = look(part)
        took = _of(accounts, part.key + part.kind, result)
        legend.add_row(Text(glyph * 2, style), part.label, took, share(part.ns, result.before.wall_ns))
    return legend


class _Scaled:
    """A bar over a share of the width."""

    def __init__(self, accounts: list[Part], width: float) -> None:
        self._bar, self._width, self._least = Bar(accounts), width, len(accounts)

    def __rich_console__(self, console: Console, options: object) -> list[Text]:
        wide = console.options.max_width
        width = max(self._least, round(self._width * wide))
        return self._bar.__rich_console__(console, console.options.update_width(min(width, wide)))


def _of(accounts: list[Part], key: str, result: WhatIf) -> str:
    total = sum(part.ns for part in accounts if part.key + part.kind == key)
    return duration(round(total / max(result.steps.count, 1)))


def _change(before: list[Part], after: list[Part], key: str, result: WhatIf) -> str:
    was = sum(part.ns for part in before if part.key + part.kind == key)
    now = sum(part.ns for part in after if part.key + part.kind == key)
    if abs(now - was) < 0.001 * result.before.wall_ns:
        return ""
    return f"{'-' if now < was else '+'}{share(abs(now - was), result.before.wall_ns)}"
