"""Write the trace of a recording that `unstall run` could not finish.

    unstall recover
    unstall recover FOLDER
    unstall recover FOLDER train.trace.json.gz

If `unstall run` is killed, or fails while it writes the trace, the recording stays in a temporary folder. Without
FOLDER, your folders of this kind are listed. FOLDER itself is not changed. You may remove it afterwards. On a virtual
GPU, a program writes its run when it ends. If the program itself is killed, nothing is written, and nothing can be
recovered.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shlex
import stat
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.cli._arguments import parse_file
from unstall.cli._virtual_run import VIRTUAL
from unstall.errors import TraceError, UnstallError, UsageError
from unstall.recording.settings import FOLDER_PREFIX, Settings

if TYPE_CHECKING:
    from unstall.cli._trace import TraceTarget
    from unstall.recording.journal import Event


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", metavar="FOLDER", nargs="?", help="the folder of the recording (default: list such folders)"
    )
    parser.add_argument(
        "trace",
        metavar="TRACE",
        nargs="?",
        type=parse_file,
        help="the file to write (default: FOLDER's name with .trace.json.gz, in the current folder)",
    )


def run(args: argparse.Namespace) -> int:
    if args.folder is None:
        return _list([Path(tempfile.gettempdir())])
    from unstall.cli._output import check_replaced
    from unstall.cli._recording import say
    from unstall.cli._trace import trace_target
    from unstall.files import check_targets
    from unstall.recording.journal import read
    from unstall.recording.left import check_folder

    folder = Path(args.folder)
    events = []
    if folder.is_dir():
        try:
            check_folder(folder.resolve())
            events = read(folder)
        except (TraceError, OSError) as error:
            raise UsageError(f"{folder}: {error}; so the folder is not read") from error
    if not events:
        raise UsageError(f"{folder}: this is no folder that unstall recorded to; `unstall recover` lists those")
    target = trace_target(args.trace, folder.resolve().name)
    check_targets([str(target.likely())], [])
    check_replaced(target.likely())
    try:
        trace = _recover(folder, events, target)
    except UnstallError as error:
        raise type(error)(f"{folder}: {error}") from error
    except Exception as error:  # whatever lies in such a folder
        raise TraceError(f"{folder}: it is damaged ({type(error).__name__}: {error})") from error
    say(f"the trace is in {trace}")
    return 0


def _recover(folder: Path, events: Sequence[Event], target: TraceTarget) -> Path:
    """Writes the trace of a recording, or of a run on the virtual GPU. Returns the trace's path."""
    from unstall.cli._recording import failure, say, why_nothing
    from unstall.cli._trace import make_trace

    if virtual := _virtual(events):
        return _recover_virtual(folder, virtual, target)
    missing = why_nothing(events, _settings(folder, events), succeeded=False)
    shortfalls: list[str | None] = []
    trace = target.publish(lambda path: shortfalls.append(make_trace(folder, path, missing)))
    if shortfalls == [None] and (failed := failure(events)):
        say(f"the recording is incomplete: {failed}")
    return trace


def _recover_virtual(folder: Path, event: Event, target: TraceTarget) -> Path:
    from unstall.cli._virtual_run import write_run
    from unstall.read import load
    from unstall.virtual.run_place import RunPlace

    place = RunPlace(str(folder))
    if not place.timeline.exists():
        why = "; " + place.failed.read_text(errors="replace") if place.failed.exists() else ""
        raise TraceError(f"nothing was recorded: the program was killed before its run could be kept{why}")
    timeline = load(place.timeline)
    metadata = event.get("metadata")
    return target.publish(lambda path: write_run(timeline, path, metadata if isinstance(metadata, dict) else {}))


def _list(places: Sequence[Path]) -> int:
    """Prints the recordings of this user that are still in `places`, the newest last, and how to recover each
    recording. Names the folders that cannot be read. Returns the exit code.

    Leaves out recordings of programs that are still running.
    """
    from unstall.cli._recording import say
    from unstall.document.plain import plain

    left = []
    for folder in itertools.chain.from_iterable(sorted(place.glob(f"{FOLDER_PREFIX}*")) for place in places):
        try:
            if found := _found(folder):
                left.append(found)
        except (TraceError, OSError) as error:
            say(f"{folder} is left out: {error}")
    for changed, folder, program, recorded in sorted(left):
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(changed))
        print(plain(f"{folder}  {when}{program}{'' if recorded else '  nothing was recorded'}"))
    if not left:
        say(f"no recording is left in {', '.join(map(str, places))}")
    if any(recorded for *_, recorded in left):
        say("`unstall recover FOLDER` writes the trace of one, and leaves the folder")
    if empty := [str(folder) for _, folder, _, recorded in left if not recorded]:
        say(f"to be rid of those in which nothing was recorded: rm -r {shlex.join(sorted(empty))}")
    return 0


def _found(folder: Path) -> tuple[float, Path, str, bool] | None:
    """Returns (time of the last change, folder, text about the program, whether anything was recorded) of a recording.
    Returns None if the folder belongs to another user, has no recording, or if its program still runs. Raises
    TraceError if the folder must not be read, and OSError if it cannot be read.
    """
    from unstall.recording.journal import NAME, read
    from unstall.recording.left import check_folder

    about = folder.lstat()
    if about.st_uid != os.geteuid() or not stat.S_ISDIR(about.st_mode) or not os.path.lexists(folder / NAME):
        return None
    check_folder(folder)
    events = read(folder)
    if not events or _runs(events):
        return None
    return about.st_mtime, folder, _program(events), _recorded(folder, events)


def _virtual(events: Sequence[Event]) -> Event | None:
    """Returns the event that says that the program ran on a virtual GPU, or None."""
    return next((event for event in events if event["event"] == VIRTUAL), None)


def _program(events: Sequence[Event]) -> str:
    """Returns a text with the recorded program and the folder in which the program started. The text leaves out what
    the journal does not contain.
    """
    armed = _virtual(events) or next((event for event in events if event["event"] == "armed"), {})
    program, folder = armed.get("program"), armed.get("folder")
    return f"{f'  {program}' if program else ''}{f'  in {folder}' if folder else ''}"


def _recorded(folder: Path, events: Sequence[Event]) -> bool:
    """Returns whether anything was recorded. A recording by torch.profiler is on the disk only after its last step."""
    from unstall.recording.first_steps import recorded_beginnings
    from unstall.recording.torch_profiler import FILE
    from unstall.virtual.run_place import RunPlace

    if _virtual(events):
        return RunPlace(str(folder)).timeline.exists()
    window = next((event for event in events if event["event"] == "window"), None)
    there = window is not None and (window.get("recorder") != "torch" or (folder / FILE).exists())
    return there or bool(recorded_beginnings(folder))


def _runs(events: Sequence[Event]) -> bool:
    """Returns whether the recorded program is still running."""
    from unstall.recording.left import is_running

    return any(
        event["event"] in ("armed", VIRTUAL) and is_running(event.get("pid"), event.get("began_s")) for event in events
    )


def _settings(folder: Path, events: Sequence[Event]) -> Settings:
    """Returns the settings of a recording, read from its journal."""
    told: object = next((event.get("settings") for event in events if event["event"] == "settings"), {})
    try:
        return Settings(str(folder), **told) if isinstance(told, dict) else Settings(str(folder))
    except TypeError:
        return Settings(str(folder))  # the journal is of another version
