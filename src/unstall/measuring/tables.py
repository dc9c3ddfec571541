"""Comparisons as tables: one after the other in full, or several inputs against all functions in one."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from functools import partial

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from unstall.figures import counted
from unstall.measuring.comparison import Candidate, Comparison
from unstall.measuring.statistics import Interval
from unstall.measuring.wording import capital, names_of, precise
from unstall.report.wording import plain

_WIDEST = 120
_WAYS = ((None, True), (24, True), (18, True), (12, True), (24, False), (12, False))
_TIMES = 2  # from here on a change is told as a factor
_DIFFERS = "DIFFERS"  # instead of an answer: what computes something else is neither fast nor slow
_STYLES = {"FAST": "green", "SLOW": "red", "SAME": "cyan", "UNCLEAR": "yellow", _DIFFERS: "red"}
_BY = {
    "device": "time on the device",
    "wall": "time of a call",
    "throughput": "a call's share, back to back",
}
BEST, TIED = "*", "="
_MARKS = {BEST: "the best", TIED: "not known to be slower than the best"}

# Names are the user's text: nothing in them is markup, an emoji or a number to colour.
_console = partial(Console, highlight=False, markup=False, emoji=False)


def render(rows: Sequence[Comparison], title: str = "", *, width: int = 80) -> str:
    """Plain text, without colours."""
    console = _console(file=io.StringIO(), width=min(width, _WIDEST), color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(_blocks(rows, title))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def show(rows: Sequence[Comparison], title: str = "") -> None:
    """Print it to stdout, in colour where that is a terminal (`NO_COLOR`, `COLUMNS` are honoured)."""
    console = _console()
    if not console.is_terminal:
        print(render(rows, title, width=console.width))
        return
    console.width = min(console.width, _WIDEST)
    console.print(_blocks(rows, title))


def notebook(rows: Sequence[Comparison], title: str = "") -> str:
    """An HTML fragment for a notebook's output cell."""
    console = _console(file=io.StringIO(), width=100, record=True, color_system="standard")
    console.print(_blocks(rows, title))
    return console.export_html(inline_styles=True, code_format='<pre style="line-height:normal">{code}</pre>')


def _blocks(rows: Sequence[Comparison], title: str) -> Group:
    blocks: list[RenderableType] = []
    if title:
        blocks += [Text(plain(title), style="bold"), Text()]
    if len(rows) == 1:
        blocks += [_heading(rows[0]), Text(), _Fitting(_ones(rows)), *_said(rows[0])]
    else:
        blocks += [_headings(rows), Text(), _Fitting([_grid(rows), *_ones(rows)]), *_legend(rows)]
        blocks += [line for row in rows for line in _wrong(row, within=f" at {row.label}")]
        blocks += [Text(plain(note), style="bold yellow") for note in _merged(rows)]
    return Group(*blocks)


def _merged(rows: Sequence[Comparison]) -> list[str]:
    """What was noted at each input, once where it is the same at several."""
    at = _together((note, row.label) for row in rows for note in row.notes)
    return [note if len(labels) == len(rows) else f"{names_of(labels)}: {note}" for note, labels in at.items()]


def _together(said: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """By text those that it is said of."""
    of: dict[str, list[str]] = {}
    for text, name in said:
        of.setdefault(text, []).append(name)
    return of


def _headings(rows: Sequence[Comparison]) -> RenderableType:
    """One for all, where they are alike."""
    each = [_heading(row) for row in rows]
    if len({text.plain for text in each}) == 1:
        return each[0]
    return Group(*(Text(plain(f"{row.label}: "), style="dim") + text for row, text in zip(rows, each, strict=True)))


def _heading(row: Comparison) -> Text:
    torch = row.versions.get("torch")
    about = [row.device_name, f"torch {torch}" if torch else "", _BY[row.by], f"{row.cache} cache"]
    lines = [" · ".join(part for part in about if part), *([capital(row.because)] if row.because else [])]
    return Text("\n".join(map(plain, lines)), style="dim", overflow="fold")


class _Fitting:
    """The first of several ways to say the same that fits the width; else the last."""

    def __init__(self, ways: Sequence[RenderableType]) -> None:
        self._ways = ways

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> list[RenderableType]:
        wide = options.update_width(4 * _WIDEST)
        fitting = (way for way in self._ways if console.measure(way, options=wide).maximum <= options.max_width)
        return [next(fitting, self._ways[-1])]


def _ones(rows: Sequence[Comparison]) -> list[RenderableType]:
    """Each comparison in full, below each other; then with names in lines of their own, then without intervals."""
    return [Group(*(_one(row, name, intervals) for row in rows)) for name, intervals in _WAYS]


def _one(row: Comparison, width: int | None, intervals: bool) -> RenderableType:
    """Names may be of so many columns."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column(Text(plain(row.label), style="bold"), overflow="fold")
    for heading in ("time", "95 % interval", "", "ratio", "95 % interval"):
        if intervals or heading != "95 % interval":
            table.add_column(heading, justify="left" if not heading else "right", no_wrap=True)
    for each in row.candidates:
        time, mark = each.time, _mark(row, each)
        name = Table.grid(padding=(0, 1, 0, 0))
        name.add_column(width=1)
        name.add_column(overflow="fold", max_width=width)
        name.add_row(mark, Text(plain(each.name), style="bold" if mark else ""))
        cells = [precise(time.median), _between(time.low, time.high), _answer(each)]
        cells += ["", ""] if each.answer is None else [_ratio(each.ratio.median), _interval(each)]
        table.add_row(name, *(cells if intervals else (cells[0], cells[2], cells[3])))
    return table


def _said(row: Comparison) -> list[RenderableType]:
    lines: list[RenderableType] = [Text(), *(_sentence(each, row) for each in row.candidates[1:] if each.agrees)]
    lines += _wrong(row)
    lines += [Text(plain(note), style="bold yellow", overflow="fold") for note in row.notes]
    agreed = [each for each in row.candidates if each.agreement is not None and each.agreement.agrees]
    texts = _together((each.agreement.text, each.name) for each in agreed if each.agreement is not None)
    lines += [Text(plain(f"{names_of(names)}: {text}"), style="dim", overflow="fold") for text, names in texts.items()]
    ran = f"{counted(row.rounds, 'round')} by turns: {row.stopped}"
    marks = {_mark(row, each) for each in row.candidates}
    legend = [f"{mark} {meaning}" for mark, meaning in _MARKS.items() if mark in marks]
    lines.append(Text("; ".join([ran, f"SAME is within {100 * row.margin:.2g} %", *legend]), style="dim"))
    return lines


def _answer(each: Candidate) -> Text:
    said = "" if each.answer is None else each.answer if each.agrees else _DIFFERS
    return Text(said, style=_STYLES.get(said, ""))


def _sentence(each: Candidate, row: Comparison) -> Text:
    first, ratio = row.candidates[0].name, each.ratio
    if each.answer == "SAME":
        text = f"{each.name} takes as long as {first}, within {_off(ratio.low, ratio.high)}"
    elif each.answer == "UNCLEAR":
        text = f"{each.name} may take {_range(ratio.low, ratio.high)} of {first}'s time: give it more seconds"
    else:
        text = f"{each.name} {_change(ratio, first)}"
    return Text(plain(text), style="bold", overflow="fold")


def _change(ratio: Interval, first: str) -> str:
    more = ratio.median > 1
    if ratio.median >= _TIMES or ratio.median <= 1 / _TIMES:
        times = ratio.median if more else 1 / ratio.median
        return (
            f"is {f'{times:,.0f}' if times >= 100 else f'{times:.3g}'} times as {'slow' if more else 'fast'} as {first}"
        )
    change = abs(1 - ratio.median)
    low, high = sorted((abs(1 - ratio.low), abs(1 - ratio.high)))
    return f"takes {100 * change:.3g} % {'more' if more else 'less'} time than {first} ({_range(low, high)})"


def _wrong(row: Comparison, within: str = "") -> list[Text]:
    return [
        Text(
            plain(f"{each.name} does not compute what {row.candidates[0].name} does{within}: {each.agreement.text}"),
            style="bold red",
            overflow="fold",
        )
        for each in row.candidates
        if each.agreement is not None and not each.agreement.agrees
    ]


def _grid(rows: Sequence[Comparison]) -> RenderableType:
    """Inputs down, functions across."""
    names = [each.name for each in rows[0].candidates]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("", overflow="fold")
    for number, name in enumerate(names):
        table.add_column(Text(plain(name)), justify="right", overflow="fold")
        if number:
            table.add_column("", no_wrap=True)
    for row in rows:
        cells: list[Text] = []
        for number, each in enumerate(row.candidates):
            mark = _mark(row, each)
            cells.append(Text(f"{precise(each.time.median)} {mark or ' '}", style="bold" if mark else ""))
            if number:
                cells.append(_answer(each).append(f" {_ratio(each.ratio.median)}"))
        table.add_row(Text(plain(row.label)), *cells)
    return table


def _legend(rows: Sequence[Comparison]) -> list[Text]:
    margin = 100 * rows[0].margin
    tied = any(_mark(row, each) == TIED for row in rows for each in row.candidates)
    best = f"{BEST} the best" + (f", {TIED} not known to be slower than it by {margin:.2g} %" if tied else "")
    return [
        Text(),
        Text(f"{best}; ratios are of the time to that of {plain(rows[0].candidates[0].name)}", style="dim"),
    ]


def _mark(row: Comparison, each: Candidate) -> str:
    """BEST of a single best, TIED of several that cannot be told apart."""
    if not each.best:
        return ""
    return BEST if sum(other.best for other in row.candidates) == 1 else TIED


def _between(low: float, high: float) -> str:
    return f"{precise(low)} - {precise(high)}"


def _ratio(ratio: float) -> str:
    """Three digits at least."""
    if ratio < 0.1:
        return f"{ratio:.3g}"
    return f"{ratio:.3f}" if ratio < 10 else f"{ratio:,.1f}" if ratio < 1000 else f"{ratio:,.0f}"


def _interval(each: Candidate) -> str:
    return f"{_ratio(each.ratio.low)} - {_ratio(each.ratio.high)}"


def _range(low: float, high: float) -> str:
    return f"{100 * low:.3g} to {100 * high:.3g} %"


def _off(low: float, high: float) -> str:
    """The farther end of the interval from 1."""
    return f"{100 * max(high - 1, 1 - low, 0):.2g} %"
