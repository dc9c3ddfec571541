"""Compares the step time that a plan promised with the step time that was measured later, as a
waterfall chart and as sentences.
"""

from __future__ import annotations

from collections.abc import Sequence

from unstall.changes.promise import place_of, remainder, sentence
from unstall.changes.result import DiffResult
from unstall.diagnose.verdict import IF_FREE
from unstall.document.document import Bullets, Code, Document, Level, Prose, Span, Waterfall, words
from unstall.figures import duration
from unstall.report.wording import saved

_FIRST = {"steps", "device", "devices", "software", "rank", "recorded", "integrity"}
"""Codes of those caveats that matter for a comparison of two step times. The code "simulated"
matters only if exactly one of the two runs is simulated.
"""


def waterfall(result: DiffResult) -> Waterfall | None:
    """Returns a chart of step times: before the plan, after each of its edits, as the plan
    promised, and now.

    Two more bars may follow: the floor after the plan, and the step time now if the resource that
    limits it took no time. Each is left out if it is unknown. Returns None if the older run has no
    plan.
    """
    promise = result.promise
    if promise is None or promise.promised_ns is None:
        return None
    was = promise.before_ns
    levels = [_level("before", was)]
    for number, edit in enumerate(promise.edits, 1):
        name, _, where = edit.edit.partition(":")
        below = [words(Span(where.removeprefix("-:-:"), "place"))] if where else []
        if edit.still_at is not None:
            left = f": gains {duration(edit.left_ns)}" if edit.left_ns else ""
            below.append(words(Span(f"still there, at {place_of(edit.still_at)}{left}", "warning")))
        gain = saved(edit.gain_ns, promise.before_ns, error_ns=promise.error_ns)
        takes = Span(duration(edit.step_ns))
        levels.append(Level(words(f"{number}. {name}"), edit.step_ns, was, takes, gain, tuple(below)))
        was = edit.step_ns
    levels.append(_level("promised", promise.promised_ns))
    change = saved(promise.before_ns - promise.got_ns, promise.before_ns)
    now = Span(duration(promise.got_ns), "strong")
    levels.append(Level(words(Span("now", "strong")), promise.got_ns, promise.promised_ns, now, change))
    if promise.floor_ns is not None:
        levels.append(_level("floor: device busy time after the plan", promise.floor_ns))
    if promise.free is not None:
        levels.append(_level(f"now, {IF_FREE[promise.free.resource]}", promise.free.step_ns))
    gains = f"gain ± {duration(promise.error_ns)}" if promise.error_ns else "gain"
    caption = words(sentence(result))
    without = "" if result.a.source.simulated and result.b.source.simulated else ", without the recorder"
    heading = "the run takes" if result.of_whole_runs else "a step takes" if result.compared == (1, 1) else "takes"
    return Waterfall(words("Promise and result" + without), caption, (heading, gains), tuple(levels))


def ending(result: DiffResult) -> Prose:
    """Returns the last sentences of a comparison: which edits of the plan are not made yet, and the conclusion."""
    lines = remainder(result), sentence(result)
    return Prose(tuple(words(line) for line in lines if line))


def promised(result: DiffResult, commands: Sequence[str] = ()) -> Document:
    """Returns the short report of a comparison: its caveats, the waterfall chart, and which edits
    of the plan are not made yet. It does not state the conclusion.

    `commands` are shown under "all that changed". They are the commands that print the full
    comparison.
    """
    codes = _FIRST | ({"simulated"} if result.a.source.simulated != result.b.source.simulated else set())
    caveats = tuple(words(caveat.text) for caveat in result.caveats if caveat.code in codes)
    shown = waterfall(result)
    all_of_it = Code(words("all that changed"), tuple(commands), language="sh") if commands else None
    text = remainder(result)
    left = Prose((words(text),)) if text else None
    return Document(
        title="unstall diff",
        about=(),
        caveats=(Bullets(words("Before you compare"), caveats),) if caveats else (),
        blocks=tuple(block for block in (shown, all_of_it, left) if block),
        data=result,
    )


def _level(name: str, ns: int) -> Level:
    return Level(words(name), ns, ns, Span(duration(ns)))
