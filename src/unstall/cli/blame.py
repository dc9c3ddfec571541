"""Say where a running program hangs, or read a core dump of the GPU.

    unstall run --blame train.py      in one terminal
    unstall blame PID                 in another

    unstall blame --core core_1795669120_host_4711.nvcudmp
    unstall blame --core FILE fault.json

PID is the process of the program, of one of its ranks, or of `unstall run`. The program must have been started
with `unstall run --blame`. For each process, the report says which line Python runs. For each stream, it names the
line that launched the work which runs there now, or what the stream waits for. The program keeps running.

FILE is a GPU core dump, as CUDA's driver writes it. Nothing in that file is run, and no file that it names is opened.
RESULT is a file that `unstall run --blame -o fault.json` wrote. With it, the report also has the lines that launched
the failed kernel.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from unstall.cli._arguments import parse_count, parse_file
from unstall.cli._inputs import readable
from unstall.cli._output import add_output_options, check_outputs, deliver
from unstall.errors import UsageError


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.usage = "unstall blame [options] PID\n       unstall blame [options] --core FILE [RESULT]"
    parser.add_argument(
        "subject",
        metavar="PID | RESULT",
        nargs="?",
        help="the number of the process; with --core, the result of the run that left the core dump",
    )
    parser.add_argument("--core", metavar="FILE", type=parse_file, help="the core dump to read")
    add_output_options(parser, it="the report", but="only the reports that")


def run(args: argparse.Namespace) -> int:
    if args.core:
        return _tell_core_dump(args, args.subject)
    if args.subject is None:
        raise UsageError("give the number of a process, or --core FILE")
    return _tell_process(args, parse_count(args.subject))


def _tell_core_dump(args: argparse.Namespace, result: str | None) -> int:
    check_outputs(args, args.core, *([result] if result else []))
    from unstall.blaming.core_dump.document import ShownCoreDump
    from unstall.blaming.core_dump.launched_by import launched_by
    from unstall.blaming.core_dump.read import read_core_dump
    from unstall.blaming.result import read_result

    dump = read_core_dump(Path(args.core))
    if result:
        with readable(result) as file:
            dump = launched_by(dump, read_result(file))
    deliver(ShownCoreDump(dump), args)
    return 0


def _tell_process(args: argparse.Namespace, pid: int) -> int:
    check_outputs(args)
    from unstall.blaming.hangs.document import HangReport
    from unstall.blaming.hangs.processes import folder_of, processes_in, state_of
    from unstall.blaming.hangs.watch import look_now
    from unstall.blaming.result import BlameResult

    folder = folder_of(pid)
    if folder is None:
        if not state_of(pid):
            raise UsageError(f"there is no process {pid}")
        raise UsageError(
            f"process {pid} does not run with `unstall run --blame`, or is another user's: it cannot be asked "
            "where it is"
        )
    program = next((each.who.program for each in processes_in(folder) if each.main), "")
    deliver(HangReport(BlameResult(program=program, hang=look_now(folder))), args)
    return 0
