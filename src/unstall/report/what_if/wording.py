"""The words that the answer's renderers share."""

from __future__ import annotations

from unstall.figures import duration, good_to, share
from unstall.report.wording import plain, saved
from unstall.result import WhatIf

_SAME = 0.005  # of the step
_SETTLED = 0.02  # apart: the host gets ahead, or the device catches up, in what was recorded
_EXACT = 0.0005


def conclusion(result: WhatIf) -> str:
    """One sentence: what the edits would make of the step."""
    before, after = result.undistorted_step_ns, result.predicted_step_ns
    if not result.edits:
        about = "about " if result.undistorted_by in ("usual cost", "host-only steps") else ""
        return f"A step takes {about}{duration(before)}."
    if abs(before - after) < _SAME * before:
        return f"No change: a step would still take {duration(after)}."
    if after > before:
        return f"Slower: a step would take {duration(after)} instead of {duration(before)}."
    times = before / max(after, 1)
    much = f"{times:.3g}x as fast" if times >= 1.1 else f"{share(before - after, before)} less"
    return f"A step would take {duration(after)} instead of {duration(before)}: {much}."


def rows(result: WhatIf) -> list[tuple[str, str, str, tuple[str, ...]]]:
    """(what, step time, gain, remarks) from the measurement to the floor."""
    error = result.replayed_step_ns / max(result.measured_step_ns, 1) - 1
    table: list[tuple[str, str, str, tuple[str, ...]]] = [
        (
            "as simulated" if result.source.simulated else "as recorded",
            duration(result.measured_step_ns),
            "",
            (f"its replay takes {duration(result.replayed_step_ns)}, {_off(error)}",),
        )
    ]
    if result.undistorted_by != "nothing":
        table.append(("without the recorder", duration(result.undistorted_step_ns), "", (_basis(result),)))
    elif abs(result.undistorted_step_ns / max(result.replayed_step_ns, 1) - 1) >= _SETTLED:
        table.append(("settled", duration(result.undistorted_step_ns), "", ("such steps again and again",)))
    for number, edit in enumerate(result.edits, 1):
        table.append(
            (
                f"{number}. {plain(edit.edit)}",
                duration(edit.step_ns),
                saved(edit.gain_ns, result.undistorted_step_ns),
                tuple(plain(text) for text in (edit.about, *edit.notes) if text),
            )
        )
    own = "the device's own time then" if result.edits else "the device's own time"
    table.append((own, duration(result.floor_ns), "", ("no change to the host alone goes below it",)))
    return table


def _basis(result: WhatIf) -> str:
    if result.undistorted_by == "plain step time":
        plain_ns = result.plain_step_ns or 0
        off = result.undistorted_step_ns / max(plain_ns, 1) - 1
        return (
            "as measured"
            if abs(off) < _SAME
            else f"measured: {duration(plain_ns)}, of which this is {_signed(off)} off"
        )
    if result.undistorted_by == "host-only steps":
        return "by steps in which the host alone was timed; --plain-step-ms makes it sure"
    good = good_to(result.usual_error)
    return f"estimated from what recording usually costs, {good}; --plain-step-ms makes it sure"


def _off(error: float) -> str:
    return "as long" if abs(error) < _EXACT else _signed(error)


def _signed(part: float) -> str:
    return f"{100 * part:+.1f} %"
