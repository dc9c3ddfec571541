"""The report of `show` on one finding. It shows the finding's source line, the line that called this source line, and a
patch.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from unstall.document.document import Block, Code, Document, Prose, Span, Words, words
from unstall.figures import duration
from unstall.patches.patch import Patch
from unstall.patches.source import Excerpt
from unstall.report.explain import BEFORE_BUGS, BEFORE_EXPLAINED, details, gain_of, heading, over
from unstall.report.wording import explained, harmless, wrong
from unstall.result import Caller, Finding, Result, Where

SHOW_SCHEMA = "unstall.show/1"


class Lines(msgspec.Struct, frozen=True, kw_only=True):
    """Source lines around one line. If the source lines are not available, `why_not` says why."""

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
        number: The finding's number in the report, such as "1", or "b1" for a bug. If the user named a source line
            instead of a number, `number` is the source line.
        finding: The finding, as in `unstall.explain/1`.
        source: The source lines around the finding's line, and around the line that called the finding's line.
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
    """Returns {number in the report: finding}. The numbers are "1", "2" and so on, "b1", "b2" and so on for bugs, or
    "g1", "g2" and so on for what is good to know."""
    kinds = {BEFORE_BUGS: wrong(result), "": result.costly, BEFORE_EXPLAINED: explained(result)}
    return {f"{before}{number}": each for before, found in kinds.items() for number, each in enumerate(found, 1)}


def findings_at(result: Result, place: str) -> list[Finding]:
    """Returns the findings at a source line, such as "train.py:41".

    The result includes findings that are not worth a change. Such findings have no number in the report.
    """
    found = [
        (f"{each.where.file}:{each.where.line}", each) for each in (*wrong(result), *result.costly, *harmless(result))
    ]
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
    """Returns the report on one finding.

    Args:
        result: The result that contains the finding.
        number: The finding's number in the report, or the finding's source line.
        finding: The finding.
        excerpts: Excerpts of the source, each as (role, place, excerpt). The role is "at" or "from".
        patch: The patch, or a text that says why there is no patch.
        apply: The command that applies the patch.
        caveat: A warning about the source lines, or "".
    """
    blocks: list[Block] = [] if finding.fault else [Prose((_figures(result, finding),))]
    if caveat:
        blocks.append(Prose((words(Span(caveat, "warning")),)))
    blocks += [_source(role, where, found) for role, where, found in excerpts if where.line is not None]
    labelled = [(label, text) for label, text in details(finding, None) if label not in ("at", "from")]
    blocks.append(Prose(tuple(words(Span(f"{label}: ", "dim"), text) for label, text in labelled)))
    blocks += _patch(patch, apply)
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


def _figures(result: Result, finding: Finding) -> Words:
    """Returns the finding's gain, exposed time and host waits in one line."""
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
    note = [words(Span("note: ", "dim"), patch.note)] if patch.note else []
    return [*shown, Prose((*note, words(Span("apply it: ", "dim"), apply)))]


def _lines(role: str, where: Where | Caller, found: Excerpt) -> Lines:
    return Lines(
        role=role,
        file=where.file or "",
        line=found.line,
        first=found.first,
        lines=found.lines,
        why_not=found.why_not,
    )
