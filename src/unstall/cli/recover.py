"""Write the trace of a recording that `unstall run` could not finish.

    unstall recover
    unstall recover FOLDER
    unstall recover FOLDER train.trace.json.gz

If `unstall run` is killed, or fails while it writes the trace, what it recorded stays in a temporary folder. Without
FOLDER, such folders are listed. FOLDER itself is not changed. You may remove it afterwards.
"""

from __future__ import annotations

import argparse
import os
import shlex
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unstall.cli._arguments import parse_file
from unstall.errors import TraceError, UsageError
from unstall.recording.settings import FOLDER_PREFIX, Settings

if TYPE_CHECKING:
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
        return _list(Path(tempfile.gettempdir()))
    from unstall.cli._output import check_replaced
    from unstall.cli._recording import failure, say, why_nothing
    from unstall.cli._trace import trace_target
    from unstall.files import check_targets
    from unstall.recording.journal import read
    from unstall.recording.trace.write import write_trace

    folder = Path(args.folder)
    events = read(folder) if folder.is_dir() else []
    if not events:
        raise UsageError(f"{folder}: this is no folder that unstall recorded to; `unstall recover` lists those")
    target, shortfalls = trace_target(args.trace, folder.resolve().name), []
    check_targets([str(target.likely())], [])
    check_replaced(target.likely())
    missing = why_nothing(events, _settings(folder, events), succeeded=False)
    try:
        trace = target.publish(lambda path: shortfalls.append(write_trace(folder, path, missing=missing)))
    except TraceError as error:
        raise TraceError(f"{folder}: {error}") from error
    if shortfalls == [None] and (failed := failure(events)):
        say(f"the recording is not whole: {failed}")
    say(f"the trace is in {trace}")
    return 0


def _list(temporary: Path) -> int:
    """Prints the recordings that are still in a folder, the newest last, and how to recover each recording. Returns the
    exit code.

    Leaves out recordings of programs that are still running.
    """
    from unstall.cli._recording import say
    from unstall.document.plain import plain
    from unstall.recording.journal import read

    left = []
    for folder in temporary.glob(f"{FOLDER_PREFIX}*"):
        events = read(folder) if os.access(folder, os.R_OK | os.X_OK) else []
        if events and not _runs(events):
            left.append((folder.stat().st_mtime, folder, _program(events), _recorded(folder, events)))
    for changed, folder, program, recorded in sorted(left):
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(changed))
        print(plain(f"{folder}  {when}{program}{'' if recorded else '  nothing was recorded'}"))
    if not left:
        say(f"no recording is left in {temporary}")
    if any(recorded for *_, recorded in left):
        say("`unstall recover FOLDER` writes the trace of one, and leaves the folder")
    if empty := [str(folder) for _, folder, _, recorded in left if not recorded]:
        say(f"to be rid of those in which nothing was recorded: rm -r {shlex.join(sorted(empty))}")
    return 0


def _program(events: Sequence[Event]) -> str:
    """Returns a text with the recorded program and the folder in which the program started. The text leaves out what
    the journal does not contain.
    """
    armed = next((event for event in events if event["event"] == "armed"), {})
    program, folder = armed.get("program"), armed.get("folder")
    return f"{f'  {program}' if program else ''}{f'  in {folder}' if folder else ''}"


def _recorded(folder: Path, events: Sequence[Event]) -> bool:
    """Returns whether anything was recorded. A recording by torch.profiler is on the disk only after its last step."""
    from unstall.recording.first_steps import recorded_beginnings
    from unstall.recording.torch_profiler import FILE

    window = next((event for event in events if event["event"] == "window"), None)
    there = window is not None and (window.get("recorder") != "torch" or (folder / FILE).exists())
    return there or bool(recorded_beginnings(folder))


def _runs(events: Sequence[Event]) -> bool:
    """Returns whether the recorded program is still running."""
    return any(event["event"] == "armed" and Path(f"/proc/{event.get('pid')}").exists() for event in events)


def _settings(folder: Path, events: Sequence[Event]) -> Settings:
    """Returns the settings of a recording, read from its journal."""
    told: dict[str, Any] = next((event["settings"] for event in events if event["event"] == "settings"), {})
    try:
        return Settings(str(folder), **told)
    except TypeError:
        return Settings(str(folder))  # the journal is of another version
