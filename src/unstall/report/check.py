"""The report of `unstall check`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from unstall.budgets.outcome import CheckResult, Outcome, OutcomeLine
from unstall.document.document import (
    Annotation,
    Block,
    Case,
    Column,
    Document,
    Entries,
    Entry,
    Prose,
    Row,
    Span,
    Table,
    Words,
    words,
)
from unstall.figures import counted
from unstall.report.repository import place_in_repository
from unstall.report.scrub import files_at
from unstall.report.wording import about, origin, place, place_and_operator, row

_STATES = {
    "held": Span("held", "good"),
    "exceeded": Span("exceeded", "bad"),
    "unknown": Span("cannot be checked", "warning"),
}
_ALONE = {
    "held": "The budget holds.",
    "exceeded": "The budget is exceeded.",
    "unknown": "The budget cannot be checked.",
}


def document(result: CheckResult, in_repository: Mapping[str, str] | None = None) -> Document:
    """Returns the report of `unstall check`.

    `in_repository` maps the path of a source file, as it stands in `result`, to the file's path
    relative to the root of the git repository. Annotations for continuous integration show the
    latter.
    """
    cases = tuple(_case(result, outcome, in_repository or {}) for outcome in result.outcomes)
    unknown = tuple(words(Span(each.text, "warning")) for each in result.outcomes if each.state == "unknown")
    blocks: list[Block] = [_table(result.outcomes), *_lines(result.outcomes)]
    if unknown:
        blocks.append(Prose(unknown))
    return Document(
        title="unstall check",
        about=_about(result),
        caveats=(Prose((words(Span(result.shortfall, "warning")),)),) if result.shortfall else (),
        summary=_summary(result.outcomes),
        blocks=tuple(blocks),
        data=result,
        annotations=tuple(_in_turn([case.at for case in cases])),
        cases=cases,
    )


def _about(result: CheckResult) -> tuple[Words, ...]:
    if result.source and result.steps:
        return about(result.path, result.source, result.steps)
    return (words(Span(result.path, "subject")),)


def _summary(outcomes: Sequence[Outcome]) -> str:
    """Returns a sentence such as "All 3 budgets hold." or "1 of 3 budgets is exceeded, 1 cannot be checked."."""
    states = [outcome.state for outcome in outcomes]
    if len(states) == 1:
        return _ALONE[states[0]]
    over, unknown = states.count("exceeded"), states.count("unknown")
    if not over and not unknown:
        return f"All {len(outcomes)} budgets hold."
    of = f"of {counted(len(outcomes), 'budget')}"
    parts = [f"{over} {of} {'is' if over == 1 else 'are'} exceeded"] if over else []
    parts += [f"{unknown}{'' if over else f' {of}'} cannot be checked"] if unknown else []
    return f"{', '.join(parts)}."


def _table(outcomes: Sequence[Outcome]) -> Table:
    rows: list[Row] = [
        row(outcome.name, outcome.limit_text, outcome.seen_text or "-", words(_STATES[outcome.state]))
        for outcome in outcomes
    ]
    return Table(words("budget"), (Column("limit"), Column("seen"), Column("", "left")), tuple(rows))


def _lines(outcomes: Sequence[Outcome]) -> Iterator[Entries]:
    """Yields, for each exceeded budget, a list of the source lines that count towards it.

    If several source lines have the same advice, only the first of these lines shows it. Each other
    one says to which line it refers.
    """
    given: dict[str, tuple[str, int]] = {}
    for outcome in outcomes:
        if outcome.state != "exceeded":
            continue
        entries = []
        for number, line in enumerate(outcome.lines, 1):
            name, first = given.setdefault(line.fix, (outcome.name, number))
            again = "" if (name, first) == (outcome.name, number) else f"as in {first}"
            again += f" of {name}" if again and name != outcome.name else ""
            title = words(place_and_operator(line.where), Span(f" ({line.text})", "dim"))
            entries.append(Entry(title, (), tuple(_details(line, again or line.fix))))
        yield Entries(words(Span(outcome.text, "bad")), (), tuple(entries))


def _details(line: OutcomeLine, advice: str) -> Iterator[tuple[str, Words]]:
    caller = line.where.called_from
    if caller:
        yield "from", words(Span(place(caller), "place"))
    if line.title:
        yield "what", words(line.title)
    if line.fix:
        yield "do", words(advice)


def _case(result: CheckResult, outcome: Outcome, in_repository: Mapping[str, str]) -> Case:
    at: tuple[Annotation, ...] = ()
    if outcome.state == "exceeded":
        at = tuple(_annotation(result, outcome, line, in_repository) for line in outcome.lines)
    if outcome.state != "held" and not at:
        at = (Annotation("error", "unstall check", outcome.text, in_repository.get(result.path)),)
    return Case(outcome.budget, outcome.name, outcome.state, outcome.text, at)


def _annotation(
    result: CheckResult, outcome: Outcome, line: OutcomeLine, in_repository: Mapping[str, str]
) -> Annotation:
    said = ". ".join(part.rstrip(".") for part in (f"{origin(line.where)}: {line.text}", line.title) if part)
    text = f"{said}. Do: {line.fix}" if line.fix else f"{said}."
    where = line.where
    identity = " ".join(filter(None, (where.function, where.op, line.title)))
    file, number = place_in_repository(where, in_repository)
    if not file:
        file, number = in_repository.get(result.path), None
    return Annotation("error", f"unstall check: {outcome.text}", text, file, number, identity)


def _in_turn(several: Sequence[Sequence[Annotation]]) -> Iterator[Annotation]:
    """Yields the first annotation of each sequence, then the second annotation of each, and so on.

    GitHub shows only the first ten annotations. In this order, they come from as many sequences as
    possible.
    """
    for number in range(max(map(len, several), default=0)):
        yield from (each[number] for each in several if number < len(each))


def files_of_check(result: CheckResult) -> set[str]:
    """Returns the paths of all source files that `result` names, including those of callers."""
    return files_at(line.where for outcome in result.outcomes for line in outcome.lines)
