"""Find where two runs of a program differ by more than rounding: on the CPU and the GPU, or before and after a change.

    unstall numbers --across cpu,cuda train.py --epochs 1
    unstall numbers --record before.numbers train.py
    unstall numbers before.numbers after.numbers

The program first runs twice, unchanged. Then it runs 8 times with small random errors in all its values, such as
rounding makes: these runs show how large rounding errors become. Then it runs once for each WAY of --across. Each run
is a process of its own, and ends after --operators operators. Only the first run's output is shown. Each run overwrites
the files that the program writes. Random numbers are seeded before the program begins.

A WAY is one of these:

    repeat         unchanged, once more
    cpu            without any CUDA device
    cuda           unchanged; needs a CUDA device
    float64        with float64 as torch's default type
    deterministic  with torch.use_deterministic_algorithms(True)
    serial         waiting for each kernel

With --record, the runs are kept in a file. Two such files can be compared without running anything. They may be of two
machines, two versions of torch, or two commits. With --once, the file has a single run of the program. That is enough
if the other file has the runs with random errors.

The exit code is 0 if rounding explains all differences, and 1 if not. It is 2 if the command line is wrong, and 3 if
the program does not end with exit code 0.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from unstall.cli._arguments import add_value, parse_count, parse_file
from unstall.cli._output import add_output_options, check_outputs, check_replaced, deliver
from unstall.cli._recording import say
from unstall.cli._run_options import USAGE, USAGE_OF_MODULE
from unstall.errors import UsageError

_OPERATORS = 20_000
_ENDINGS = (".numbers",)
_TWO = ("BEFORE.numbers", "AFTER.numbers")
_DIFFERENT, _FAILED = 1, 3


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{USAGE}\n       {USAGE_OF_MODULE}\n       %(prog)s [options] FILE.numbers FILE.numbers"
    parser.add_argument(
        "-m", dest="module", action="store_true", help="SCRIPT is the name of a module, as with python -m"
    )
    parser.add_argument(
        "program", metavar="SCRIPT", nargs=argparse.REMAINDER, help="the program and its arguments, or two files"
    )
    add_value(parser, "--across", "WAY,…", str, "the ways to run the program (default: repeat,float64)")
    add_value(parser, "--record", "FILE", parse_file, "keep the runs in this file, for a later comparison")
    parser.add_argument("--once", action="store_true", help="with --record: run the program only once, as it is")
    add_value(parser, "--operators", "N", parse_count, f"end each run after N operators (default: {_OPERATORS:,})")
    add_output_options(parser, it="the report", but="only the report that")


def run(args: argparse.Namespace) -> int:
    words = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not words:
        raise UsageError("say which program to run, or which two files to compare")
    if not args.module and words[0].endswith(_ENDINGS):
        return _compare_files(args, words)
    if not args.module and not Path(words[0]).exists():
        raise UsageError(f"{words[0]}: there is no such file")
    return _compare_ways(args, ["-m", *words] if args.module else words)


def _compare_files(args: argparse.Namespace, words: list[str]) -> int:
    """Compares two files, and returns the exit code. `words` contains the files and the words after them.

    The words after the files are options of unstall, because files take no arguments.
    """
    files = [word for word in words if word.endswith(_ENDINGS)][:2]
    before = args.words[1 : len(args.words) - len(args.program)]
    behind = [word for word in words if word not in files]
    args = args.parser.parse_args([*before, *behind, "--", *files])
    if len(words) - len(behind) != len(_TWO) or len(args.program) != len(_TWO) + 1:
        raise UsageError(f"two files are compared: {' and '.join(_TWO)}")
    if args.across or args.record or args.operators or args.once:
        raise UsageError("two files are compared without running anything: --across and --record are for a program")
    check_outputs(args, *files)
    from unstall.numbers.recorded import compare_recorded

    found = compare_recorded(*map(Path, files))
    deliver(found, args)
    return 0 if found.agrees else _DIFFERENT


def _compare_ways(args: argparse.Namespace, command: list[str]) -> int:
    check_outputs(args, *command[:1], others=[args.record])
    from unstall.numbers import files
    from unstall.numbers.answer import Numbers
    from unstall.numbers.programs import Program, check_ways
    from unstall.numbers.recording import target

    across = ("" if args.record else "repeat,float64") if args.across is None else args.across
    ways = check_ways([name for name in across.split(",") if name])
    if args.once and (ways or not args.record):
        raise UsageError("--once needs --record, and excludes --across")
    if not ways and not args.record:
        raise UsageError("--across names no way")
    record = target(Path(args.record)) if args.record else None
    if record:
        check_replaced(record, _ENDINGS, "recording of numbers")
    program = Program(command, args.operators or _OPERATORS, (lambda _: None) if args.quiet else _tell)
    recorded = program.record(errors=not args.once)
    if record:
        files.write(record, recorded)
        if not args.quiet:
            say(f"the runs are in {record}")
    if not ways:
        return 0
    found = Numbers(tuple(program.compare(recorded, way) for way in ways), len(recorded.ran), "the program as it is")
    deliver(found, args)
    if any(row.kind == "failed" for row in found):
        return _FAILED
    return 0 if found.agrees else _DIFFERENT


def _tell(what: str) -> None:
    say(f"running {what}")
