"""Shortens paths in results, so that a report for other people does not show the user's home directory and folders."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

from msgspec.structs import replace

from unstall.changes.result import CopyChange, DiffResult, KernelChange, LineChange, WaitChange
from unstall.document.json import map_texts
from unstall.result import Result, Where
from unstall.timeline.columns import Timeline

Scrub: TypeAlias = Callable[[str], str]
"""A function that returns a text with all known paths in it shortened."""

_INSTALLED = re.compile(r"^.*/(?:site-packages|dist-packages|lib/python\d+\.\d+)/", re.DOTALL)
_HOME = re.compile(r"^(?:/home/[^/]+|/Users/[^/]+|/root|[A-Za-z]:/Users/[^/]+)(?:/|$)", re.DOTALL)
_ABSOLUTE = re.compile(r"^(?:[A-Za-z]:)?/+")


def scrub(result: Result, other_paths: Iterable[str] = ()) -> Result:
    """Returns `result` with all paths shortened, also within sentences.

    The paths are those that `result` names, and `other_paths`. To scrub a scrubbed result again
    changes nothing.
    """
    return map_texts(result, scrubber(result, other_paths))


def scrub_timeline(timeline: Timeline, result: Result) -> Timeline:
    """Returns a copy of `timeline` in which all paths are shortened.

    `result` is the result of the same run. Each path is shortened as `scrub` shortens it in
    `result`.
    """
    shorten, meta = scrubber(result, files_of(timeline)), timeline.meta
    return replace(
        timeline,
        strings=tuple(map(shorten, timeline.strings)),
        meta=replace(
            meta,
            path=shorten(meta.path),
            user=tuple(glob for glob in meta.user if not _ABSOLUTE.match(glob)),  # no shortened path matches such a one
            notes=tuple(map(shorten, meta.notes)),
        ),
    )


def files_of(timeline: Timeline) -> set[str]:
    """Returns the paths of all source files in `timeline`, including those of installed packages."""
    return {timeline.text(index) for index in set(timeline.lines.file.tolist())}


def scrubber(result: Result, other_paths: Iterable[str] = ()) -> Scrub:
    """Returns a function that shortens paths in a text: all that `result` names, and `other_paths`."""
    return scrubber_of(result.source.path, {*paths_of(result), *other_paths})


def scrubber_of(source: str, paths: Iterable[str]) -> Scrub:
    """Returns a function that shortens paths in a text: `source` and all of `paths`.

    `source` is the path of a trace. It is shortened to the file's name. `paths` are paths of source
    files. The path of a file of an installed package begins with the package's name afterwards. The
    other absolute paths become relative to the deepest folder that contains all of them.
    """
    short = _shortened(paths)
    short[source] = re.split(r"[\\/]", source)[-1]
    changed = {path: to for path, to in short.items() if path != to}
    if not changed:
        return lambda text: text
    longest_first = sorted(changed, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first)))
    return lambda text: pattern.sub(lambda match: changed[match[0]], text)


def paths_of(result: Result) -> set[str]:
    """Returns the paths of all source files that `result` names."""
    wheres = [finding.where for finding in result.findings] + [line.where for line in result.lines]
    wheres += [
        line.where for counted in (result.waits, result.launches, result.copies) if counted for line in counted.lines
    ]
    wheres += [line.where for line in (result.reserved.lines if result.reserved else ())]
    faults = [finding.fault for finding in result.findings if finding.fault]
    wheres += [where for fault in faults for where in (fault.replayed_at, fault.noticed_at) if where]
    wheres += [part.where for fault in faults for part in fault.held]
    return files_at(wheres)


def files_at(wheres: Iterable[Where]) -> set[str]:
    """Returns the paths of the source files of all places in `wheres`, and of their callers."""
    named = (file for where in wheres for file in (where.file, where.called_from and where.called_from.file))
    return {file for file in named if file}


def _shortened(paths: Iterable[str]) -> dict[str, str]:
    """Returns `{path: short path}`.

    For a file of an installed package, the short path begins below `site-packages` (or
    `dist-packages`, or Python's library). For the other absolute paths, it is relative to the
    deepest folder that contains all of these. Relative paths stay as they are.
    """
    short: dict[str, str] = {}
    own: dict[str, list[str]] = {}
    for path in paths:
        unix = path.replace("\\", "/")
        if _INSTALLED.match(unix):
            short[path] = _INSTALLED.sub("", unix)
        elif _ABSOLUTE.match(unix):
            own[path] = _HOME.sub("/", unix).strip("/").split("/")
        else:
            short[path] = path
    common = _common_folder(list(own.values()))
    return short | {path: "/".join(parts[common:]) for path, parts in own.items()}


def _common_folder(paths: list[list[str]]) -> int:
    """Returns how many leading folders all `paths` have in common. A path is a list of its parts;
    the last part is the file's name.
    """
    depth = 0
    for parts in zip(*(path[:-1] for path in paths), strict=False):
        if len(set(parts)) > 1:
            break
        depth += 1
    return depth


def scrub_diff(result: DiffResult, a: Result, b: Result) -> DiffResult:
    """Returns `result` with all paths shortened, also within sentences. `a` and `b` are the two
    results that `result` compares.
    """
    files = files_compared(result)
    for run in (a, b):
        files |= {file for line in run.lines if (file := line.where.file)}
    of_a, of_b = scrubber(a, files), scrubber(b, files)
    return map_texts(result, lambda text: of_b(of_a(text)))


def files_compared(result: DiffResult) -> set[str]:
    """Returns the paths of all source files that `result` names."""
    changes: list[WaitChange | CopyChange | KernelChange | LineChange]
    changes = [*result.waits, *result.copies, *result.kernels, *result.lines]
    wheres = [where for change in changes for where in (change.where_a, change.where_b) if where]
    return files_at(wheres)
