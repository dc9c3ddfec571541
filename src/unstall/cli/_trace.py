"""The trace of a run: how it is named, made, and written to the file that has its name.

The trace is first made in the folder of the recording, and the report is made from that file or
from memory. So the report does not depend on what else has the trace's name: this may be the trace
of a parallel run, a pipe or a device.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
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
    """The file to which the trace of a run is written.

    Attributes:
        path: The file that the user named; None if the user named none. If the file exists, it is
            replaced.
        stem: The beginning of the default name, which is used if the user named no file.
        folder: The folder for a file with the default name.
    """

    path: Path | None
    stem: str = ""
    folder: Path = Path()

    def likely(self) -> Path:
        """Returns the path that the trace will have, unless another process takes the default name first."""
        return self.path or next(path for path in self._names() if not os.path.lexists(path))

    def publish(self, write: Callable[[Path], object]) -> Path:
        """Writes the trace to its file, and returns the path of the file.

        If the user named no file, an empty file is created first, under the first default name that
        is free. So parallel runs get different names. If `write` raises an error, the empty file is
        removed.

        Args:
            write: A function that writes the trace to the path that it gets.

        Raises:
            UsageError: The trace cannot be written.
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
    """Returns the file to which the trace of a run is written.

    Args:
        named: The file that the user named; None for a default name in the current folder.
        stem: The beginning of the default name, such as "train".
        rank: The rank of this process in a distributed run, which becomes a part of the name:
            train-rank1.trace.json.gz. None if the run is not distributed.
    """
    suffix = "" if rank is None else f"-rank{rank}"
    if named is None:
        return TraceTarget(None, stem + suffix)
    path = Path(named)
    stem, dot, endings = path.name.partition(".")
    return TraceTarget(path.with_name(f"{stem}{suffix}{dot}{endings}") if suffix else path)


def check_folders(targets: Sequence[Path]) -> None:
    """Checks that files can be created in the folders of all files in `targets`. Commands call this
    before the program runs.

    Raises:
        UsageError: A folder cannot be written to.
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
    """What is left of a recording: its trace, and the recorded run.

    Attributes:
        file: The trace, or another file that has the run. None if there is none.
        timeline: The recorded run, for the report. None if nothing was recorded, or if no report
            was requested.
        lost: Whether the recorder failed before it recorded anything, or the trace could not be
            written.
    """

    file: Path | None = None
    timeline: Timeline | None = None
    lost: bool = False


def keep_recording(
    folder: Path, target: TraceTarget, events: Sequence[Event], *, missing: str | None, quiet: bool, read: bool
) -> Kept:
    """Makes the trace of a recording, and writes it to its file. After that, removes the folder of
    the recording. If the trace cannot be written, prints the reason, and does not remove the
    folder.

    Args:
        folder: The folder of the recording.
        target: The file to which the trace is written.
        events: The events that the recorded program wrote.
        missing: Why the recording never began; None if it began.
        quiet: Whether to print errors only.
        read: Whether to return the recorded run, for a report.
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
    """Writes a trace to its file, and returns the path of the file. If the trace cannot be written,
    prints the reason and returns None.

    Args:
        target: The file to which the trace is written.
        write: A function that writes the trace to the path that it gets.
    """
    try:
        return target.publish(write)
    except UsageError as error:
        say(str(error))
        return None


def make_trace(folder: Path, path: Path, missing: str | None) -> str | None:
    """Writes the trace of a recording to a file.

    Args:
        folder: The folder of the recording.
        path: The file to write.
        missing: Why the recording never began; None if it began.

    Returns:
        None if the file has the recording. If it has the program's first steps instead, a clause
        that says why.

    Raises:
        TraceError: Nothing was recorded.
        UsageError: The file cannot be written.
    """
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
    return timeline.with_meta(path=name)


def kept_in(folder: Path) -> str:
    """Returns a sentence that says in which folder a recording is, because its trace could not be written."""
    return f"the recording is kept in {folder}; unstall recover {folder} writes its trace"
