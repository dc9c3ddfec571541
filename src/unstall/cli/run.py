"""Run a program, record a few of its steps, and explain them.

    unstall run train.py --epochs 1
    unstall run --steps 10 -m package.train --epochs 1
    torchrun --nproc-per-node 8 -m unstall run train.py
    unstall run --gpu h200 train.py
    unstall run --against before.trace.json.gz train.py

Options before SCRIPT or -m are for unstall; everything after that goes to the program. The program runs as it would
under plain Python, and unstall exits as the program did. When the program has ended, the explanation is printed to
stderr. With --format or --json, the explanation goes to stdout and the program's own output to stderr. If the program
succeeds but its recording cannot be kept, for example on a full disk, the exit code is 3.

With --gpu, the program and the processes that it starts run on a virtual GPU, and the program's clock is a virtual one.
No GPU is needed. By default such a run explains every step after the first three. Use --warmup and --steps to explain
others, or --after 0 to explain the whole run.

[tool.unstall] in pyproject.toml sets defaults for these options by their long names: gpu = "h200", steps = 10,
stop = true. The command line overrides them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from unstall.cli._against import compared_with, earlier_run
from unstall.cli._blame_options import check_blame
from unstall.cli._commands import advice_on
from unstall.cli._config import configure
from unstall.cli._ending import ending
from unstall.cli._output import check_outputs, check_replaced, deliver
from unstall.cli._progress import working
from unstall.cli._recording import (
    Teller,
    how_it_failed,
    lacks_gpu,
    say,
    try_cupti,
    why_nothing,
)
from unstall.cli._run_options import add_run_options, check_recording, settings_of
from unstall.cli._streams import let_go_of_stdout
from unstall.cli._trace import Kept, TraceTarget, check_folders, keep_recording, trace_target
from unstall.cli._virtual_options import command_with_gpu, options_of, virtual_gpu_for_children
from unstall.cli._virtual_part import ask_to_stop, tell_of_stop
from unstall.cli._virtual_run import keep_virtual_run, note_virtual_run, spare_memory, told_of_faults
from unstall.errors import TraceError, UnstallError, UsageError
from unstall.guest.ranks import rank_of
from unstall.launching.children import all_are_armed
from unstall.recording.settings import FOLDER_PREFIX

if TYPE_CHECKING:
    from unstall.answers.report import Report
    from unstall.launching.launch import Exit
    from unstall.timeline.columns import Timeline
    from unstall.virtual.options import MachineOptions

    Explain: TypeAlias = Callable[[Timeline, argparse.Namespace, Path], Report]
    Blame: TypeAlias = Callable[[argparse.Namespace, Sequence[str]], int]


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    add_run_options(parser)


def run(args: argparse.Namespace) -> int:
    return run_program(args, explain_run)


def run_program(args: argparse.Namespace, explain: Explain, blame: Blame | None = None) -> int:
    """Runs a program, records it, and returns its exit code.

    Args:
        args: The parsed arguments.
        explain: A function that is called when the program has ended, to report on the run.
        blame: A function that is called instead of recording if --blame is given and the GPU is
            real. It runs the program. If None, `run_blamed`.
    """
    if sys.platform != "linux":
        raise UsageError("run needs Linux; elsewhere record within the program: with unstall.record(): …")
    rank = rank_of(os.environ)
    typed = argparse.Namespace(**vars(args))
    configured = configure(args)
    if configured and not args.quiet and not rank:
        say(configured)
    virtual = options_of(args)
    if not virtual and all_are_armed(os.environ):
        raise UsageError(
            "this command runs on a virtual GPU, and so would the program: give --gpu NAME, or run it outside of "
            "`unstall run --gpu` and of unstall.virtual_gpu()"
        )
    check_recording(args)
    program = _program(args)
    typed.gpu = args.gpu
    check_blame(typed)
    if args.blame and not virtual:
        from unstall.cli._blame import run_blamed

        check_outputs(args, *([] if args.module else program[:1]), others=[args.core_dump_to])
        check_folders([*map(Path, args.output)])
        return (blame or run_blamed)(args, program)
    _check_cupti(args)
    if args.stop and rank is not None and (args.after is not None or args.for_ is not None):
        raise UsageError(
            "--stop ends all ranks after the same step, but --after and --for are seconds of each rank's own clock: "
            "give --warmup and --steps"
        )
    earlier = earlier_run(args, rank)
    target = _target(args, program, rank)
    trace = target.likely()
    inputs = [*([] if args.module else program[:1]), *([args.against] if args.against else [])]
    check_outputs(args, *inputs, others=[str(trace)])
    check_replaced(trace)
    check_folders([*map(Path, args.output), trace])
    from unstall.launching.launch import leave_as

    ran = _record(args, program, virtual, target)
    with _the_programs_ending():
        _tell(args, program, ran, lambda timeline: explain(timeline, args, ran.kept.file or trace), earlier)
    return leave_as(ran.ended) or (TraceError.exit_code if ran.kept.lost else 0)


@dataclass(frozen=True, slots=True)
class _Ran:
    """A program that was run.

    Attributes:
        ended: How it ended.
        kept: What is kept of its run.
        on_virtual: If it lacked a GPU, a sentence that says how to run it on a virtual one. Else "".
    """

    ended: Exit
    kept: Kept
    on_virtual: str


def _record(
    args: argparse.Namespace, program: Sequence[str], virtual: MachineOptions | None, target: TraceTarget
) -> _Ran:
    """Runs a program, and keeps what was recorded of it.

    Args:
        args: The parsed arguments.
        program: The words that start the program.
        virtual: The options of the virtual GPU. None for a real GPU.
        target: Where the trace goes.
    """
    from unstall.launching.launch import launch
    from unstall.recording.journal import Follower, read
    from unstall.virtual.run_place import RunPlace

    rank = rank_of(os.environ)
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
    settings = settings_of(args, folder)
    teller = Teller(Follower(folder), quiet=args.quiet or bool(rank), stop=args.stop)
    kept, on_virtual = Kept(lost=True), ""
    with ExitStack() as memory:
        spare = memory.enter_context(spare_memory()) if virtual else None
        try:
            if virtual:
                note_virtual_run(folder, virtual, program)
                ask_to_stop(folder, args)
            else:
                try_cupti(settings)
            with virtual_gpu_for_children(virtual) if virtual else nullcontext():
                armed_with = RunPlace(str(folder), spare).to_json() if virtual else settings.to_json()
                ended = launch(
                    program,
                    "unstall.recording.child",
                    armed_with,
                    stdout_to_stderr=bool(args.format),
                    meanwhile=teller.tell,
                )
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        with _the_programs_ending():
            teller.tell(running=False)
            if virtual:
                if args.stop and not args.quiet:
                    tell_of_stop(folder, args)
                kept = keep_virtual_run(RunPlace(str(folder), spare), target, virtual, ended, args)
            else:
                events = read(folder)
                missing = why_nothing(events, settings, succeeded=ended.code == 0)
                if lacks_gpu(events, succeeded=ended.code == 0):
                    on_virtual = f"no GPU is here; `{command_with_gpu(args)}` runs it on a virtual one"
                    missing = missing and on_virtual
                kept = keep_recording(folder, target, events, missing=missing, quiet=args.quiet, read=not rank)
    return _Ran(ended, kept, on_virtual)


def _tell(
    args: argparse.Namespace,
    program: Sequence[str],
    ran: _Ran,
    explain: Callable[[Timeline], Report],
    earlier: Report | None,
) -> None:
    """Tells the user about a run: its report, how the program failed, and the comparison with an earlier run.

    Args:
        args: The parsed arguments.
        program: The words that started the program.
        ran: The program that was run.
        explain: Reports on the run.
        earlier: The run to compare with. None: none.
    """
    rank, ended, timeline = rank_of(os.environ), ran.ended, ran.kept.timeline
    if ended.code == 2 and not args.quiet and not rank and (ours := _options_behind(args, program)):
        say(f"the program was given {', '.join(ours)}: options that are meant for unstall stand before the script")
    if timeline and rank and len(timeline.faults) and not args.quiet:
        say(told_of_faults(timeline))
    if timeline and not rank:
        report = explain(timeline)
        if not args.quiet and (failed := how_it_failed(ended)):
            say(failed)
        if earlier and not args.quiet:
            print(compared_with(earlier, report, args), file=sys.stderr)
    if timeline is None and not rank and (args.output or args.format):
        say("so there is no report" + (" in " + ", ".join(args.output) if args.output else ""))
    if ran.on_virtual and timeline and not len(timeline.device) and not args.quiet and not rank:
        say(ran.on_virtual)


@contextmanager
def _the_programs_ending() -> Iterator[None]:
    """If the block raises an error, prints the error as a sentence and suppresses the error. So unstall still exits
    with the program's exit code.
    """
    try:
        yield
    except KeyboardInterrupt:
        say("interrupted")
    except UnstallError as error:
        say(str(error))
    except BrokenPipeError:
        pass
    except OSError as error:
        say(f"{error.filename or 'the output'}: {error.strerror or error}")
    except Exception as error:
        say(f"the run could not be explained: {type(error).__name__}: {error}")
    try:
        sys.stdout.flush()
    except OSError:
        let_go_of_stdout()


def _program(args: argparse.Namespace) -> list[str]:
    """Returns the words that, typed after `python`, start the program. Raises UsageError if no program is named."""
    words: list[str] = args.program
    if words[:1] == ["--"]:
        words = words[1:]
    if not words:
        took = f"; --gpu took {args.gpu} as its name" if args.gpu and Path(args.gpu).exists() else ""
        verb = args.words[0]
        raise UsageError(f"say which program to run: unstall {verb} SCRIPT, or unstall {verb} -m MODULE{took}")
    if advice := advice_on(words, _options_before(args), module=args.module, verb=args.words[0]):
        raise UsageError(advice)
    if args.module:
        return ["-m", *words]
    if words[0].startswith("-"):  # Python would read it as an option
        return [f"./{words[0]}", *words[1:]]
    return words


def _options_before(args: argparse.Namespace) -> list[str]:
    """Returns the words on the command line between the verb and the program, which are options of unstall."""
    words: list[str] = args.words[1 : len(args.words) - len(args.program)]
    return [word for word in words if word != "-m"]


def _options_behind(args: argparse.Namespace, program: Sequence[str]) -> list[str]:
    """Returns those arguments of the program that are names of long options of unstall."""
    parser: argparse.ArgumentParser = args.parser
    names = {name for action in parser._actions for name in action.option_strings if name.startswith("--")}
    return [name for word in program[1:] if (name := word.partition("=")[0]) in names]


def _check_cupti(args: argparse.Namespace) -> None:
    """Raises UsageError if the options ask for CUPTI and CUPTI does not work on this machine."""
    from unstall.cupti.recorder import unavailable

    asked = "--recorder cupti" if args.recorder == "cupti" else "--lines calls" if args.lines == "calls" else None
    if asked and (why := unavailable()):
        raise UsageError(f"{asked}: {why}. On a virtual GPU: `{command_with_gpu(args)}`")


def _target(args: argparse.Namespace, program: Sequence[str], rank: int | None) -> TraceTarget:
    """Returns where the trace goes. Each rank has its own path."""
    stem = program[1].rpartition(".")[2] if args.module else Path(program[0]).resolve().stem
    return trace_target(args.trace, stem, rank)


def explain_run(timeline: Timeline, args: argparse.Namespace, trace: Path, about: str = "") -> Report:
    """Explains the run, prints the report, and returns it. `about` is the rule that the program is an example of.

    Prints to stderr, or to stdout if a format was requested. With a format, the program's own stdout goes to stderr.
    """
    report = explained(timeline, args)
    with nullcontext() if args.format else redirect_stdout(sys.stderr):
        deliver(report, args, ending(args, trace, about))
    return report


def explained(timeline: Timeline, args: argparse.Namespace) -> Report:
    """Returns the report on a run that has just been recorded.

    If no annotation has the name that the option --step gives, prints an error, and explains the
    run without --step and --user.

    Args:
        timeline: The recorded run.
        args: The parsed arguments.
    """
    from unstall.answers.explain import explain

    with working("analysing the run", quiet=args.quiet):
        try:
            return explain(timeline, step=args.step, user=args.user)
        except UsageError as error:  # no such step: the run is over, so it is explained all the same
            say(str(error))
            return explain(timeline)
