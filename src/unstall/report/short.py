"""The short report, of about ten lines, that ends the output of a run. `unstall explain` prints the full report."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap

from unstall.document.document import Block, Code, Column, Document, Prose, Row, Span, Table, Words, labelled, words
from unstall.document.plain import short
from unstall.figures import counted, duration, numbered_findings
from unstall.report.explain import (
    BEFORE_BUGS,
    BEFORE_EXPLAINED,
    IN_PLAN,
    bugs,
    details,
    fixed_by,
    gain_of,
    heading,
    no_findings,
)
from unstall.report.memory import memory_blocks
from unstall.report.show import numbered
from unstall.report.verdict_text import in_short
from unstall.report.wording import (
    GOOD_TO_KNOW,
    INTEGRITY,
    bugs_title,
    explained,
    outside_of_steps,
    paid_once,
    row,
    run_is,
    saved,
    wrong,
)
from unstall.result import Caller, Finding, PlanStep, Result, Where

MEMORY = "memory"
"""What a program is an example of if not of a finding, but of how its memory changes over time."""
SHOWN = 3
"""The largest number of findings of each kind in the short report. The full report has all findings."""
_MOST_PERCENT = 50  # of the device's work
_NOTABLE = 0.05  # of the time of all steps, or of a step
_TWICE = 2


def document(result: Result, commands: Sequence[str] = (), last: str = "", about: str = "") -> Document:
    """Returns the short report: the verdict, the plan in one line, and the first findings.

    Args:
        result: The result of the run.
        commands: The commands to type next, which are shown under "next".
        last: The last line of the report; "" for none.
        about: What the program is an example of, which comes first, in full: a finding (see `example_of`), or "memory"
            for the memory over time. "" if the program is no example.
    """
    summary, example = in_short(result.verdict.text, result.integrity.shortfall), _about(result, about)
    blocks: list[Block | None] = [_damage(result), _coverage(result)]
    if example:  # before the verdict, which is of the whole run
        blocks = [*example, Prose((words(summary),)), *blocks]
    # A fault in full: it is what the run ended by, and its line is the answer.
    faulted = result.faulted
    blocks += (
        [bugs(result)]
        if faulted
        else [_bugs(result), _steps(result), _paid_once(result), _findings(result), _explained(result)]
    )
    if commands:
        blocks.append(Code(words(Span("next", "strong")), tuple(commands), language="sh"))
    if last:
        blocks.append(Prose((words(Span(last, "dim")),)))
    return Document(
        title="unstall",
        about=(),
        summary="" if example else summary,
        blocks=tuple(block for block in blocks if block is not None),
        data=result,
    )


def _damage(result: Result) -> Prose | None:
    if result.integrity.ok:
        return None
    return Prose((words(Span(f"{INTEGRITY}: something is missing or damaged: see the full report", "bad")),))


def _coverage(result: Result) -> Prose | None:
    """Returns a warning if the steps are not what the device mostly does in the run."""
    left_out = result.steps.left_out
    if left_out is None or left_out.outside_percent <= _MOST_PERCENT:
        return None
    return Prose((words(Span(f"{outside_of_steps(left_out.outside_percent)}.", "warning")),))


def _about(result: Result, about: str) -> list[Block]:
    """Returns what the program is an example of: the memory over time, or the finding that `about` names (see
    `example_of`), in full. Returns [] if there is none.
    """
    title = words(Span("What this program is about", "strong"))
    if about == MEMORY:
        blocks = memory_blocks(result)
        return [Prose((title,)), *blocks] if blocks else []
    found = example_of(result, about)
    if found is None:
        return []
    number, finding = found
    numbered = words(f"{number}. " if number else "", heading(result, finding))
    return [Prose((title, numbered, *starmap(labelled, details(finding, None))))]


def example_of(result: Result, about: str) -> tuple[str, Finding] | None:
    """Returns the first finding that `about` names and its number in the report, or None if there is no such finding.
    The number is "" if the finding is not worth a change, because such findings have no numbers.

    Args:
        result: The result of the run.
        about: A rule, such as "first-use", or a rule and a line, such as "first-use:19".
    """
    rule, _, line = about.partition(":")
    named = (each for each in result.findings if each.rule == rule and line in ("", str(each.where.line)))
    finding = next(named, None)
    if finding is None:
        return None
    return next((number for number, each in numbered(result).items() if each is finding), ""), finding


def _bugs(result: Result) -> Table | None:
    rows = [
        _row(f"{BEFORE_BUGS}{number}", finding, short(finding.title), "")
        for number, finding in enumerate(wrong(result)[:SHOWN], 1)
    ]
    title = words(Span(bugs_title(result), "bad"))
    return Table(title, (Column(""),), tuple(rows)) if rows else None


def _steps(result: Result) -> Prose | None:
    """Returns the plan in one line: the step time now, the step time after all changes of the plan,
    and the findings that these changes fix. Returns None if there is nothing to say.
    """
    replay = result.replay
    if replay is None or result.verdict.bound_by == "none":
        return None
    of = "in all" if result.steps.found_by == "whole" else "a step"
    now = words("plan: ", Span(duration(replay.undistorted_mean_step_ns), "strong"), f" {of} {run_is(result)}")
    if not result.plan:
        most_ns = max((finding.gain_ns or 0 for finding in result.costly), default=0)
        gain = saved(most_ns, replay.undistorted_mean_step_ns, "anything")
        much = gain if gain == "anything" else f"more than {gain}"
        return Prose((words(now, f"; no change that was replayed gains {much}"),))
    changes = counted(len(result.plan), "change")
    then = Span(duration(result.plan[-1].step_ns), "good")
    other = _gains_more(result, replay.undistorted_mean_step_ns)
    return Prose((words(now, " → ", then, f" with {changes}{_whose(result, result.plan)}{other}"),))


def _gains_more(result: Result, step_ns: int) -> str:
    """Returns a sentence on the finding whose change gains notably more after the changes before it in the plan than
    alone: the list of findings has the gain alone. Returns "" if there is none.
    """
    more = [
        (each.gain_ns - finding.gain_ns, number, finding.gain_ns, each.gain_ns)
        for each in result.plan or ()
        for number in fixed_by(result, each.edit)[:1]
        if (finding := result.costly[number - 1]).gain_ns is not None and gain_of(result, finding) != IN_PLAN
    ]
    most, number, alone, after = max(more, default=(0, 0, 0, 0))
    if most < _NOTABLE * step_ns or after < _TWICE * alone:
        return ""
    return f". Finding {number} gains {duration(alone)} alone, and {duration(after)} after the changes before it"


def _paid_once(result: Result) -> Prose | None:
    """Returns one line on what is paid only once, or None if this is little."""
    found = paid_once(result)
    idle_ns = sum(finding.exposed_ns for finding in found) * result.steps.count
    if idle_ns < max(_NOTABLE * result.steps.wall_ns, 1):
        return None
    most = max(found, key=lambda finding: finding.exposed_ns)
    mostly = ", mostly at " if len(found) > 1 else " at "
    return Prose((words("paid once: ", Span(duration(idle_ns), "strong"), f" of idle time{mostly}", _at(most.where)),))


def _whose(result: Result, plan: Sequence[PlanStep]) -> str:
    """Returns a text with the numbers of the findings that the plan fixes.

    Returns "" if a change of the plan fixes none of the numbered findings.
    """
    fixed = [fixed_by(result, step.edit) for step in plan]
    if not all(fixed):
        return ""
    order = ", in this order" if len(plan) > 1 else ""
    return f": {numbered_findings([str(numbers[0]) for numbers in fixed])}{order}"


def _findings(result: Result) -> Block | None:
    found = result.costly
    if result.verdict.bound_by == "none" and not found:
        return None
    if not found:
        return no_findings(result)
    rows = [
        _row(f"{number}", finding, short(finding.title), gain_of(result, finding) or "-")
        for number, finding in enumerate(found[:SHOWN], 1)
    ]
    title = "Findings" if len(found) <= SHOWN else f"The first {SHOWN} of {len(found)} findings"
    return Table(words(Span(title, "strong")), (Column("gain"),), tuple(rows))


def _explained(result: Result) -> Table | None:
    found = explained(result)[:SHOWN]
    numbered = enumerate(found, 1)
    rows = tuple(_row(f"{BEFORE_EXPLAINED}{number}", each, short(each.title), "") for number, each in numbered)
    return Table(words(Span(GOOD_TO_KNOW, "strong")), (Column(""),), rows) if rows else None


def _row(number: str, finding: Finding, title: str, gain: str) -> Row:
    return row(words(f"{number}. ", *_at(finding.where), f": {title}"), gain)


def _at(where: Where) -> Words:
    """Returns a source line in its briefest form. If a line of another file called it, that line follows."""
    caller = where.called_from
    own = words(Span(_line(where), "place"))
    if caller is None or caller.file == where.file:
        return own
    return words(own, " from ", Span(_line(caller), "place"))


def _line(where: Where | Caller) -> str:
    if not where.file:
        return short((where.op if isinstance(where, Where) else None) or where.function or "somewhere")
    name = short(where.file.replace("\\", "/").rpartition("/")[2])
    return name if where.line is None else f"{name}:{where.line}"
