"""The trace of a run: how it is named, made, and published under its name.

The trace is made in the folder of the recording, and the report is made from that file or from memory. So the report
never depends on what lies under the trace's name: a parallel run, a pipe or a device may be there.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.cli._inputs import read_timeline
from unstall.cli._progress import working
from unstall.cli._recording import failure, say
from unstall.errors import TraceError, UsageError
from unstall.files import writing_atomically

if TYPE_CHECKING:
    from unstall.recording.journal import Event
    from unstall.timeline.columns import Timeline

_ENDING = ".trace.json.gz"
_MADE = "made.trace.json"


@dataclass(frozen=True, slots=True)
class TraceTarget:
    """Where a trace goes.

    Attributes:
        path: The file that the user named, or None. A file of this name is replaced.
        stem: The beginning of the default name, if the user named no file.
        folder: The folder of the default name.
    """

    path: Path | None
    stem: str = ""
    folder: Path = Path()

    def likely(self) -> Path:
        """Returns the path that the trace will have, unless another process takes the default name first."""
        return self.path or next(path for path in self._names() if not os.path.lexists(path))

    def publish(self, write: Callable[[Path], object]) -> Path:
        """Writes the trace by `write(path)`, and returns its path.

        A default name is claimed first: an empty file is created under the first name that is free. So parallel runs
        get different names. If `write` raises an error, the claim is removed.

        Raises UsageError if the trace cannot be written.
        """
        if self.path is not None:
            write(self.path)
            return self.path
        path = self._claim()
        try:
            write(path)
        except BaseException:
            with suppress(OSError):
                if not path.stat().st_size:
                    path.unlink()
            raise
        return path

    def _claim(self) -> Path:
        for path in self._names():
            try:
                claimed = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
            except FileExistsError:
                continue
            except OSError as error:
                reason = error.strerror or str(error)
                raise UsageError(f"{path}: cannot be written: {reason}. Choose another place with --trace") from error
            with suppress(OSError):  # the name is taken, and nothing was written
                os.close(claimed)
            return path
        raise AssertionError("numbers do not end")

    def _names(self) -> Iterator[Path]:
        """Yields train.trace.json.gz, train-2.trace.json.gz, and so on. `stem` is "train" in this example."""
        for number in itertools.count(1):
            yield self.folder / f"{self.stem}{'' if number == 1 else f'-{number}'}{_ENDING}"


def trace_target(named: str | None, stem: str, rank: int | None = None) -> TraceTarget:
    """Returns where the trace of a run goes.

    Args:
        named: The file that the user named, or None for a default name in the current folder.
        stem: The beginning of the default name.
        rank: The rank of this process in a distributed run. Each rank has its own name: train-rank1.trace.json.gz.
    """
    suffix = "" if rank is None else f"-rank{rank}"
    if named is None:
        return TraceTarget(None, stem + suffix)
    path = Path(named)
    stem, dot, endings = path.name.partition(".")
    return TraceTarget(path.with_name(f"{stem}{suffix}{dot}{endings}") if suffix else path)


def check_folders(targets: Sequence[Path]) -> None:
    """Raises UsageError if the folder of a file in `targets` cannot be written to.

    Verbs call this before the program runs.
    """
    for target in targets:
        if target.exists() and not target.is_file():
            continue
        try:
            tempfile.TemporaryFile(dir=target.resolve().parent).close()
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(f"{target}: cannot be written: {reason}. Choose another place for the output") from error


@dataclass(frozen=True, slots=True)
class Kept:
    """The outcome of a recording.

    Attributes:
        file: The trace, or another file that has the run. None if there is none.
        timeline: The recorded run, for the report. None if nothing was recorded, or if no report was requested.
        lost: Whether the recorder failed before it recorded anything, or the trace could not be written.
    """

    file: Path | None = None
    timeline: Timeline | None = None
    lost: bool = False


def keep_recording(
    folder: Path, target: TraceTarget, events: Sequence[Event], *, missing: str | None, quiet: bool, read: bool
) -> Kept:
    """Makes the trace of a recording, and publishes it. Then removes the recording's folder. If the trace cannot be
    written, prints the reason, and the folder stays.

    Args:
        folder: The recording's folder.
        target: Where the trace goes.
        events: The journal of the recording.
        missing: Why the recording never began; None if it began.
        quiet: Whether to print errors only.
        read: Whether to return the timeline.
    """
    try:
        with working("writing the trace", quiet=quiet):
            source, trace, shortfall = _made(folder, target, missing)
        if not shortfall and (failed := failure(events)):
            say(f"the recording is incomplete: {failed}")
        if trace is None:
            trace = published(target, lambda path: _copy(source, path))
        if trace and not quiet:
            say(f"the trace is in {trace}")
        timeline = _read(source, str(trace or source), quiet=quiet) if read and source.is_file() else None
    except TraceError as error:
        say(str(error))
        shutil.rmtree(folder, ignore_errors=True)
        return Kept(lost=failure(events) is not None)
    except BaseException:
        say(kept_in(folder))
        raise
    if trace is None:
        say(kept_in(folder))
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return Kept(trace or source, timeline, lost=trace is None)


def published(target: TraceTarget, write: Callable[[Path], object]) -> Path | None:
    """Publishes a trace, and returns its path. If it cannot be written, prints the reason and returns None."""
    try:
        return target.publish(write)
    except UsageError as error:
        say(str(error))
        return None


def make_trace(folder: Path, path: Path, missing: str | None) -> str | None:
    """Writes the trace of a recording. Arguments, result and errors are those of `recording.trace.write`."""
    from unstall.recording.trace.write import write_trace

    return write_trace(folder, path, missing=missing)


def _made(folder: Path, target: TraceTarget, missing: str | None) -> tuple[Path, Path | None, str | None]:
    """Makes the trace in the recording's folder. If this folder has no room for the trace, makes the trace under its
    final name.

    Returns (file of the trace, path of the published trace or None, shortfall of the recording or None).
    """
    made = folder / (f"{_MADE}.gz" if target.likely().suffix == ".gz" else _MADE)
    try:
        return made, None, make_trace(folder, made, missing)
    except UsageError:
        shortfalls = []
        path = target.publish(lambda path: shortfalls.append(make_trace(folder, path, missing)))
        return path, path, shortfalls[0]


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as made, writing_atomically(target) as file:
        shutil.copyfileobj(made, file)


def _read(file: Path, name: str, *, quiet: bool) -> Timeline:
    """Reads the trace in `file`. In errors and in the timeline, the trace is called `name`."""
    try:
        timeline = read_timeline(str(file), quiet=quiet)
    except TraceError as error:
        raise TraceError(str(error).replace(str(file), name)) from error
    return replace(timeline, meta=replace(timeline.meta, path=name))


def kept_in(folder: Path) -> str:
    """Returns a sentence that says where a recording is kept. Its trace could not be written."""
    return f"the recording is kept in {folder}; unstall recover {folder} writes its trace"
