"""The reports of `bench` and `compare`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from unstall.document.document import (
    Annotation,
    Column,
    Document,
    Histograms,
    Prose,
    Role,
    Row,
    Sample,
    Span,
    Table,
    Words,
    words,
)
from unstall.figures import capital, counted, duration
from unstall.measuring.comparison import Candidate, Comparison, data_of
from unstall.measuring.measurement import Measurement, Rate, Verdict
from unstall.measuring.saved import saved
from unstall.measuring.statistics import Interval, Spread
from unstall.measuring.wording import names_of, percent, precise

_METHODS = {
    "cupti": "by the device's records (CUPTI)",
    "events": "by events in a full queue",
    "model": "of the virtual GPU",
    "host": "by the host's clock",
}
_MEANING = {
    "device": "on the device",
    "host": "to launch it",
    "wall": "until it is done",
    "throughput": "back to back",
}
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_FACTOR = 2  # from here on a change is said as a factor
_DIFFERS = "DIFFERS"  # instead of an answer: what computes something else is neither fast nor slow
_ROLES: dict[str, Role] = {"FAST": "good", "SLOW": "bad", "SAME": "same", "UNCLEAR": "warning", _DIFFERS: "bad"}
_BY = {
    "device": "time on the device",
    "wall": "time of a call",
    "throughput": "a call's share, back to back",
}
BEST, TIED = "*", "="
_MARKS = {BEST: "the best", TIED: "not known to be slower than the best"}
_TAIL = 0.98  # of the samples are drawn: what is beyond is said in words, or one sample would flatten all
_FAR, _LEAST_WIDE = 8, 0.02  # widths of the middle half, at least that share of the median: beyond, too


def document_of(found: Measurement) -> Document:
    """Returns the report of one measured function: its times, rates, verdicts and notes."""
    times = _times(found)
    is_said = any(each.text.startswith(found.stopped) for each in found.verdicts)
    stopped = [f"{capital(found.stopped)}."] if found.stopped and not is_said else []
    rates = [words(_rate(rate)) for rate in (found.bandwidth, found.rate) if rate is not None]
    notes = [words(Span(text, "dim")) for text in (*stopped, *(f"{capital(note)}." for note in found.notes))]
    said = (*rates, *map(_verdict, found.verdicts), *notes)
    method = found.method if found.device is not None else "host"
    device = f"{found.device_name} · {_METHODS[method]} · {found.cache} cache"
    columns = Column(""), Column("", "left"), *(Column("", "left", extra=True) for _ in range(2)), Column("", "left")
    drawn = times if found.device is not None else {"wall": found.wall}
    return Document(
        title=found.label,
        about=(words(Span(found.label, "strong")), words(Span(device, "dim"))),
        blocks=(
            Histograms((tuple(_sample(name, spread) for name, spread in drawn.items()),)),
            Table(words(), columns, tuple(_time(name, spread) for name, spread in times.items()), compact=True),
            *((Prose(said),) if said else ()),
        ),
        data=saved(found),
        annotations=(
            *(
                Annotation("notice", found.label, f"{duration(round(spread.median))} {_MEANING[name]}")
                for name, spread in times.items()
            ),
            *(Annotation("warning", found.label, each.text) for each in found.verdicts if each.serious),
        ),
    )


def _times(found: Measurement) -> Mapping[str, Spread]:
    on_device = found.device is not None or found.throughput is not None
    each = {name: getattr(found, name) for name in (_MEANING if on_device else ("wall",))}
    return {name: spread for name, spread in each.items() if spread is not None}


def _time(name: str, spread: Spread) -> Row:
    alike = spread.n > 1 and spread.low == spread.high  # as a model's
    sure = f"± {percent(spread.relative_ci)}" if (spread.is_bounded or alike) and spread.relative_ci < 10 else ""
    middle = f"{duration(round(spread.q1))} to {duration(round(spread.q3))}" if spread.n > 1 else ""
    dim = (words(Span(text, "dim")) for text in (middle, f"n = {spread.n:,}", _MEANING[name]))
    return Row(words(Span(name, "strong")), (duration(round(spread.median)), sure, *dim))


def _verdict(verdict: Verdict) -> Words:
    place = f" ({verdict.place})" if verdict.place else ""
    return words(Span(verdict.kind, "bad" if verdict.serious else "warning"), f": {verdict.text}{place}.")


def _rate(rate: Rate) -> str:
    scale, prefix = next(((scale, prefix) for scale, prefix in _PREFIXES if rate.per_second >= scale), (1.0, ""))
    percent = (
        f": {rate.percent:.0f} % of {_figure(rate.ceiling / scale)} {prefix}{rate.unit}, {rate.of}"
        if rate.ceiling and rate.percent
        else ""
    )
    return f"{rate.per_second / scale:.3g} {prefix}{rate.unit}{percent}"


def _figure(value: float) -> str:
    """Formats a number with three digits and without a power of ten, such as "35.4" or "4,180"."""
    return f"{value:.3g}" if value < 999.5 else f"{float(f'{value:.3g}'):,.0f}"


def _sample(name: str, spread: Spread) -> Sample:
    """Returns the samples for a histogram. Leaves out the longest samples, but keeps the median's whole interval."""
    ordered = np.sort(spread.samples)
    far = spread.q3 + _FAR * max(spread.iqr, _LEAST_WIDE * spread.median)
    near = min(int(np.ceil(_TAIL * spread.n)), int(np.searchsorted(ordered, far, side="right")))
    shown = ordered[: max(near, int(np.searchsorted(ordered, spread.high, side="right")), 1)]
    beyond = spread.n - len(shown)
    more = f", {beyond:,} beyond, up to {precise(float(ordered[-1]))}" if beyond else ""
    about = f"{precise(spread.median)} · {spread.n:,} samples{more}"
    return Sample(name, about, shown.tolist(), spread.median, spread.low, spread.high)


def document_of_rows(rows: Sequence[Comparison], label: str = "") -> Document:
    """Returns the report of comparisons. Each of `rows` is the comparison of the same functions at
    one input.

    The report of one comparison has all figures. The report of several is a table with one line per
    input and one column per function. `label` is a title for the table.
    """
    names = [each.name for each in rows[0].candidates]
    drawn = Histograms(tuple(tuple(_sample(each.name, each.time) for each in row.candidates) for row in rows))
    blocks = (_one(rows[0]), _said(rows[0])) if len(rows) == 1 else (_grid(rows), _legend(rows))
    return Document(
        title=label or rows[0].label or " or ".join(names),
        about=(*([words(Span(label, "strong"))] if label else []), *_headings(rows)),
        blocks=(drawn, *blocks),
        data=data_of(rows),
        annotations=tuple(
            Annotation("notice" if each.agrees else "error", each.name, text)
            for row in rows
            for each in row.candidates[1:]
            for text in (_sentence(each, row) if each.agrees else _difference(each, row),)
        ),
    )


def _headings(rows: Sequence[Comparison]) -> list[Words]:
    """Returns the lines of the report's heading. If the comparisons have different headings,
    returns the lines of all.
    """
    each = [_heading(row) for row in rows]
    if len({tuple(lines) for lines in each}) == 1:
        return [words(Span(line, "dim")) for line in each[0]]
    return [words(Span(f"{row.label}: {line}", "dim")) for row, lines in zip(rows, each, strict=True) for line in lines]


def _heading(row: Comparison) -> list[str]:
    torch = row.versions.get("torch")
    about = [row.device_name, f"torch {torch}" if torch else "", _BY[row.by], f"{row.cache} cache"]
    return [" · ".join(part for part in about if part), *([capital(row.because)] if row.because else [])]


def _one(row: Comparison) -> Table:
    columns = (
        Column("time"),
        Column("95 % interval", extra=True),
        Column("", "left"),
        Column("ratio"),
        Column("95 % interval", extra=True),
    )
    return Table(words(row.label), columns, tuple(_candidate(each, row) for each in row.candidates), compact=True)


def _candidate(each: Candidate, row: Comparison) -> Row:
    time, mark = each.time, _mark(row, each)
    ratio = ("", "") if each.answer is None else (_ratio(each.ratio.median), _interval(each))
    name = words(f"{mark or ' '} ", Span(each.name, "strong" if mark else ""))
    return Row(name, (precise(time.median), f"{precise(time.low)} - {precise(time.high)}", _answer(each), *ratio))


def _said(row: Comparison) -> Prose:
    """Returns three groups of sentences. The first group has one sentence for each function, except the reference and
    functions whose results do not agree. The second group says what is wrong. The third group says how the times were
    measured.
    """
    lines = [words(Span(_sentence(each, row), "strong")) for each in row.candidates[1:] if each.agrees]
    lines += _differences(row)
    lines += [words(Span(note, "warning")) for note in row.notes]
    agreed = [(each.agreement.text, each.name) for each in row.candidates if each.agreement and each.agreement.agrees]
    lines += [words(Span(f"{names_of(names)}: {text}", "dim")) for text, names in _together(agreed).items()]
    ran = f"{counted(row.rounds, 'round')} by turns: {row.stopped}"
    marks = {_mark(row, each) for each in row.candidates}
    legend = [f"{mark} {meaning}" for mark, meaning in _MARKS.items() if mark in marks]
    lines.append(words(Span("; ".join([ran, f"SAME is within {100 * row.margin:.2g} %", *legend]), "dim")))
    return Prose(tuple(lines))


def _together(said: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Returns a dict from each text in the pairs (text, name) to the list of its names."""
    of: dict[str, list[str]] = {}
    for text, name in said:
        of.setdefault(text, []).append(name)
    return of


def _answer(each: Candidate) -> Words:
    said = "" if each.answer is None else each.answer if each.agrees else _DIFFERS
    return words(Span(said, _ROLES[said])) if said else ()


def _sentence(each: Candidate, row: Comparison) -> str:
    first, ratio = row.candidates[0].name, each.ratio
    if each.answer == "SAME":
        return f"{each.name} takes as long as {first}, within {_off(ratio.low, ratio.high)}"
    if each.answer == "UNCLEAR":
        return f"{each.name} may take {_range(ratio.low, ratio.high)} of {first}'s time: give it more seconds"
    return f"{each.name} {_change(ratio, first)}"


def _change(ratio: Interval, first: str) -> str:
    more = ratio.median > 1
    if ratio.median >= _FACTOR or ratio.median <= 1 / _FACTOR:
        times = ratio.median if more else 1 / ratio.median
        factor = f"{times:,.0f}" if times >= 100 else f"{times:.3g}"
        return f"is {factor} times as {'slow' if more else 'fast'} as {first}"
    change = abs(1 - ratio.median)
    low, high = sorted((abs(1 - ratio.low), abs(1 - ratio.high)))
    return f"takes {100 * change:.3g} % {'more' if more else 'less'} time than {first} ({_range(low, high)})"


def _differences(row: Comparison, within: str = "") -> list[Words]:
    return [words(Span(_difference(each, row, within), "bad")) for each in row.candidates if not each.agrees]


def _difference(each: Candidate, row: Comparison, within: str = "") -> str:
    text = each.agreement.text if each.agreement else ""
    return f"{each.name} does not compute what {row.candidates[0].name} does{within}: {text}"


def _grid(rows: Sequence[Comparison]) -> Table:
    """Returns a table with one line per input, and columns for each function."""
    columns = [Column(rows[0].candidates[0].name)]
    for each in rows[0].candidates[1:]:
        columns += [Column(each.name), Column("", "left")]
    return Table(words(), tuple(columns), tuple(map(_across, rows)), compact=True)


def _across(row: Comparison) -> Row:
    cells: list[Words] = []
    for number, each in enumerate(row.candidates):
        mark = _mark(row, each)
        cells.append(words(Span(f"{precise(each.time.median)} {mark or ' '}", "strong" if mark else "")))
        if number:
            cells.append(words(_answer(each), f" {_ratio(each.ratio.median)}"))
    return Row(words(row.label), tuple(cells))


def _legend(rows: Sequence[Comparison]) -> Prose:
    margin = 100 * rows[0].margin
    tied = any(_mark(row, each) == TIED for row in rows for each in row.candidates)
    best = f"{BEST} the best" + (f", {TIED} not known to be slower than it by {margin:.2g} %" if tied else "")
    ratios = f"ratios are of the time to that of {rows[0].candidates[0].name}"
    lines = [words(Span(f"{best}; {ratios}", "dim"))]
    lines += [line for row in rows for line in _differences(row, within=f" at {row.label}")]
    noted = _together((note, row.label) for row in rows for note in row.notes)
    lines += [
        words(Span(note if len(labels) == len(rows) else f"{names_of(labels)}: {note}", "warning"))
        for note, labels in noted.items()
    ]
    return Prose(tuple(lines))


def _mark(row: Comparison, each: Candidate) -> str:
    """Returns BEST for a single best function, TIED for each of several best functions, or "" for other functions."""
    if not each.best:
        return ""
    return BEST if sum(other.best for other in row.candidates) == 1 else TIED


def _ratio(ratio: float) -> str:
    """Formats a ratio with at least three digits."""
    if ratio < 0.1:
        return f"{ratio:.3g}"
    return f"{ratio:.3f}" if ratio < 10 else f"{ratio:,.1f}" if ratio < 1000 else f"{ratio:,.0f}"


def _interval(each: Candidate) -> str:
    return f"{_ratio(each.ratio.low)} - {_ratio(each.ratio.high)}"


def _range(low: float, high: float) -> str:
    return f"{100 * low:.3g} to {100 * high:.3g} %"


def _off(low: float, high: float) -> str:
    """Returns, as text, the distance in % from 1 to the end of the interval [low, high] that is farther from 1."""
    return f"{100 * max(high - 1, 1 - low, 0):.2g} %"
