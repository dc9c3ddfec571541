"""The report of `unstall show` on one finding: its source line, the line that called it, and a patch."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from unstall.document.document import Block, Code, Document, Prose, Span, Words, labelled, words
from unstall.figures import duration
from unstall.patches.patch import Patch
from unstall.patches.source import Excerpt
from unstall.report.explain import BEFORE_BUGS, BEFORE_EXPLAINED, details, gain_of, heading, over
from unstall.report.wording import explained, harmless, wrong
from unstall.result import Caller, Finding, Result, Where

SHOW_SCHEMA = "unstall.show/1"


class Lines(msgspec.Struct, frozen=True, kw_only=True):
    """A source line, with the lines before and after it.

    Attributes:
        role: "at" for the line of a finding, "from" for the line that called it.
        file: The file's path.
        line: The number of the source line itself.
        first: The number of the first line in `lines`.
        lines: The text of each line; empty if the source is not available.
        why_not: Why the source is not available; "" if it is.
    """

    role: str
    file: str
    line: int
    first: int
    lines: tuple[str, ...]
    why_not: str = ""


class FindingWithSource(msgspec.Struct, frozen=True, kw_only=True):
    """One finding with its source lines, in the JSON schema `unstall.show/1`.

    Attributes:
        schema: The name and version of this schema.
        version: The version of unstall.
        number: The finding's number in the report, such as "1", or "b1" for a bug. If the user
            asked for a source line instead, that line, such as "train.py:41".
        finding: The finding, as in the schema `unstall.explain/1`.
        source: The lines around the finding's line, and around the line that called it.
        patch: A unified diff, or None if there is no patch.
        patch_note: A note on the patch, or why there is no patch.
    """

    schema: str = SHOW_SCHEMA
    version: str
    number: str
    finding: Finding
    source: tuple[Lines, ...]
    patch: str | None
    patch_note: str


def numbered(result: Result) -> dict[str, Finding]:
    """Returns `{number: finding}` for the findings that the report numbers.

    The numbers are "1", "2" and so on for findings that cost something, "b1" and so on for bugs,
    and "g1" and so on for what is good to know.
    """
    kinds = {BEFORE_BUGS: wrong(result), "": result.costly, BEFORE_EXPLAINED: explained(result)}
    return {f"{before}{number}": each for before, found in kinds.items() for number, each in enumerate(found, 1)}


def place_of(where: Where) -> str:
    """Returns a source line in the form in which `unstall show` takes it."""
    return f"{where.file}:{where.line}"


def findings_at(result: Result, place: str) -> list[Finding]:
    """Returns the findings at a source line. `place` is like "train.py:41"; the end of the file's
    path is enough.

    Findings that are not worth a change are included, although the report does not number them.
    """
    found = [(place_of(each.where), each) for each in (*wrong(result), *result.costly, *harmless(result))]
    whole = [each for at, each in found if at == place]
    return whole or [each for at, each in found if at.endswith(f"/{place}")]


def document(
    result: Result,
    number: str,
    finding: Finding,
    excerpts: Sequence[tuple[str, Where | Caller, Excerpt]],
    patch: Patch | str,
    apply: str,
    caveat: str = "",
) -> Document:
    """Returns the report of `unstall show` on one finding.

    Args:
        result: The result that contains the finding.
        number: The finding's number in the report, or the source line by which the user asked for
            it.
        finding: The finding.
        excerpts: Excerpts of the source, each as `(role, place, excerpt)`. The role is "at" for the
            finding's line, "from" for the line that called it.
        patch: The patch, or a text that says why there is no patch.
        apply: The command that applies the patch.
        caveat: A warning about the source lines, or "".
    """
    blocks: list[Block] = [] if finding.fault else [Prose((_figures(result, finding),))]
    if caveat:
        blocks.append(Prose((words(Span(caveat, "warning")),)))
    blocks += [_source(role, where, found) for role, where, found in excerpts if where.line is not None]
    about = (labelled(label, text) for label, text in details(finding, None) if label not in ("at", "from"))
    blocks.append(Prose(tuple(about)))
    blocks += _patch(patch, apply)
    if others := _others(result, number, finding):
        blocks.append(Prose((labelled("also at this line", "; ".join(others)),)))
    is_number = number.removeprefix(BEFORE_BUGS).isdecimal()
    what = f"{'bug' if finding.wrong else 'finding'} {number if is_number else f'at {number}'}: "
    return Document(
        title="unstall",
        about=(
            words(Span(result.source.path, "subject")),
            words(Span(what, "dim"), heading(result, finding, strong=True)),
        ),
        blocks=tuple(blocks),
        data=FindingWithSource(
            version=result.version,
            number=number,
            finding=finding,
            source=tuple(_lines(role, where, found) for role, where, found in excerpts if where.line is not None),
            patch=patch.diff if isinstance(patch, Patch) else None,
            patch_note=patch.note if isinstance(patch, Patch) else patch,
        ),
    )


def _others(result: Result, place: str, finding: Finding) -> list[str]:
    """Returns the titles of the other findings at a source line, each with its number if it has one. Returns [] if
    `place` is the number of a finding.
    """
    numbers = {id(each): f" (finding {number})" for number, each in numbered(result).items()}
    others = (each for each in findings_at(result, place) if each is not finding)
    return [f"{each.title}{numbers.get(id(each), '')}" for each in others]


def _figures(result: Result, finding: Finding) -> Words:
    """Returns one line with the finding's gain, its exposed time, and how long the host waits."""
    if finding.once:
        steps = result.steps.count
        exposed, waits = duration(finding.exposed_ns * steps), duration(finding.wait_ns * steps)
        return words("paid once", f" · exposed {exposed} · host waits {waits} (in all)")
    gain = gain_of(result, finding) or "not known"
    return words(
        "gain ",
        Span(gain, "strong"),
        f" · exposed {duration(finding.exposed_ns)} · host waits {duration(finding.wait_ns)} ({over(result)})",
    )


def _source(role: str, where: Where | Caller, found: Excerpt) -> Block:
    function = f" in {where.function}" if where.function else ""
    was = f" (was {where.line})" if found.line != where.line else ""
    head = words(Span(f"{role} ", "dim"), Span(f"{where.file}:{found.line}{was}{function}", "place"))
    if found.why_not:
        return Prose((words(head, Span(f" ({found.why_not})", "dim")),))
    width = len(str(found.first + len(found.lines) - 1))
    lines = tuple(
        f"{'>' if number == found.line else ' '} {number:{width}}  {line}".rstrip()
        for number, line in enumerate(found.lines, found.first)
    )
    return Code(head, lines, "python")


def _patch(patch: Patch | str, apply: str) -> list[Block]:
    if isinstance(patch, str):
        return [Prose((words(Span("no patch: ", "strong"), patch),))]
    shown: list[Block] = [Code(words("patch"), tuple(patch.diff.splitlines()), "diff")]
    note = [labelled("note", patch.note)] if patch.note else []
    return [*shown, Prose((*note, labelled("apply it", apply)))]


def _lines(role: str, where: Where | Caller, found: Excerpt) -> Lines:
    return Lines(
        role=role,
        file=where.file or "",
        line=found.line,
        first=found.first,
        lines=found.lines,
        why_not=found.why_not,
    )
