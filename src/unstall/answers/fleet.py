"""`unstall.fleet`: explains a training job of many ranks as one. The result is a `Fleet`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.diagnose.arguments import texts
from unstall.document.shown import Shown
from unstall.errors import TraceError
from unstall.fleets.fleet import explain_fleet
from unstall.fleets.result import SCHEMA, FleetResult, FleetVerdict, Straggler

# What reports and comparisons need is imported in their methods, because imports take most of the time of a small job.
if TYPE_CHECKING:
    from unstall.document.document import Document
    from unstall.fleets.difference import FleetDifference
    from unstall.fleets.executors import Executor

_BEGINS = re.compile(rb'\s*\{\s*"clocks"\s*:')  # the first key of a saved result


@dataclass(frozen=True, repr=False)
class Fleet(Shown):
    """The result of `fleet`: an explanation of a job (all ranks of a distributed run). `print`
    shows it. `save` writes it to a file as .html, .json, .md or .txt.
    """

    result: FleetResult

    @property
    def verdict(self) -> FleetVerdict:
        """What holds up the job: a straggler, uneven stages, uneven work, communication, or the ranks' own work."""
        return self.result.verdict

    @property
    def stragglers(self) -> tuple[Straggler, ...]:
        """The ranks for which the other ranks wait because their own work takes longer. The costliest comes first."""
        return self.result.stragglers

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the report as a document. If `scrub_paths` is set, file paths are shortened."""
        from unstall.report.editor import with_links
        from unstall.report.fleet import document, names_of

        if not scrub_paths:
            return with_links(document(self.result), self._files)
        from unstall.document.json import map_texts
        from unstall.report.scrub import scrubber_of

        scrubber = scrubber_of(self.result.source, {*self._files(), *names_of(self.result)})
        return document(map_texts(self.result, scrubber))

    def _files(self) -> set[str]:
        from unstall.report.scrub import files_at

        result = self.result
        wheres = [line.where for line in result.lines]
        wheres += [cause.where for each in result.stragglers for cause in each.causes]
        wheres += [cause.where for each in result.stages for cause in each.causes]
        wheres += [member.doing for moment in result.moments for member in moment.members if member.doing]
        return files_at(wheres)


@dataclass(frozen=True, repr=False)
class FleetsCompared(Shown):
    """What changed from one job (all ranks of a distributed run) to another. `print` shows it.
    `save` writes it to a file.
    """

    result: FleetDifference

    @classmethod
    def between(cls, a: Fleet, b: Fleet) -> FleetsCompared:
        """Compares the earlier job `a` with the later job `b`."""
        from unstall.fleets.difference import compare

        return cls(compare(a.result, b.result))

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the comparison as a document. If `scrub_paths` is set, file paths are shortened."""
        from unstall.document.json import map_texts
        from unstall.report.editor import with_links
        from unstall.report.fleet_diff import document
        from unstall.report.scrub import files_at, scrubber_of

        result = self.result
        wheres = [each.where for each in result.lines]
        wheres += [each.cause.where for each in result.stragglers if each.cause is not None]
        files = files_at(wheres)
        if not scrub_paths:
            return with_links(document(result), lambda: files)
        shorten = scrubber_of(result.a.source, {*files, result.b.source})
        return document(map_texts(result, shorten))


def is_fleet(path: str | Path) -> bool:
    """Returns whether a path has a whole job (all ranks of a distributed run): whether it is a
    folder, a glob, or a saved result of `fleet`.
    """
    if Path(path).exists():
        return Path(path).is_dir() or _saved(path) is not None
    return has_magic(str(path))


def read_fleet(path: str | Path, *, step: str | None = None, user: Sequence[str] = ()) -> Fleet:
    """Reads a saved result of `fleet`, or explains the traces of all ranks.

    Args:
        path: The saved result, or a folder or glob of the traces.
        step: The name (or glob) of the annotation around one step. By default, steps are detected.
        user: Globs of the files that count as your code. By default, these are all files except
            framework files.

    Raises:
        TraceError: None of the files can be used.
        UsageError: There are no traces, or no annotation is called `step`.
    """
    saved = _saved(path)
    return saved if saved is not None else fleet(path, step=step, user=user)


def _saved(path: str | Path) -> Fleet | None:
    from unstall.answers.decoded import decoded

    with suppress(TraceError, OSError):
        with Path(path).open("rb") as file:
            if not _BEGINS.match(file.read(64)):  # a trace may be large
                return None
        return Fleet(decoded(path, {SCHEMA: FleetResult}))
    return None


def fleet(
    source: str | Path | Iterable[str | Path],
    *,
    edits: str | Sequence[str] = (),
    step: str | None = None,
    user: str | Sequence[str] = (),
    on: str | Executor | None = None,
    cache: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Fleet:
    """Explains a training job of many ranks as one: who makes the others wait, at which lines, and
    why.

    Several threads may call this function at the same time.

    Args:
        source: a folder, a glob or a list of the ranks' traces, as torch.profiler or unstall wrote
            them.
        edits: changes to replay, such as "no-stragglers", "rank-like:3:0", "balance-stages", an
            edit of `whatif` for all ranks ("comm-speed:2"), or for one ("3/remove-syncs").
        step: the name (or glob) of the annotation around one step. By default, steps are detected.
        user: globs of the files that count as your code. By default, these are all files except
            framework files.
        on: where the traces are read: None for processes of this machine, "ray", "ray://ADDRESS",
            or an `Executor`.
        cache: keep the summaries of the ranks in the user's cache, so that the next question is
            faster.
        progress: called with (ranks done, ranks in all) while the traces are read.

    Returns:
        The explanation of the job. `print` shows it, and its `save` writes it as .html, .json, .md
        or .txt.

    Raises:
        TraceError: none of the files can be used.
        UsageError: there are no files, an edit or annotation does not exist, or there is no such
            cluster.
    """
    return Fleet(
        explain_fleet(
            source,
            edits=texts(edits, "edits", "edits"),
            step=step,
            user=texts(user, "user", "globs of files"),
            on=on,
            cache=cache,
            progress=progress,
        )
    )
