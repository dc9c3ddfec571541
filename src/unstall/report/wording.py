"""Words that several reports use: for places in the source, for a run and its steps, and for the
parts of an account.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from unstall.diagnose.left_out import why_left_out
from unstall.document.document import Bar, Bars, Part, Row, Span, Words, words
from unstall.document.plain import plain, short
from unstall.figures import capital, duration, share
from unstall.result import BUSY_PARTS, IDLE_CAUSES, Accounts, Caller, Finding, Result, Source, Steps, Where

INTEGRITY = "Integrity"
GOOD_TO_KNOW = "Good to know"
NO_GAIN = "nothing"
"""The gain of a change that saves less than 0.05 % of a step."""
UNKNOWN_LINE = "no source line known"
_BOUNDARIES = {
    "optimizer": "optimizer steps",
    "loader": "the batches or items of a loop",
    "forward": "model calls",
    "explicit": "unstall.step()",
}
_BUSY_LABELS = {"both": "compute + copy"}
_LONGEST_NAME = 40  # of the kernel or annotation by which steps were found
_LONGEST_PLACE = 35  # of 80 columns; leaves room for the figures of lines
_PATH_TAIL = 2  # last components of a path that are shown in tables
_LITTLE_PERCENT = 5  # of the device's work
_HARDLY = 0.005  # of the step
_NOTHING = 0.0005  # of the step; below this a finding is harmless, and below any gain in a plan


def place(where: Where | Caller) -> str:
    """Returns a place in the source as text, such as `train.py:41 in step`.

    If only the line of the function's definition is known, the text is like `train.py:41 def step`.
    Returns "" if neither file nor function is known.
    """
    function = short(where.function or "")
    if not where.file:
        return function
    text = plain(where.file) if where.line is None else f"{plain(where.file)}:{where.line}"
    if not function:
        return text
    is_def = isinstance(where, Where) and where.line_is == "def"
    return f"{text} {'def' if is_def else 'in'} {function}"


def operator(where: Where) -> str:
    """Returns the name of the operator at `where`, or "" if it is unknown or `place(where)` already is this name."""
    op = short(where.op or "")
    return "" if op == place(where) else op


def place_and_operator(where: Where) -> Words:
    """Returns a place in the source, followed by the operator if it is known, as text with roles for a `Document`."""
    known, op = place(where), operator(where)
    behind = words(Span(" · ", "dim"), Span(op, "name")) if op else ()
    return words(Span(known, "place") if known else UNKNOWN_LINE, behind)


def origin(where: Where) -> str:
    """Returns all that is known about `where` as text: source line, operator and caller."""
    parts = [place(where), operator(where)]
    if where.called_from:
        parts.append(f"called from {place(where.called_from)}")
    return " · ".join(part for part in parts if part) or UNKNOWN_LINE


def label_of(key: str, kind: str) -> str:
    """Returns the label that reports show for a part of an account, such as "compute + copy" or
    "idle: sync".

    `key` names the part. `kind` is "idle" if `key` is an idle cause; otherwise, `key` is a kind of
    busy time.
    """
    return f"idle: {key}" if kind == "idle" else _BUSY_LABELS.get(key, key)


def parts(accounts: Accounts) -> list[Part]:
    """Returns those parts of an account that are not zero: busy time by kind of work, then idle
    time by cause, the largest cause first.
    """
    busy = [Part(key, label_of(key, "busy"), getattr(accounts.busy_ns, key)) for key in BUSY_PARTS]
    idle = [Part(f"idle: {key}", label_of(key, "idle"), getattr(accounts.idle_ns, key)) for key in IDLE_CAUSES]
    idle.sort(key=lambda part: -part.size)
    return [part for part in busy + idle if part.size > 0]


def bars_of(accounts: Accounts, steps: Steps, name: str) -> Bars:
    """Returns a bar of one run's account, with a legend: for each part, its mean time per step and
    its share of all time.

    `name` is the heading of these times in the legend.
    """
    shown = parts(accounts)
    legend = tuple((part, (duration(per_step(steps, part.size)), share(part.size, accounts.wall_ns))) for part in shown)
    return Bars("device", (Bar(tuple(shown)),), (name, "share"), legend)


def wrong(result: Result) -> list[Finding]:
    """Returns the findings that are bugs, in the order of `result.findings`."""
    return [finding for finding in result.findings if finding.wrong]


def bugs_title(result: Result) -> str:
    """Returns the heading under which reports list the findings that are bugs."""
    faults = [finding.fault for finding in result.findings if finding.fault is not None]
    if faults:
        of_memory = all(fault.kind == "memory" for fault in faults)
        return "Bugs: the device's memory is full" if of_memory else "Bugs: a device failed, and computed nothing after"
    return "Bugs: results may be wrong, and differ from run to run"


def harmless(result: Result) -> list[Finding]:
    """Returns the findings that cost nothing and are no bugs. Reports list them because people look for them."""
    return [finding for finding in result.findings if finding.harmless and not finding.wrong]


def paid_once(result: Result) -> list[Finding]:
    """Returns the findings about what is paid only once, such as first uses."""
    return [finding for finding in harmless(result) if finding.once]


def explained(result: Result) -> list[Finding]:
    """Returns the findings that cost nothing and explain what surprises people, such as a launch that looks slow."""
    return [finding for finding in result.findings if finding.explains]


def saved(gain_ns: int, step_ns: int, nothing: str = NO_GAIN, *, error_ns: int = 0) -> str:
    """Returns the time that a change saves per step, as text such as "2.00 ms", or "-2.00 ms" if
    the step gets longer.

    Args:
        gain_ns: The time that a step saves.
        step_ns: The step time.
        nothing: The text for a gain of less than 0.05 % of the step.
        error_ns: The error of the replay that predicted the gain. A smaller gain is shown as less
            than this error, such as "<3.00 µs".
    """
    if 0 < abs(gain_ns) < error_ns:
        return f"<{duration(error_ns)}"
    return nothing if abs(gain_ns) < _NOTHING * step_ns else duration(gain_ns)


def compared(before: int, after: int, *, unit: str, over: str, error_ns: int, by: str = "") -> str:
    """Returns a sentence that compares the step time after edits with that before them.

    Args:
        before: The step time before the edits, in ns.
        after: The step time after the edits, in ns.
        unit: What takes this time: "a step", or "the run".
        over: What an error is an error of, such as "a step".
        error_ns: The error of the replay, in ns. A smaller change cannot be told.
        by: What makes the change, such as " with this edit", or "" if this is clear.
    """
    gain = saved(before - after, before, error_ns=error_ns)
    if gain == NO_GAIN:
        return f"No change{by}: {unit} would still take {duration(after)}."
    if abs(before - after) < error_ns:
        return f"No change that can be told{by}: the replay itself is off by {duration(error_ns)} {over}."
    if abs(before - after) < _HARDLY * before:
        more = "less" if after < before else "more"
        return f"Hardly any change{by}: {unit} would take {duration(after)}, {duration(abs(before - after))} {more}."
    if after > before:
        return f"Slower{by}: {unit} would take {duration(after)} instead of {duration(before)}."
    times = before / max(after, 1)
    much = f"{times:.3g}x as fast" if times >= 1.1 else f"{share(before - after, before)} less"
    return f"{capital(unit)} would take {duration(after)} instead of {duration(before)}{by}: {much}."


def device_of(source: Source) -> str | None:
    """Returns the device's name, or None if it is unknown. For a simulated run, returns a text like
    "simulated for NVIDIA H100".
    """
    if not source.simulated:
        return source.device
    return f"simulated for {source.device}" if source.device else "simulated"


def about(path: str, source: Source, steps: Steps) -> tuple[Words, ...]:
    """Returns lines that describe a run.

    The first line is `path`, the trace or program. The next ones have the device, the software and
    the steps.
    """
    lines = (source_line(source), *run_lines(source, steps))
    return words(Span(path, "subject")), *(words(Span(line, "dim")) for line in lines)


def run_lines(source: Source, steps: Steps) -> list[str]:
    """Returns a line on the steps. For a simulated run whose error is known, a line on that error follows."""
    known = source.known_error
    return [steps_line(source, steps), *([f"known error: {plain(known)}"] if known else [])]


def source_line(source: Source) -> str:
    """Returns a line with the run's device, the versions of its software, its rank, and its numbers
    of host events and ops.
    """
    rank = None
    if source.rank is not None:
        rank = f"rank {source.rank}" + (f" of {source.world_size}" if source.world_size else "")
    known = (
        *software(source),
        rank,
        f"{source.host_events:,} host events",
        f"{source.device_ops:,} device ops",
    )
    return " · ".join(short(part) for part in known if part)


def software(source: Source) -> tuple[str | None, ...]:
    """Returns texts with the name of the device, the version of torch and the version of CUDA, in
    this order. A text is None if its value is unknown.
    """
    return (
        device_of(source),
        f"torch {source.torch}" if source.torch else None,
        f"CUDA {source.cuda}" if source.cuda else None,
    )


def steps_line(source: Source, steps: Steps) -> str:
    """Returns a line with the number of steps, their mean duration, how the step boundaries were
    found, and which steps are left out.
    """
    name = f" {short(steps.plain_name, _LONGEST_NAME)}" if steps.name else ""
    if not steps.wall_ns:
        return "nothing ran" if source.simulated else "nothing was recorded"
    if steps.found_by == "whole":
        return f"the whole run of {duration(steps.wall_ns)}; no steps were found in it"
    found = {
        "annotation": f"annotation{name}",
        "optimizer": f"optimizer step{name}",
        "period": f"the repeating launches{name and ' of' + name}",
    }[steps.found_by]
    count = "1 step" if steps.count == 1 else f"{steps.count:,} steps"
    left_out = f"; left out: {why_left_out(steps.left_out)}" if steps.left_out else ""
    outside = steps.left_out.outside_percent if steps.left_out else 0
    coverage = f". {outside_of_steps(outside)}" if outside > _LITTLE_PERCENT else ""
    by = _BOUNDARIES[steps.marks] if steps.marks else found
    return f"{count} of {duration(steps.mean_ns)}, found by {by}{left_out}{coverage}"


def outside_of_steps(percent: int) -> str:
    """Returns a sentence that says how much of the device's work in a simulated run the steps do not have."""
    return (
        f"{percent} % of the device's work in the run is in no step, but in an evaluation, say, or in another loop: "
        "--after SECONDS explains a later part"
    )


def without_recorder(result: Result) -> bool:
    """Returns whether the verdict is on the recorded run less the recorder's overhead. A simulated
    run has no recorder.
    """
    return result.verdict.basis == "undistorted" and not result.source.simulated


def run_is(result: Result) -> str:
    """Returns words in brackets that say to which run the step time refers: "(as recorded)",
    "(simulated)", "(without the recorder)" or "(without the recorder, estimated)".
    """
    if result.source.simulated:
        return "(simulated)"
    by = result.replay.undistorted_by if result.replay else "nothing"
    if not without_recorder(result) or by == "nothing":
        return "(as recorded)"
    return "(without the recorder)" if by == "plain step time" else "(without the recorder, estimated)"


def per_step(steps: Steps, window_ns: int) -> int:
    """Returns the mean per step, rounded. `window_ns` is a sum over all steps of the recording window."""
    return round(window_ns / max(steps.count, 1))


def brief_place(where: Where) -> Words:
    """Returns a place in the source, followed by the operator if it is known, as text with roles
    for a `Document`.

    Where space is short, renderers may show the brief form that the text also has: only the last
    two parts of the file's path, or the last one if two are too long.
    """
    if not where.file:
        return place_and_operator(where)
    number = len(f":{where.line}") if where.line is not None else 0
    tail = _tail(where.file, _PATH_TAIL)
    # A longer text would be broken within the line number.
    tail = tail if len(tail) + number <= _LONGEST_PLACE else _tail(where.file, 1)
    first, *others = place_and_operator(where)
    return msgspec.structs.replace(first, brief=place(msgspec.structs.replace(where, file=tail))), *others


def _tail(path: str, most: int) -> str:
    parts = path.replace("\\", "/").split("/")
    return path if len(parts) <= most else "…/" + "/".join(parts[-most:])


def row(text: str | Words, *figures: str | Words, below: Sequence[Words] = ()) -> Row:
    """Returns a row of a table.

    Args:
        text: What stands in the first column.
        figures: What stands in the other columns.
        below: Lines of text below the row.
    """
    return Row(words(text), figures, tuple(below))
