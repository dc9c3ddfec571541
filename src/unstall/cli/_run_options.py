"""The options of `unstall run`, and the settings of a recording that follow from these options."""

from __future__ import annotations

import argparse
from pathlib import Path

from unstall.cli._arguments import add_place_options, add_value, parse_count, parse_file, parse_seconds
from unstall.cli._blame_options import add_blame_options
from unstall.cli._output import add_output_options
from unstall.cli._virtual_options import add_virtual_options
from unstall.errors import UsageError
from unstall.figures import parse_whole
from unstall.recording.settings import LINE_CLOCKS, RECORDERS, RecorderName, Settings, check_choices

USAGE, USAGE_OF_MODULE = "%(prog)s [options] SCRIPT [ARGS...]", "%(prog)s [options] -m MODULE [ARGS...]"
_USUAL = Settings("")


def add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{USAGE}\n       {USAGE_OF_MODULE}"
    add_program(parser, "SCRIPT", "the program and its arguments")
    recording = add_recording_options(parser)
    earlier = "compare with an earlier run: FILE is its trace, or its saved result"
    add_value(recording, "--against", "FILE", parse_file, earlier)
    add_blame_options(parser)
    add_virtual_options(parser)
    output = add_output_options(
        parser, it="the report", largest="costliest findings and lines", but="only the reports that"
    )
    output.add_argument("--full", action="store_true", help="print the full report, not only a summary")


def add_program(parser: argparse.ArgumentParser, name: str, help: str) -> None:
    """Adds the options -m and --no-config to a parser. Also adds a positional argument: the program
    with its arguments.

    Args:
        parser: The parser.
        name: The placeholder for the program in the help text.
        help: The help text for the program.
    """
    parser.add_argument(
        "-m", dest="module", action="store_true", help=f"{name} is the name of a module, as with python -m"
    )
    parser.add_argument("program", metavar=name, nargs=argparse.REMAINDER, help=help)
    parser.add_argument("--no-config", action="store_true", help="ignore [tool.unstall] in pyproject.toml")


def add_recording_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Adds the options of a recording to a new group of a parser. Returns the group, so that more
    options can be added to it.
    """
    group = parser.add_argument_group("recording")
    begins, ends = group.add_mutually_exclusive_group(), group.add_mutually_exclusive_group()
    add_value(begins, "--warmup", "N", parse_whole, f"skip N steps first (default: {_USUAL.warmup})")
    add_value(ends, "--steps", "N", parse_count, f"record N steps (default: {_USUAL.steps}; with --gpu, all)")
    add_value(
        begins, "--after", "S", parse_seconds, "skip the first S seconds instead of steps (with --gpu: of virtual time)"
    )
    add_value(
        ends,
        "--for",
        "S",
        _parse_length,
        "record S seconds instead of steps (with --gpu: of virtual time)",
        dest="for_",
    )
    group.add_argument(
        "--stop", action="store_true", help="end the program once the recording is done, with exit code 0"
    )
    group.add_argument(
        "--recorder",
        choices=RECORDERS,
        default="auto",
        help="cupti costs least; torch also records operators (default: auto)",
    )
    group.add_argument(
        "--lines", choices=LINE_CLOCKS, default="auto", help="how source lines are found (default: auto)"
    )
    group.add_argument("--shapes", action="store_true", help="also record the shapes of operators (recorder torch)")
    where = "write the trace to FILE (default: SCRIPT's name with .trace.json.gz, in the current folder)"
    add_value(group, "--trace", "FILE", parse_file, where)
    group.add_argument(
        "--keep-arguments",
        action="store_true",
        help="keep the program's arguments and environment in the trace; they may hold secrets",
    )
    add_place_options(group)
    return group


def check_recording(args: argparse.Namespace) -> None:
    """Checks the options of a recording.

    Raises:
        UsageError: An option is invalid, or options exclude each other.
    """
    if args.step is not None and args.step.isdecimal():
        raise UsageError(f"--step: {args.step!r} is no name of an annotation: did you mean --steps {args.step}?")
    if args.step is not None and args.recorder == "cupti":
        raise UsageError("--step names an annotation, and cupti records none: leave out --recorder cupti")
    check_choices(_recorder(args), args.lines, shapes=args.shapes)


def settings_of(args: argparse.Namespace, folder: Path) -> Settings:
    """Returns the settings of a recording: what to record, by which recorder, and when.

    Args:
        args: The parsed arguments, from which the settings follow.
        folder: The folder for the recording.
    """
    return Settings(
        folder=str(folder),
        recorder=_recorder(args),
        warmup=_USUAL.warmup if args.warmup is None else args.warmup,
        steps=_USUAL.steps if args.steps is None else args.steps,
        after_s=args.after,
        for_s=args.for_,
        lines=args.lines,
        shapes=args.shapes,
        keep_arguments=args.keep_arguments,
        stop=args.stop,
        step=args.step,
        user=tuple(args.user),
    )


def _recorder(args: argparse.Namespace) -> RecorderName:
    """Returns the recorder that the options select. With --step, the default is torch, because only torch records
    annotations.
    """
    recorder: RecorderName = args.recorder
    return "torch" if args.step is not None and recorder == "auto" else recorder


def _parse_length(text: str) -> float:
    seconds = parse_seconds(text)
    if not seconds:
        raise UsageError("there is nothing to record in 0 s: give seconds, such as 2.5")
    return seconds
