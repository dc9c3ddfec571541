"""`ShownFinding`: one finding of a report, with the user's source and a patch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from unstall.document.document import Document
from unstall.document.shown import Shown
from unstall.errors import UsageError
from unstall.patches.moved import RanLine, line_now
from unstall.patches.patch import Patch, patch_for
from unstall.patches.source import AROUND_A_CALL, Excerpt, Source, excerpt, read_source
from unstall.report.scrub import scrub
from unstall.report.show import document, findings_at, numbered
from unstall.result import Caller, Finding, Result, Where
from unstall.timeline.columns import Timeline

_STALE = "changed after the run, so lines may have moved: record it again"
_GONE = "the line has changed since the run (is the patch applied already?): record the run again"


_WORTH_A_PATCH = 0.01  # of a step
_MOST_PATCHES = 30  # findings whose source is read at the end of a run

_Ran = Mapping[str, Mapping[int, RanLine]]
"""Maps a file and a line number to a line that ran. Contains only lines whose text has a known digest."""


@dataclass(frozen=True, repr=False)
class ShownFinding(Shown):
    """One finding of a report, with source lines and a patch. `print` shows it. `save` writes it to
    a file.

    Attributes:
        result: The result that has the finding.
        number: The finding's number in the report, such as "1", or "b1" for a bug, or "g1" for a
            finding that is good to know.
        finding: The finding.
        excerpts: Excerpts of the source as `(kind, place, text)`. The kind is "at" for the line of
            the finding, and "from" for the line that called the finding's function.
        patch: The patch, or the reason why the finding has none.
        apply: The command that applies the patch.
        caveat: A warning that the source file changed after the run, or "".
    """

    result: Result
    number: str
    finding: Finding
    excerpts: tuple[tuple[str, Where | Caller, Excerpt], ...]
    patch: Patch | str
    apply: str
    caveat: str = ""

    @classmethod
    def of(
        cls,
        result: Result,
        number: str,
        folders: Sequence[Path],
        *,
        apply: str,
        ran_ns: int | None = None,
        timeline: Timeline | None = None,
    ) -> ShownFinding:
        """Returns one finding of a result, with the source lines around the line of the finding.

        Args:
            result: The result.
            number: The finding's number, such as "1", or "b1" for a bug; or the finding's line,
                such as "train.py:41".
            folders: Source files below these folders may be read, in addition to files below the
                current folder.
            apply: The command that applies the patch.
            ran_ns: When the run ended, in ns since the epoch; None if the time is not known.
            timeline: The timeline of the run. If it contains digests of the source lines that ran,
                lines that have moved since the run are found.

        Raises:
            UsageError: The result has no such finding.
        """
        finding = finding_of(result, number)
        where, caller = finding.where, finding.where.called_from
        ran = _lines_of(timeline) if timeline is not None else {}
        source, line = _read(where, folders, ran)
        excerpts: list[tuple[str, Where | Caller, Excerpt]] = []
        if line is not None:
            excerpts.append(("at", where, excerpt(source, line)))
        if caller is not None:
            called, from_line = _read(caller, folders, ran)
            excerpts.append(("from", caller, excerpt(called, from_line or caller.line, AROUND_A_CALL)))
        told = bool(ran.get(where.file or ""))
        stale = isinstance(source, Source) and not told and ran_ns is not None and source.changed_ns > ran_ns
        now = msgspec.structs.replace(finding, where=msgspec.structs.replace(where, line=line))
        caveat = f"{where.file}: {_STALE}" if stale else ""
        return cls(
            result, number, finding, tuple(excerpts), patch_for(now, source, _beside(result, finding)), apply, caveat
        )

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the finding as a document. If `scrub_paths` is set, file paths are shortened."""
        result = scrub(self.result, ()) if scrub_paths else self.result
        finding = result.findings[self.result.findings.index(self.finding)]
        return document(result, self.number, finding, self.excerpts, self.patch, self.apply, self.caveat)


def with_patches(result: Result) -> list[str]:
    """Returns the numbers of the findings that are worth a patch and for which there is one.

    A finding is worth a patch if it is a bug, or if fixing it gains at least 1 % of a step. The
    caller must make sure that the source files have not changed since the run.
    """
    sources: dict[str | None, Source | str] = {}
    found = []
    worth = [(number, each) for number, each in numbered(result).items() if each.wrong or _is_worth_it(result, each)]
    for number, finding in worth[:_MOST_PATCHES]:
        file = finding.where.file
        if file not in sources:
            sources[file], _ = _read(finding.where, (), {})
        if isinstance(patch_for(finding, sources[file], _beside(result, finding)), Patch):
            found.append(number)
    return found


def _is_worth_it(result: Result, finding: Finding) -> bool:
    """Returns whether fixing the finding gains at least 1 % of a step, alone or as part of the plan.

    If no gain is known, the idle time that the finding causes counts as the gain.
    """
    step_ns = result.replay.undistorted_mean_step_ns if result.replay else result.steps.mean_ns
    planned = [step.gain_ns for step in result.plan or () if finding.edit is not None and step.edit == finding.edit]
    unknown = finding.gain_ns is None and finding.gain_below_ns is None
    return max(finding.exposed_ns if unknown else finding.gain_ns or 0, *planned, 0) >= _WORTH_A_PATCH * step_ns


def _beside(result: Result, finding: Finding) -> list[Finding]:
    """Returns all findings at the same source line as `finding`, including `finding`."""
    place = finding.where.file, finding.where.line
    return [each for each in result.findings if (each.where.file, each.where.line) == place]


def _lines_of(timeline: Timeline) -> _Ran:
    lines, text = timeline.lines, timeline.text
    functions: dict[tuple[str, int], set[str]] = defaultdict(set)
    for file, line, function in zip(lines.file.tolist(), lines.line.tolist(), lines.function.tolist(), strict=True):
        functions[text(file), line].add(text(function))
    return {
        file: {line: RanLine(digest, frozenset(functions[file, line])) for line, digest in digests.items()}
        for file, digests in timeline.line_digests().items()
    }


def _read(place: Where | Caller, folders: Sequence[Path], ran: _Ran) -> tuple[Source | str, int | None]:
    """Reads the source file of `place`, from the current folder or from one of `folders`.

    A file in `folders` need not have the whole path of `place`: the last parts of the path are enough.

    Returns (source, line). `source` is the source, or a text that says why the source cannot be shown. `line` is the
    line's number in the file as it is now.
    """
    file, line = place.file, place.line
    if not file:
        return "the run has no source lines", line
    source = read_source(file, [Path()])
    if isinstance(source, str) and folders:
        source = read_source(file, folders, by_ending=True)
    if isinstance(source, str) or line is None or line not in ran.get(file, {}):
        return source, line
    try:
        now = line_now(line, ran[file], source.text)
    except SyntaxError:
        now = None
    return (source, now) if now is not None else (_GONE, line)


def finding_of(result: Result, number: str) -> Finding:
    """Returns the finding with a number, such as "1" or "b1", or at a line, such as "train.py:41".

    Raises:
        UsageError: The result has no such finding.
    """
    found = numbered(result)
    if number in found:
        return found[number]
    if ":" in number and (there := findings_at(result, number)):
        return there[0]
    # The user may not have named the run: then it is the last one.
    path = result.source.path
    if not found:
        raise UsageError(f"{number!r} is no finding of {path}, which has none that costs anything")
    raise UsageError(f"{number!r} is no finding of {path}: it has {', '.join(found)}; ask for a line as FILE:LINE")
