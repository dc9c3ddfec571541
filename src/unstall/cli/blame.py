"""Say what ran on the GPU when a program failed there.

    unstall blame --core core_1795669120_host_4711.nvcudmp
    unstall blame --core FILE fault.json

FILE is a GPU core dump, as CUDA's driver writes it. Nothing of it is run, and no file that it names is opened. RESULT
is what `unstall run --blame -o fault.json` wrote: then the lines that launched the failed kernel are told as well.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from unstall.cli._arguments import parse_file
from unstall.cli._inputs import readable
from unstall.cli._output import add_output_options, check_outputs, deliver


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("result", metavar="RESULT", nargs="?", help="the saved result of `unstall run --blame`")
    parser.add_argument("--core", metavar="FILE", type=parse_file, required=True, help="the core dump to read")
    add_output_options(parser, it="the report")


def run(args: argparse.Namespace) -> int:
    check_outputs(args, args.core, *([args.result] if args.result else []))
    from unstall.blaming.core_dump.document import ShownCoreDump
    from unstall.blaming.core_dump.launched_by import launched_by
    from unstall.blaming.core_dump.read import read_core_dump
    from unstall.blaming.result import read_result

    dump = read_core_dump(Path(args.core))
    if args.result:
        with readable(args.result) as file:
            dump = launched_by(dump, read_result(file))
    deliver(ShownCoreDump(dump), args)
    return 0
