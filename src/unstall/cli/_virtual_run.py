"""The run of a program on the virtual GPU: where it is stored, and how it is kept as a trace."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.cli._progress import working
from unstall.cli._recording import say
from unstall.cli._trace import Kept, kept_in, published
from unstall.cli._virtual_part import part_asked_for
from unstall.errors import TraceError
from unstall.figures import signal_name

if TYPE_CHECKING:
    from unstall.cli._trace import TraceTarget
    from unstall.launching.launch import Exit
    from unstall.timeline.columns import Timeline
    from unstall.virtual.options import MachineOptions
    from unstall.virtual.run_place import RunPlace

VIRTUAL = "virtual"
"""The name of an event in the journal (the file of events) of a recording. It says that the program
runs on a virtual GPU.
"""


@contextmanager
def spare_memory() -> Iterator[str]:
    """Yields the path of an empty file in memory. While the block runs, other processes of this
    user can write to this file.
    """
    file = os.memfd_create("unstall-run")
    try:
        yield f"/proc/{os.getpid()}/fd/{file}"
    finally:
        os.close(file)


def note_virtual_run(folder: Path, options: MachineOptions, program: Sequence[str]) -> None:
    """Writes to the folder of a run what `unstall recover` needs to write the trace of the run.

    Args:
        folder: The folder of the run.
        options: The options of the virtual GPU.
        program: The program and its arguments.
    """
    from unstall.recording.journal import Journal

    named = " ".join(program[: 2 if program[0] == "-m" else 1])  # the arguments may hold secrets
    where = os.getcwd()  # noqa: PTH109 - as text
    with suppress(OSError):  # of a full disk: the run may still go into memory
        Journal(folder).write(
            VIRTUAL,
            pid=os.getpid(),
            folder=where,
            program=named,
            began_s=time.time(),
            metadata=options.metadata(),
        )


def keep_virtual_run(
    place: RunPlace, target: TraceTarget, options: MachineOptions, ended: Exit, args: argparse.Namespace
) -> Kept:
    """Writes the trace of a run on the virtual GPU, and removes the folder of the run. If the trace
    cannot be written, prints the reason, and does not remove a folder that contains the run.

    The timeline of the result has the same part of the run as the trace.

    Args:
        place: Where the program stored its run.
        target: The file to which the trace is written.
        options: The options of the virtual GPU.
        ended: How the program ended.
        args: The parsed arguments.
    """
    folder = Path(place.folder)
    lost = True
    try:
        with working("reading the run", quiet=args.quiet):
            timeline = read_run(place, ended)
        lost = False
    except TraceError as error:
        say(str(error))
    if lost or timeline is None:
        shutil.rmtree(folder, ignore_errors=True)
        return Kept(lost=lost)
    part = part_asked_for(timeline.with_meta(step=args.step, user=tuple(args.user)), args)
    with working("writing the trace", quiet=args.quiet):
        trace = published(target, lambda path: write_run(part, path, options.metadata()))
    if trace and not args.quiet:
        say(f"the trace is in {trace}")
    file = trace or (place.timeline if place.timeline.exists() else None)
    if file and file != trace:
        say(kept_in(folder))
    else:
        if trace is None:
            say("there is no room to keep the run, so only its report is shown")
        shutil.rmtree(folder, ignore_errors=True)
    from unstall.virtual.profiler.frames import with_frames

    framed = with_frames(part)
    name = str(file or target.likely())
    return Kept(file, framed.with_meta(path=name), lost=trace is None)


def read_run(place: RunPlace, ended: Exit) -> Timeline | None:
    """Returns a program's run on the virtual GPU. If there is none, prints a reason and returns
    None.

    Args:
        place: Where the program stored its run.
        ended: How the program ended.

    Raises:
        TraceError: There was a run that could not be stored.
    """
    from unstall.read import load

    file = place.written()
    if file is not None:
        timeline = load(file)
        if len(timeline.host) or not (ended.code or ended.signal):
            return timeline
        say("nothing ran on the virtual GPU before the program ended")
        return None
    if place.failed.exists():
        why = place.failed.read_text(errors="replace") or f"{place.folder} has no room"
        raise TraceError(f"nothing is known of the run: {why}")
    if ended.signal is not None:
        instead = "; SIGINT, as by Ctrl-C, leaves it the time" if ended.signal == signal.SIGTERM else ""
        say(
            f"nothing is known of the run: {signal_name(ended.signal)} ended the program before it could be kept"
            + instead
        )
    elif ended.code:
        how = f"ended with exit code {ended.code} before it had imported torch"
        say(f"nothing ran on the virtual GPU: the program {how}")
    else:
        say("nothing ran on the virtual GPU: the program did not import torch, or replaced itself by exec")
    return None


def told_of_faults(timeline: Timeline) -> str:
    """Returns the verdict on a run in which a device failed, as text. It is printed for ranks whose
    report is not printed.
    """
    from unstall.diagnose.explain import explain

    return explain(timeline).verdict.text


def write_run(timeline: Timeline, path: Path, metadata: Mapping[str, object]) -> None:
    """Writes a run on the virtual GPU to the file `path`, as a trace. `metadata` has facts about
    the virtual GPU that the trace stores.
    """
    from unstall.virtual.profiler.trace_file import write_trace

    write_trace(timeline, path, metadata)
