"""What was promised and what was got: one waterfall, and the line that ends a comparison."""

from __future__ import annotations

from unstall.changes.promise import place_of, remainder, sentence
from unstall.changes.result import DiffResult, Promise
from unstall.diagnose.verdict import IF_FREE
from unstall.document.document import Bullets, Column, Document, Prose, Row, Span, Table, Words, words
from unstall.figures import duration
from unstall.report.wording import row, saved

_CELLS = 16
_FULL, _SAVED, _OVER = "█", "░", "▒"
_FIRST = {"steps", "device", "devices", "software", "rank", "recorded", "integrity"}
"""Codes of the caveats that bear on two step times. That one run alone is simulated does too."""


def waterfall(promise: Promise, compared: tuple[int, int] = (1, 1)) -> Table:
    """Returns the step before, after each edit of its plan, as promised, and as it is now; then what bounds it."""
    most = max(promise.before_ns, promise.got_ns, *(edit.step_ns for edit in promise.edits), 1)
    was = promise.before_ns
    rows = [_level("before", was, most)]
    for number, edit in enumerate(promise.edits, 1):
        name, _, where = edit.edit.partition(":")
        below = [words(Span(where.removeprefix("-:-:"), "place"))] if where else []
        if edit.still_at is not None:
            left = f" {duration(edit.left_ns)}" if edit.left_ns else ""
            below.append(words(Span(f"still there:{left} at {place_of(edit.still_at)}", "warning")))
        gain = saved(edit.gain_ns, promise.before_ns, error_ns=promise.error_ns)
        rows.append(row(f"{number}. {name}", _bar(edit.step_ns, was, most), duration(edit.step_ns), gain, below=below))
        was = edit.step_ns
    if promise.promised_ns is not None:
        rows.append(_level("promised", promise.promised_ns, most))
    got = words(Span("now", "strong"))
    bar = _bar(promise.got_ns, promise.promised_ns or promise.got_ns, most)
    change = promise.before_ns - promise.got_ns
    rows.append(row(got, bar, words(Span(duration(promise.got_ns), "strong")), saved(change, promise.before_ns)))
    if promise.floor_ns is not None:
        rows.append(_level("floor: device busy time after the plan", promise.floor_ns, most))
    if promise.free is not None:
        rows.append(_level(f"now, {IF_FREE[promise.free.resource]}", promise.free.step_ns, most))
    gains = f"gain ± {duration(promise.error_ns)}" if promise.error_ns and promise.edits else "gain"
    columns = Column("", "left"), Column("a step takes"), Column(gains)
    a, b = compared
    title = "Promise and result"
    if (a, b) != (1, 1):
        title += f", per {a} steps before and {b} now"
    return Table(words(title), columns, tuple(rows))


def ending(promise: Promise) -> Prose:
    """Returns what is left of the plan, and the line that ends a comparison."""
    lines = remainder(promise), sentence(promise)
    return Prose(tuple(words(line) for line in lines if line))


def promised(result: DiffResult) -> Document:
    """The short report of a comparison: what makes it hard, and the waterfall."""
    codes = _FIRST | ({"simulated"} if result.a.source.simulated != result.b.source.simulated else set())
    caveats = tuple(words(caveat.text) for caveat in result.caveats if caveat.code in codes)
    promise = result.promise
    return Document(
        title="unstall diff",
        about=(),
        caveats=(Bullets(words("Before you compare"), caveats),) if caveats else (),
        blocks=(waterfall(promise, result.compared),) if promise and promise.edits else (),
        data=result,
    )


def _level(name: str, ns: int, most: int) -> Row:
    return row(name, _bar(ns, ns, most), duration(ns), "")


def _bar(ns: int, was: int, most: int) -> Words:
    """Returns a bar of a step of `ns`, and how far that is from what it `was`: saved, or over."""
    low, high = (round(_CELLS * each / most) for each in (min(ns, was), max(ns, was)))
    low = max(low, 1)
    beyond = Span(_SAVED * (high - low), "dim") if ns < was else Span(_OVER * (high - low), "warning")
    return words(Span(_FULL * low, "good"), beyond)
