"""The report of `unstall explain`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from unstall.document.document import (
    Annotation,
    Bars,
    Block,
    Bullets,
    Column,
    Document,
    Entries,
    Entry,
    Page,
    Prose,
    Row,
    Span,
    Table,
    Words,
    words,
)
from unstall.document.plain import plain, short
from unstall.figures import duration, numbered_findings, rate, share
from unstall.report.memory import memory_blocks
from unstall.report.pictures import Draw, no_pictures
from unstall.report.verdict_text import in_short, more_of
from unstall.report.wording import (
    GOOD_TO_KNOW,
    INTEGRITY,
    about,
    bars_of,
    brief_place,
    bugs_title,
    device_of,
    explained,
    harmless,
    origin,
    paid_once,
    parts,
    place,
    place_and_operator,
    row,
    run_lines,
    saved,
    without_recorder,
    wrong,
)
from unstall.result import IDLE_CAUSES, Finding, Result

_UNSOUND = "something is missing or damaged, so figures may be wrong"
_MUCH = 0.05  # of the step: a plan that ends this far above the floor names the findings without a known gain
_LARGE = 0.02  # of the step: why so much time costs nothing is said
BEFORE_BUGS = "b"
"""Stands before the numbers of bugs. "b1" is the first bug; "1" is the first finding that is no bug."""
BEFORE_EXPLAINED = "g"
"""Stands before the numbers of findings under "Good to know": "g1" is the first of them."""
IN_PLAN = "in plan"
"""Text in the column "gain" for a finding that gains something only if earlier changes of the plan are made, too."""
IN_ANOTHER = "in "
"""Begins the text in the column "gain" for a finding whose gain is part of another finding's. The
number of that finding follows.
"""
_START = {
    "plain step time": "now, as measured",
    "host-only steps": "now, with the host's times from host-only steps",
    "usual cost": "now, estimated",
    "nothing": "now, with the recorder",
}


def document(result: Result, draw: Draw = no_pictures) -> Document:
    """Returns the report of `unstall explain` on one run. `draw` draws the pictures of the run for the HTML page."""
    has_work = result.verdict.bound_by != "none"
    sound = result.integrity.ok
    blocks = [
        _more_on_verdict(result),
        None if sound else _notes(result),
        bugs(result),
        _bars(result) if has_work and parts(result.accounts) else None,
        _devices(result),
        *(_findings(result) if has_work or result.costly else ()),
        _explained(result),
        _plan(result),
        _paid_once(result),
        _harmless(result),
        _lines(result),
        *memory_blocks(result),
        _notes(result) if sound else None,
    ]
    return Document(
        title="unstall",
        about=about(result.source.path, result.source, result.steps),
        summary=in_short(result.verdict.text, result.integrity.shortfall),
        blocks=tuple(block for block in blocks if block is not None),
        data=result,
        annotations=tuple(_annotations(result)),
        page=Page({"unplanned": unplanned(result)}, draw),
    )


def _more_on_verdict(result: Result) -> Prose | None:
    sentences = more_of(result.verdict.text, result.integrity.shortfall)
    return Prose(tuple(map(words, sentences))) if sentences else None


def _notes(result: Result) -> Bullets | None:
    title = words(INTEGRITY) if result.integrity.ok else words(Span(f"{INTEGRITY}: {_UNSOUND}", "bad"))
    notes = tuple(words(note) for note in result.integrity.notes)
    return Bullets(title, notes) if notes else None


def _bars(result: Result) -> Bars:
    """Returns a bar chart of the account: the step's busy time by kind of work, and its idle time
    by cause.

    The verdict is on the run as recorded, or on the run without the recorder's overhead. The chart
    shows the account of that run.
    """
    apart = without_recorder(result)
    accounts = result.replay.accounts if apart and result.replay else result.accounts
    drawn = bars_of(accounts, result.steps, over(result))
    if result.source.simulated:
        return drawn
    caption = f"{'without the recorder' if apart else 'as recorded'}, {over(result)}"
    return msgspec.structs.replace(drawn, bars=(msgspec.structs.replace(drawn.bars[0], caption=caption),))


def bugs(result: Result) -> Entries | None:
    entries = _entries(result, wrong(result), (), BEFORE_BUGS)
    title = words(Span(bugs_title(result), "bad"))
    return Entries(title, (), entries, BEFORE_BUGS) if entries else None


def _devices(result: Result) -> Table | None:
    """Returns a table with a row for each device, or None if there is only one device."""
    rows = []
    for device in result.by_device if len(result.by_device) > 1 else ():
        idle = device.all_idle_ns
        cause = max(IDLE_CAUSES, key=lambda key: getattr(device.idle_ns, key))
        busy = share(device.wall_ns - idle, device.wall_ns)
        name = short(f"{device.device} {device.name or ''}".strip())
        rows.append(row(name, busy, share(idle, device.wall_ns), f"mostly {cause}" if idle else ""))
    columns = Column("busy"), Column("idle"), Column("", "left")
    return Table(words("Each device"), columns, tuple(rows)) if rows else None


def _findings(result: Result) -> list[Block]:
    findings = result.costly
    if not findings:
        return [no_findings(result)]
    gains = any(gain_of(result, finding) for finding in findings)
    names = (*(("gain",) if gains else ()), "exposed", "host waits")
    return [
        *(_two_steps(result) if gains and without_recorder(result) else ()),
        Entries(words(f"Findings, {over(result)}"), names, _entries(result, findings, names)),
        Prose(_meaning(result), small=True),
    ]


def no_findings(result: Result) -> Prose:
    """Returns a paragraph that stands in place of the findings if there are none."""
    return Prose((words(f"No finding that {'each step pays' if paid_once(result) else 'costs anything'}."),))


def _two_steps(result: Result) -> tuple[Prose, ...]:
    """Returns a paragraph that gives the two step times of the report.

    Gains refer to a step without the recorder's overhead. Exposed times and waits of the host refer
    to a step as recorded. Returns () if the result has no replay.
    """
    if result.replay is None:
        return ()
    without, recorded = duration(result.replay.undistorted_mean_step_ns), duration(result.steps.mean_ns)
    unit = result.steps.unit
    gains = f'Times under "gain" are of {unit} without the recorder ({without}).'
    others = f'Times under "exposed" and "host waits" are of {unit} as recorded ({recorded}).'
    return (Prose((words(f"{gains} {others}"),)),)


def _meaning(result: Result) -> tuple[Words, ...]:
    """Returns explanations of the terms that the findings use."""
    steps = result.steps.count
    gains = [gain_of(result, finding) for finding in result.costly]
    error = _error(result)
    own = f",{error}" if error else ""
    beyond = f", {IN_PLAN}: only with others" if IN_PLAN in gains else ""
    if any(gain.removeprefix(IN_ANOTHER).isdecimal() for gain in gains):
        beyond += f", or {IN_ANOTHER}N if the change of finding N fixes it, too"
    unknown = ", or - if not known" if "" in gains else ""
    said = (
        f"gain: time {result.steps.unit} saves if only this is fixed{unknown}{beyond}{own}" if any(gains) else "",
        "exposed: device time lost because of it",
        f"saw: counted over all {steps:,} steps" if steps > 1 else "",
    )
    return tuple(words(text) for text in said if text)


def _entries(
    result: Result, findings: Sequence[Finding], names: Sequence[str], before_number: str = ""
) -> tuple[Entry, ...]:
    entries = []
    for finding, same in zip(findings, _same_advice(findings), strict=True):
        figures = {
            "gain": gain_of(result, finding) or "-",
            "exposed": duration(finding.exposed_ns),
            "host waits": duration(finding.wait_ns),
        }
        entries.append(
            Entry(
                heading(result, finding, strong=True),
                tuple(figures[name] for name in names),
                tuple(details(finding, None if same is None else f"{before_number}{same}")),
            )
        )
    return tuple(entries)


def heading(result: Result, finding: Finding, *, strong: bool = False) -> Words:
    """Returns the finding's title, followed in brackets by how often it occurred, and by its
    confidence unless that is high. `strong` sets the title in bold.
    """
    sure = "" if finding.confidence == "high" else f"{finding.confidence} confidence"
    beside = ", ".join(part for part in (often(result, finding), sure) if part)
    title = Span(finding.title, "strong" if strong else "")
    return words(title, Span(f" ({beside})", "dim") if beside else "")


def details(finding: Finding, same: str | None) -> Iterator[tuple[str, Words]]:
    """Yields the details of a finding as pairs `(label, text)`.

    The labels are "at" and "from" for the source line and its caller, then "saw", "do" and "safe
    if". `same` is the number of an earlier finding with the same advice: then "do" refers to that
    finding. If `same` is None, the advice is given in full.
    """
    at, caller = ("at", place_and_operator(finding.where)), finding.where.called_from
    origin = ("from", words(Span(place(caller), "place"))) if caller else None
    # A line of another file is reached from the program's own, which its author knows.
    leads = caller is not None and caller.file != finding.where.file
    yield from (part for part in ((origin, at) if leads else (at, origin)) if part)
    advice = (("do", finding.fix), ("safe if", finding.safe_if)) if same is None else (("do", f"as in {same}"),)
    for label, text in (("saw", finding.saw), *advice):
        if plain(text).strip(" -—"):  # a dash means that there is no text
            yield label, words(text)


def _same_advice(findings: Sequence[Finding]) -> list[int | None]:
    """Returns, for each finding, the number of the first finding with the same advice, or None if
    the finding is itself the first one. Findings are numbered from 1.
    """
    first: dict[tuple[str, str], int] = {}
    numbers = [first.setdefault((finding.fix, finding.safe_if), i) for i, finding in enumerate(findings, 1)]
    return [number if number < i else None for i, number in enumerate(numbers, 1)]


def often(result: Result, finding: Finding) -> str:
    """Returns how often the finding occurred, such as "16x a step", "48x in 1 of 3 steps" or "once
    in 5 steps".

    Returns "" if it occurred at most once, and either it is a bug or the run has only one step.
    """
    count, steps, seen = finding.count, result.steps.count, finding.steps_seen
    if finding.wrong:
        return f"{count:,}x in the whole run" if count > 1 else ""
    if steps == 1 or count == 0:
        return f"{count:,}x" if count > 1 else ""
    if count > 1 and seen is not None and seen < steps:
        return f"{count:,}x in {seen:,} of {steps:,} steps"
    if count % steps == 0:
        return f"{count // steps:,}x a step"
    return f"{f'{count:,}x' if count > 1 else 'once'} in {steps:,} steps"


def over(result: Result) -> str:
    """Returns the words that stand after a figure of `result`: "per step", or "in all" if the run has no steps."""
    return result.steps.over


def gain_of(result: Result, finding: Finding) -> str:
    """Returns the gain of a finding as text, or "" if the gain is unknown.

    The gain is the time that a step saves if only this finding is fixed. A gain below the replay's
    error is shown as a limit, such as "<3.00 µs". If fixing the finding gains something only
    together with other changes of the plan, the text is `IN_PLAN`. If the same change fixes another
    finding, which has the gain, the text is `IN_ANOTHER` and the number of that finding.
    """
    if finding.gain_below_ns is not None:
        return f"<{duration(finding.gain_below_ns)}"
    if finding.gain_ns is None:
        same = [number for number in fixed_by(result, finding.edit) if not _unknown(result.costly[number - 1])]
        return f"{IN_ANOTHER}{same[0]}" if same else ""
    step_ns = result.replay.undistorted_mean_step_ns if result.replay else result.steps.mean_ns
    gain = saved(finding.gain_ns, step_ns, "")
    alone = bool(gain) and finding.gain_ns > 0
    if not alone and any(made.edit == finding.edit for made in result.plan or ()):
        return IN_PLAN
    return gain or duration(0)


def _error(result: Result) -> str:
    """Returns the error of the replay, which is the error of every gain, as text such as " ± 12
    µs". Returns "" if the error is 0 or there is no replay.
    """
    error_ns = result.replay.error_ns if result.replay else 0
    return f" ± {duration(error_ns)}" if error_ns else ""


def _plan(result: Result) -> Table | None:
    """Returns a table of the plan: its changes in the order in which to make them. Returns None if
    there is no plan.

    The first row is the step time before any change. The last row is the floor, if it is known.
    """
    replay = result.replay
    if not result.plan or replay is None:
        return None
    start = "now, simulated" if result.source.simulated else _START[replay.undistorted_by]
    rows = [row(start, duration(replay.undistorted_mean_step_ns), "")]
    for number, step in enumerate(result.plan, 1):
        name, _, where = step.edit.partition(":")
        where = where.removeprefix("-:-:")  # without stacks the operator alone is the place
        below = [words(Span(where, "place"))] if where else []
        below += [words(Span(note, "dim")) for note in step.notes]
        gain = saved(step.gain_ns, replay.undistorted_mean_step_ns, error_ns=replay.error_ns)
        fixed = fixed_by(result, step.edit)
        whose = Span(f" ({numbered_findings(list(map(str, fixed)))})" if fixed else "", "dim")
        rows.append(row(words(f"{number}. {name}", whose), duration(step.step_ns), gain, below=below))
    if result.floor_ns is not None:
        of, rest_ns = result.costly, result.plan[-1].step_ns - result.floor_ns
        left = [
            f"finding {number} (at most {duration(min(of[number - 1].exposed_ns, rest_ns))})"
            for number in unplanned(result)
        ]
        below = [words(Span(f"not modelled is what is gained by mending {', '.join(left)}", "dim"))] if left else []
        rows.append(row("floor: device busy time after these changes", duration(result.floor_ns), "", below=below))
    columns = Column(f"{result.steps.unit} takes"), Column(f"gain{_error(result)}")
    return Table(words("Plan: which changes to make, in order"), columns, tuple(rows))


def fixed_by(result: Result, edit: str | None) -> list[int]:
    """Returns the numbers of the findings that an edit fixes, from 1, in the order of `result.costly`."""
    return [number for number, each in enumerate(result.costly, 1) if edit is not None and each.edit == edit]


def unplanned(result: Result) -> list[int]:
    """Returns the numbers of the findings that may explain why the step time after the plan stays
    far above the floor.

    Such a finding costs something, its gain is unknown, and its exposed time is at least 5 % of a
    step. Findings are numbered from 1, in the order of `result.costly`. Returns [] if the step time
    after the plan is less than 5 % of a step above the floor, or if there is no plan or floor.
    """
    if not result.plan or result.replay is None or result.floor_ns is None:
        return []
    much_ns = _MUCH * result.replay.undistorted_mean_step_ns
    if result.plan[-1].step_ns - result.floor_ns < much_ns:
        return []
    numbered = enumerate(result.costly, 1)
    return [number for number, each in numbered if not gain_of(result, each) and each.exposed_ns >= much_ns]


def _unknown(finding: Finding) -> bool:
    """Returns whether the gain of the finding is unknown."""
    return finding.gain_ns is None and finding.gain_below_ns is None


def _explained(result: Result) -> Entries | None:
    found = explained(result)
    entries = _entries(result, found, (), BEFORE_EXPLAINED)
    return Entries(words(GOOD_TO_KNOW), (), entries, BEFORE_EXPLAINED) if found else None


def _harmless(result: Result) -> Table | None:
    """Returns a table of the findings that are not worth a change, or None if there are none. If a
    finding's times are large, the text below its row says why it costs nothing.
    """
    rows = tuple(
        row(
            words(heading(result, finding), Span(" · ", "dim"), brief_place(finding.where)),
            duration(finding.exposed_ns),
            duration(finding.wait_ns),
            below=[words(Span(finding.saw, "dim"))]
            if max(finding.exposed_ns, finding.wait_ns) >= _LARGE * result.steps.mean_ns and finding.saw
            else (),
        )
        for finding in harmless(result)
        if not (finding.explains or finding.once)
    )
    columns = Column("exposed"), Column("host waits")
    return Table(words("Not worth changing"), columns, rows, limited=True, fold="closed") if rows else None


def _paid_once(result: Result) -> Table | None:
    """Returns a table of what is paid only once, or None if there is nothing. Its times are of the whole recording, not
    of a step.
    """
    rows = tuple(
        row(
            words(finding.title, Span(" · ", "dim"), brief_place(finding.where)),
            duration(finding.exposed_ns * result.steps.count),
            duration(finding.wait_ns * result.steps.count),
            below=[words(Span(finding.saw, "dim"))],
        )
        for finding in paid_once(result)
    )
    columns = Column("exposed"), Column("host waits")
    return Table(words("Paid once, not by each step: times in all"), columns, rows, limited=True) if rows else None


def _lines(result: Result) -> Table | None:
    rows: list[Row] = []
    for line in result.lines:
        times = duration(line.device_ns), duration(line.idle_ns), line.idle_cause or "", duration(line.wait_ns)
        rows.append(row(brief_place(line.where), rate(line.launches / max(result.steps.count, 1)), *times))
    columns = (
        Column("launches"),
        Column("device"),
        Column("device idle"),
        Column("mostly", "left", extra=True),
        Column("host waits"),
    )
    title = words(f"Cost by line, {over(result)}")
    return Table(title, columns, tuple(rows), limited=True, fold="closed") if rows else None


def _annotations(result: Result) -> Iterator[Annotation]:
    """Yields the verdict as a notice, then an error for each bug, then a warning for each other
    finding that costs something.
    """
    known = [f"{device_of(result.source)}"] if result.source.simulated else []
    yield Annotation(
        "notice", "unstall", f"{result.verdict.text} ({'; '.join([*known, *run_lines(result.source, result.steps)])})"
    )
    for finding in wrong(result):
        yield _annotation("error", finding, _harm(finding))
    for finding in result.costly:
        cost = f"it costs the device {duration(finding.exposed_ns)} {over(result)}"
        yield _annotation("warning", finding, f"{cost}, and the host waits {duration(finding.wait_ns)}")


def _harm(finding: Finding) -> str:
    """Returns words that say what harm a bug does, such as "results may be wrong"."""
    if finding.fault is None:
        return "results may be wrong"
    return "the device's memory is full" if finding.fault.kind == "memory" else "the device computes nothing after"


def _annotation(level: str, finding: Finding, cost: str) -> Annotation:
    text = f"{origin(finding.where)}: {cost}. Saw: {finding.saw}. Do: {finding.fix}"
    return Annotation(
        "error" if level == "error" else "warning",
        f"unstall: {finding.title}",
        text,
        finding.where.file,
        finding.where.line,
    )
