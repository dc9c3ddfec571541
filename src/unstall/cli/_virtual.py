"""`unstall run --gpu`: the options of the virtual GPU, and the recorded run of a program on the virtual GPU."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.cli._commands import launcher
from unstall.cli._progress import working
from unstall.cli._recording import say
from unstall.cli._trace import Kept, kept_in, published
from unstall.errors import TraceError, UsageError
from unstall.figures import counted, duration, signal_name
from unstall.launching.children import arming_children
from unstall.recording.settings import Settings
from unstall.virtual.options import ENVIRONMENT, HOST_CLOCKS, NUMERICS, MachineOptions, parse

if TYPE_CHECKING:
    from unstall.cli._trace import TraceTarget
    from unstall.launching.launch import Exit
    from unstall.timeline.columns import Timeline
    from unstall.virtual.run_place import RunPlace
    from unstall.virtual.stopping import Until

VIRTUAL = "virtual"
"""The name of an event in the journal (the file of events) of a recording. It says that the program
runs on a virtual GPU.
"""
_OF_REAL_GPUS = ("--recorder", "--lines", "--shapes")
_MARKED = ("annotation", "optimizer", "period")
_WARMUP = Settings("").warmup


def add_virtual_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a virtual GPU, in place of a real one")
    group.add_argument(
        "--gpu",
        metavar="NAME[:N]",
        help="run on a virtual GPU, such as h200. With h200:2, the program has two of them. With h200:2,1@0.8, device "
        "1 has 0.8 of the usual clock rate",
    )
    add_simulation_options(group)


def add_simulation_options(group: argparse._ActionsContainer) -> None:
    """Adds the options --numerics and --host to a parser. --numerics says what a virtual GPU
    computes. --host says how the host's own work is timed.
    """
    group.add_argument(
        "--numerics",
        choices=NUMERICS,
        help="real: compute all tensors as the CPU does (default); skip: compute only small tensors; device: round and "
        "add up as a GPU does",
    )
    group.add_argument(
        "--host",
        choices=HOST_CLOCKS,
        help="how the host's own work is timed; modelled: by a model (default); measured: on this machine; mixed: by "
        "the model, but NumPy and other work that the model lacks is measured here",
    )
    group.add_argument(
        "--warm",
        action="store_true",
        help="leave out one-time costs: the start-up of CUDA, and the first use of each operator",
    )


def options_of(args: argparse.Namespace) -> MachineOptions | None:
    """Returns the options of the virtual GPU that --gpu selects; None if --gpu is not given.

    Raises:
        UsageError: Options exclude each other.
    """
    if args.gpu is None:
        for name in ("numerics", "host", "warm"):
            if getattr(args, name):
                raise UsageError(f"--{name} needs --gpu")
        return None
    if args.recorder != "auto" or args.lines != "auto" or args.shapes:
        raise UsageError(
            "--recorder, --lines and --shapes are about a real GPU: leave them out, a virtual one knows all operators "
            "and lines by itself"
        )
    return parse(args.gpu, args.numerics or "real", args.host or "modelled", args.warm)


def command_with_gpu(args: argparse.Namespace) -> str:
    """Returns the command of the user, changed so that it runs on a virtual GPU. Options that exist
    only for a real GPU are left out.

    Under torchrun, the command has one virtual GPU for each process on this machine. torchrun's own
    options are not known, so the command has "…" in their place.
    """
    words: list[str] = args.words[1:]
    program = len(words) - len(args.program)
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    gpus = f"h200:{ranks}" if ranks.isdecimal() and ranks != "1" else "h200"
    kept = ["unstall", args.words[0], "--gpu", gpus]
    options = iter(words[:program])
    for word in options:
        name, equals, _ = word.partition("=")
        if name in ("--recorder", "--lines") and not equals:
            next(options, None)
        elif name not in _OF_REAL_GPUS:
            kept.append(word)
    return " ".join([*launcher(os.environ), shlex.join([*kept, *_without_gpu(words[program:])])])


def _without_gpu(words: Sequence[str]) -> Iterator[str]:
    """Yields the words of a program's command line. Leaves out a --gpu option and the option's value, because this
    option was meant for unstall.
    """
    rest = iter(words)
    for word in rest:
        if word == "--gpu":
            next(rest, None)
        elif not word.startswith("--gpu="):
            yield word


def get_ready(gpu: str) -> None:
    """Compiles the virtual GPU now, so that the programs that will use it do not have to. `gpu` is
    a value of the option --gpu.

    Raises:
        UnstallError: The GPU is unknown, or the virtual GPU cannot be compiled.
    """
    _build_for(parse(gpu))


def _build_for(options: MachineOptions) -> None:
    from unstall.virtual.costs.gpu_file import gpu_named
    from unstall.virtual.shim.build import build
    from unstall.virtual.shim.installed import installed_torch

    gpu_named(options.gpu)
    build(installed_torch())


@contextmanager
def virtual_gpu_for_children(options: MachineOptions) -> Iterator[None]:
    """Child processes that start during the block run on the virtual GPU. `options` says which
    virtual GPU, and how it works.

    Raises:
        UnstallError: Child processes cannot get the virtual GPU.
    """
    from unstall.virtual.machine import ARMED_BY

    _build_for(options)
    with arming_children(ARMED_BY, {ENVIRONMENT: options.to_json()}):
        yield


def ask_to_stop(folder: Path, args: argparse.Namespace) -> None:
    """If --stop is given, asks the program to end after the steps or the time that the other
    options select.

    Args:
        folder: The folder in which the program stores its run.
        args: The parsed arguments.
    """
    from unstall.virtual.stopping import ask

    if args.stop:
        ask(folder, _until(args))


def _until(args: argparse.Namespace) -> Until:
    from unstall.virtual.stopping import Until

    warmup = _WARMUP if args.warmup is None else args.warmup
    steps = Settings("").steps if args.steps is None else args.steps
    return Until(warmup if args.after is None else 0, steps, args.after or 0.0, args.for_)


def tell_of_stop(folder: Path, args: argparse.Namespace) -> None:
    """If --stop is given, prints after how many steps it ended the program, or why it did not end
    the program.

    Args:
        folder: The folder in which the program stores its run.
        args: The parsed arguments.
    """
    from unstall.virtual.stopping import steps_of_ended, stopped_after

    steps = stopped_after(folder)
    if steps is not None:
        say(f"--stop ended the program after {counted(steps, 'step')}")
        return
    taken = steps_of_ended(folder)
    if not taken:
        why = "unstall saw none of its steps: call unstall.step() at the end of each"
    elif args.after is not None or args.for_ is not None:
        why = f"it ended after {counted(taken, 'step')}, before the seconds asked for were over"
    else:
        until = _until(args)
        why = (
            f"it ended after {counted(taken, 'step')}, before the {until.warmup} for warm-up and the {until.steps} to "
            "record were over: give fewer --steps"
        )
    say(f"--stop did not end the program: {why}")


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


def part_asked_for(timeline: Timeline, args: argparse.Namespace) -> Timeline:
    """Returns the part of a run that the options --warmup, --steps, --after and --for select.

    If only --warmup is given, all steps after the warm-up are selected. If only --steps is given,
    the usual warm-up is skipped. If none of these options is given, the part after the usual
    warm-up is selected. In this last case, the whole run is selected if it has no step boundaries,
    no steps after the warm-up, or any races, because races may be anywhere in the run.

    If a device failed, returns the whole run, regardless of the options. If the selected part is
    empty, returns the whole run with a note in `Meta.shortfall`. There is also a note in
    `Meta.shortfall` if the run has too few steps.
    """
    if (not len(timeline.host) and not len(timeline.device)) or len(timeline.faults):
        return timeline
    try:
        return _part(timeline, args)
    except _EmptyError as empty:
        return _short_of(timeline, f"this is the whole run, since {empty}")


class _EmptyError(Exception):
    """Raised when the selected part of a run is empty. The message is a clause that says why and what to do."""


def _part(timeline: Timeline, args: argparse.Namespace) -> Timeline:
    from unstall.locate.step_spans import left_out_around, with_work_outside
    from unstall.locate.steps import find_steps
    from unstall.virtual.timeline.steps import with_steps
    from unstall.virtual.timeline.window import FOREVER, before_operators, cut

    start, end, alone = 0, FOREVER, False
    counts = args.warmup is not None or args.steps is not None
    if counts or (args.after is None and args.for_ is None and not len(timeline.races)):
        steps = find_steps(timeline)
        if counts and steps.found_by == "whole":
            raise _EmptyError(
                "no steps were found in it, which --warmup and --steps count: mark the end of each by unstall.step(), "
                "or ask for seconds (--after, --for)"
            )
        if counts or steps.found_by in _MARKED:
            warmup = _warmup_of(len(steps), args.warmup)
            found = steps.left_out
            is_warm = found is not None and found.proving + found.apart + found.loops + found.mixed > 0
            if not (warmup or is_warm) and args.warmup is None:
                timeline = _without_warmup(timeline, len(steps))
            most = args.steps or (Settings("").steps if args.stop else len(steps))
            last = min(len(steps), warmup + most) - 1
            left_out = left_out_around(steps, warmup, last + 1)
            timeline = timeline.with_meta(left_out=left_out and with_work_outside(timeline, steps, left_out))
            if counts or warmup or steps.left_out:
                # Steps that are told by their launches begin within an operator.
                start, end = before_operators(timeline, int(steps.start[warmup])), int(steps.end[last])
                alone = last == warmup and steps.found_by == "optimizer"
    if args.after is not None:
        start = round(args.after * 1e9)
    if args.for_ is not None:
        end = start + round(args.for_ * 1e9)
    if (start, end) == (0, FOREVER):
        return timeline
    part = cut(timeline, start, end)
    if not len(part.host) and not len(part.device):
        lasted = max((int(table.end.max()) for table in (timeline.host, timeline.device) if len(table)), default=0)
        raise _EmptyError(
            "nothing ran in the time that --after and --for ask for: they are seconds of the virtual clock, on which "
            f"the program took {duration(lasted)}"
        )
    if not alone:  # a single step of an optimizer is no step boundary
        return part
    zero = part.meta.zero_ns - timeline.meta.zero_ns
    return with_steps(part, [start - zero, end - zero], "optimizer")


def _warmup_of(steps: int, asked: int | None) -> int:
    """Returns the number of warm-up steps to skip. `asked` is the value of --warmup. Raises _EmptyError if no step
    would remain.
    """
    if asked is None:
        return _WARMUP if steps > _WARMUP else 0
    if asked >= steps:
        raise _EmptyError(
            f"--warmup {asked} leaves none of its {counted(steps, 'step')} to explain: "
            f"give --warmup {steps - 1} or less"
        )
    return asked


def _without_warmup(timeline: Timeline, steps: int) -> Timeline:
    """Adds a note (`shortfall`) to a timeline. The note says that all steps are explained, because the run is too short
    for a warm-up.
    """
    return _short_of(
        timeline,
        f"the run has {counted(steps, 'step')}, too few to let the first {_WARMUP} go by as usual: what a program does "
        "once only is in them",
    )


def _short_of(timeline: Timeline, shortfall: str) -> Timeline:
    return timeline.with_meta(shortfall=shortfall)


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
