"""The report of `unstall whatif`."""

from __future__ import annotations

from unstall.document.document import Annotation, Bar, Bars, Bullets, Column, Document, Page, Part, Span, Table, words
from unstall.figures import capital, duration, good_to
from unstall.report.pictures import Draw, no_pictures
from unstall.report.wording import about, bars_of, compared, parts, per_step, row, saved
from unstall.result import UNTRUSTED, WhatIf

_SAME = 0.005  # of the step
_STEADY = 0.02  # difference from the recorded step: the host gets ahead, or the device catches up
_EXACT = 0.0005
_NOTABLE = 0.001  # of the step; smaller changes of a part are not mentioned


def document(result: WhatIf, draw: Draw = no_pictures) -> Document:
    """Returns the report of `unstall whatif`. `draw` draws the run before and after the edits for the HTML page."""
    bars = _bars(result)
    said = [*(f"inferred: {text}" for text in result.inferred), *result.integrity.notes]
    notes = Bullets(words("Notes"), tuple(map(words, said))) if said else None
    text = conclusion(result)
    return Document(
        title="unstall whatif",
        about=about(result.source.path, result.source, result.steps),
        summary=text,
        blocks=tuple(block for block in (_steps(result), bars, notes) if block),
        data=result,
        annotations=(Annotation("notice", "unstall whatif", text),),
        page=Page({"conclusion": text}, draw),
    )


def conclusion(result: WhatIf) -> str:
    """Returns a sentence that compares the step time after the edits with the step time before
    them.

    If the replay of the unchanged run is too far off, the sentence says that nothing can be
    predicted.
    """
    before, after = result.undistorted_step_ns, result.predicted_step_ns
    unit = result.steps.unit
    if abs(_replay_error(result)) > UNTRUSTED:
        replayed, measured = duration(result.replayed_step_ns), duration(result.measured_step_ns)
        return (
            f"Nothing can be predicted: in the replay of the unchanged run {unit} takes {replayed}, "
            f"{_signed(_replay_error(result))} against the recorded {measured}."
        )
    if not result.edits:
        about = "about " if result.undistorted_by in ("usual cost", "host-only steps") else ""
        return f"{capital(unit)} takes {about}{duration(before)}."
    return compared(before, after, unit=unit, over=result.steps.over, error_ns=result.error_ns)


def _steps(result: WhatIf) -> Table:
    """Returns a table of step times: as recorded, without the recorder's overhead, after each edit,
    and the floor.

    If the replay of the unchanged run is too far off, the table has only the first of these.
    """
    rows = []

    def add(what: str, step_ns: int, *remarks: str, gain: str = "") -> None:
        text = words(Span(what, "same") if gain else what)
        below = [words(Span(remark, "dim")) for remark in remarks if remark]
        rows.append(row(text, words(Span(duration(step_ns), "strong")), gain, below=below))

    error = _replay_error(result)
    replayed = f"the replay takes {duration(result.replayed_step_ns)}, {_off(error)}"
    add("as simulated" if result.source.simulated else "as recorded", result.measured_step_ns, replayed)
    if abs(error) > UNTRUSTED:
        return Table(words(capital(result.steps.unit)), (Column("takes"), Column("")), tuple(rows))
    steady = result.undistorted_step_ns / max(result.replayed_step_ns, 1) - 1
    if result.undistorted_by != "nothing":
        add("without the recorder", result.undistorted_step_ns, _basis(result))
    elif abs(steady) >= _STEADY:
        alike = "runs" if result.steps.unit == "the run" else "steps"
        add("in steady state", result.undistorted_step_ns, f"many such {alike} in a row")
    told: set[str] = set()
    for number, edit in enumerate(result.edits, 1):
        gain = saved(edit.gain_ns, result.undistorted_step_ns, error_ns=result.error_ns)
        remarks = [text for text in (edit.about, *edit.notes) if text not in told]
        told.update(remarks)
        add(f"{number}. {edit.edit}", edit.step_ns, *remarks, gain=gain)
    after = " after these changes" if result.edits else ""
    add(f"floor: device busy time{after}", result.floor_ns, "changes to the host alone cannot go below this")
    gain = f"gain ± {duration(result.error_ns)}" if result.error_ns and result.edits else "gain"
    return Table(words(capital(result.steps.unit)), (Column("takes"), Column(gain)), tuple(rows))


def _replay_error(result: WhatIf) -> float:
    return result.replayed_step_ns / max(result.measured_step_ns, 1) - 1


def _basis(result: WhatIf) -> str:
    if result.undistorted_by == "plain step time":
        plain_ns = result.plain_step_ns or 0
        off = result.undistorted_step_ns / max(plain_ns, 1) - 1
        return "as measured" if abs(off) < _SAME else f"measured: {duration(plain_ns)}; this is {_signed(off)} off"
    if result.undistorted_by == "host-only steps":
        return "estimated from steps in which only the host was timed; --plain-step-ms gives the exact time"
    good = good_to(result.usual_error)
    return f"estimated from what recording usually costs, {good}; --plain-step-ms gives the exact time"


def _off(error: float) -> str:
    return "the same" if abs(error) < _EXACT else _signed(error)


def _signed(part: float) -> str:
    return f"{100 * part:+.1f} %"


def _bars(result: WhatIf) -> Bars | None:
    """Returns two bars on one scale: the account of a step before the edits and after them. Without
    edits, there is only one bar.

    Returns None if either account is empty.
    """
    before, after = parts(result.before), parts(result.after)
    if not before or not after:
        return None
    if not result.edits:
        return bars_of(result.before, result.steps, result.steps.over)
    legend = []
    for part in {part.key: part for part in (*before, *after)}.values():
        was, now = _size(before, part), _size(after, part)
        was, now = per_step(result.steps, was), per_step(result.steps, now)
        legend.append((part, (duration(was), duration(now), _change(now - was, result.undistorted_step_ns))))
    bars = Bar(tuple(before), "before"), Bar(tuple(after), "after")
    return Bars(result.steps.over, bars, ("before", "after", "change"), tuple(legend))


def _size(parts: list[Part], like: Part) -> int:
    return sum(part.size for part in parts if part.key == like.key)


def _change(change: int, step: int) -> str:
    return "" if abs(change) < _NOTABLE * step else f"{'-' if change < 0 else '+'}{duration(abs(change))}"
