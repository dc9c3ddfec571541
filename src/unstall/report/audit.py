"""The report of `unstall audit`: a table with a row for each audited program, and tables of source
lines with findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from unstall.auditing.result import Audit, Failure, Figures, Found, Row
from unstall.document.document import Annotation, Column, Document, Prose, Span, Table, Words, words
from unstall.document.document import Row as TableRow
from unstall.document.plain import plain, short
from unstall.figures import counted, duration, rate
from unstall.report.repository import place_in_repository
from unstall.report.wording import origin, place
from unstall.result import Where

_LEGEND = "in brackets: how often the line waits if not once, and the share of a step that mending it alone saves"


def document(audit: Audit, in_repository: Mapping[str, str] | None = None) -> Document:
    """Returns the report of `unstall audit`.

    `in_repository` maps the path of a source file, as it stands in `audit`, to the file's path
    relative to the root of the git repository. Annotations for continuous integration show the
    latter.
    """
    name = _Names(audit.rows)
    audited = [(row, row.figures) for row in audit.rows if row.figures is not None]
    legend = Prose((words(_LEGEND),), small=True) if any(figures.waits for _, figures in audited) else None
    waits = _lines("Lines where the host waits", audited, lambda found: found.is_wait)
    others = _lines("What else is found", audited, lambda found: not found.is_wait)
    blocks = [_entries(audited, name), legend, waits, others, _failed(audit.failed, name)]
    return Document(
        title="unstall audit",
        about=tuple(_about(audited, name)),
        summary=_summary(audit, [figures for _, figures in audited]),
        blocks=tuple(block for block in blocks if block is not None),
        data=audit,
        annotations=tuple(_annotations(audit, in_repository or {})),
    )


class _Names:
    """The names under which the report shows the audited programs.

    If all programs are functions of one file, `source` is that file, and the names do not contain
    it. Otherwise `source` is "".
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        sources = {row.entry.partition(":")[0] for row in rows}
        self.source = sources.pop() if len(rows) > 1 and len(sources) == 1 else ""

    def of(self, row: Row) -> Span:
        return Span(short(row.entry.removeprefix(f"{self.source}:") if self.source else row.entry), "subject")


def _about(audited: Sequence[tuple[Row, Figures]], name: _Names) -> Iterator[Words]:
    if name.source:
        yield words(Span(plain(name.source), "subject"))
    on = {f"simulated for {figures.device}" if figures.known_error else figures.device for _, figures in audited}
    of = {f"torch {figures.torch}" for _, figures in audited if figures.torch}
    if software := " · ".join(short(text) for text in [*sorted(filter(None, on)), *sorted(of)]):
        yield words(Span(software, "dim"))
    for known in sorted({figures.known_error for _, figures in audited if figures.known_error}):
        yield words(Span(f"known error: {plain(known)}", "dim"))


def _summary(audit: Audit, audited: Sequence[Figures]) -> str:
    wrong = sum(figures.wrong for figures in audited)
    gain = sum(figures.gain > 0 for figures in audited)
    wait = sum(bool(figures.waits) for figures in audited)
    of = counted(len(audit.rows), "entry")
    said = [
        f"{len(audited):,} of {of} audited" if audit.failed else f"{of} audited",
        f"{wrong:,} may compute a wrong result" if wrong else "",
        f"{gain:,} would gain something, {len(audited) - gain:,} nothing" if audited else "",
        f"in {wait:,} the host waits for the GPU" if wait else "",
    ]
    return f"{'; '.join(text for text in said if text)}."


def _entries(audited: Sequence[tuple[Row, Figures]], name: _Names) -> Table | None:
    rows = tuple(
        TableRow(
            words(name.of(row)),
            (
                rate(figures.launches),
                rate(figures.waits_per_step),
                _percent(figures.idle),
                duration(figures.step_ns),
                words(Span(_percent(figures.gain), "good")) if figures.gain else "nothing",
            ),
            tuple(_below(figures)),
        )
        for row, figures in audited
    )
    columns = tuple(map(Column, ("launches", "waits", "idle", "step", "gain")))
    return Table(words("Entries, per step"), columns, rows, limited=True, compact=True) if rows else None


def _below(figures: Figures) -> Iterator[Words]:
    """Yields the lines of text that the table shows below the row of one audited program.

    They say at which source lines the host waits, how often the program copies between host and
    device, and which caveats apply to the figures.
    """
    files: dict[str, dict[str, list[Found]]] = {}
    for wait in sorted(figures.waits, key=lambda wait: wait.where.line or 0):
        file, colon, line = _line(wait.where).rpartition(":")
        files.setdefault(file or line, {}).setdefault(colon and f":{line}", []).append(wait)
    for file, lines in sorted(files.items()):
        told = (f"{line}{_often_and_gain(waits, figures.step_ns)}" for line, waits in lines.items())
        yield words(Span("waits at ", "dim"), Span(file, "place"), f" {', '.join(told)}")
    if figures.copies:
        yield words(Span(f"copies between host and device: {rate(figures.copies)}", "dim"))
    for caveat in figures.caveats:
        yield words(Span(plain(caveat), "warning"))


def _often_and_gain(waits: Sequence[Found], step_ns: int) -> str:
    """Returns a text such as " (2x, 0.7 %)": the number of waits per step at one source line, and
    the share of a step that fixing them saves.

    The number is left out if it is 1, the share if it is unknown. Returns "" if both are left out.
    """
    per_step = sum(wait.per_step for wait in waits)
    gains = [wait.gain_ns for wait in waits if wait.gain_ns]
    told = ["" if per_step == 1 else f"{rate(per_step)}x", _percent(_share(gains, step_ns)) if gains else ""]
    return f" ({', '.join(text for text in told if text)})" if any(told) else ""


def _failed(failed: Sequence[Row], name: _Names) -> Table | None:
    rows = tuple(
        TableRow(words(name.of(row)), (), tuple(_why(row.failure))) for row in failed if row.failure is not None
    )
    return Table(words(Span("Not audited", "bad")), (), rows) if rows else None


def _why(failure: Failure) -> Iterator[Words]:
    yield words(Span(plain(failure.reason), "bad"))
    if failure.log:
        yield words(Span(plain(failure.log), "place"))


@dataclass(slots=True)
class _Line:
    """A finding at one source line, summed up over all audited programs.

    Attributes:
        found: The finding, as one of the programs has it.
        entries: Number of programs that have the finding.
        per_step: How often the finding occurs per step, in the program in which it occurs most
            often.
        gains: The share of a step that fixing the finding saves: one number for each program in
            which that share is known.
    """

    found: Found
    entries: int = 0
    per_step: float = 0.0
    gains: list[float] = field(default_factory=list)


def _lines(title: str, audited: Sequence[tuple[Row, Figures]], chosen: Callable[[Found], bool]) -> Table | None:
    """Returns a table of the findings for which `chosen` is true, or None if there are none.

    The table has a row for each source line and kind of finding, over all audited programs. Bugs
    come first. The other rows are sorted by the sum of their gains, the largest first.
    """
    lines: dict[tuple[object, ...], _Line] = {}
    for _, figures in audited:
        own: dict[tuple[object, ...], list[Found]] = {}
        for found in filter(chosen, figures.findings):
            own.setdefault((found.where.file, found.where.line, found.title), []).append(found)
        for key, several in own.items():  # of several operators
            line = lines.setdefault(key, _Line(several[0]))
            line.entries += 1
            line.per_step = max(line.per_step, sum(found.per_step for found in several))
            known = [max(0, found.gain_ns) for found in several if found.gain_ns is not None]
            line.gains += [_share(known, figures.step_ns)] if known else []
    rows = tuple(
        TableRow(
            words(Span(place(line.found.where), "place", brief=_line(line.found.where))),
            (f"{line.entries:,}", rate(line.per_step), _gain(line)),
            (words(short(line.found.title)),),
        )
        for line in sorted(
            lines.values(),
            key=lambda line: (not line.found.wrong, -sum(line.gains), -line.entries, _line(line.found.where)),
        )
    )
    columns = Column("entries"), Column("times up to"), Column("gain up to")
    return Table(words(f"{title}, per step"), columns, rows, limited=True) if rows else None


def _gain(line: _Line) -> Words:
    if line.found.wrong:
        return words(Span("bug", "bad"))
    if not line.gains:
        return words(Span("not known", "dim"))
    return words(Span(_percent(max(line.gains)), "good")) if max(line.gains) > 0 else words("nothing")


def _line(where: Where) -> str:
    if not where.file:
        return short(where.op or where.function or "somewhere")
    name = short(where.file.replace("\\", "/").rpartition("/")[2])
    return name if where.line is None else f"{name}:{where.line}"


def _share(gains_ns: Sequence[int], step_ns: int) -> float:
    return sum(gains_ns) / step_ns if step_ns else 0.0


def _percent(part: float) -> str:
    """Returns a share as text with at most two digits, such as "97 %", "0.7 %" or "<0.1 %"."""
    percent = 100 * part
    if 0 < percent < 0.05:
        return "<0.1 %"
    return f"{percent:.0f} %" if percent >= 9.95 or not percent else f"{percent:.1f} %"


def _annotations(audit: Audit, in_repository: Mapping[str, str]) -> Iterator[Annotation]:
    """Yields an error for each program that could not be audited and for each bug, and a warning
    for each other finding with a gain.
    """
    for row in audit.rows:
        if row.failure:
            yield Annotation("error", "unstall audit", f"{row.entry}: {row.failure.reason}")
        for found in row.figures.findings if row.figures else ():
            if found.wrong or (found.gain_ns or 0) > 0:
                gain = "results may be wrong" if found.wrong else f"mending it gains {duration(found.gain_ns or 0)}"
                yield Annotation(
                    "error" if found.wrong else "warning",
                    f"unstall: {found.title}",
                    f"{row.entry}: {origin(found.where)}: {gain}. Do: {found.fix}",
                    *place_in_repository(found.where, in_repository),
                )
