"""Run a program on a virtual GPU, in this process: python -m unstall.virtual [options] SCRIPT [ARGS...]"""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from unstall.errors import UnstallError
from unstall.virtual.options import HOST_CLOCKS, NUMERICS

if TYPE_CHECKING:
    from unstall.answers.report import Report
    from unstall.virtual.entry import VirtualGpu


def main() -> None:
    """Runs SCRIPT or -m MODULE as Python does, and exits with the program's exit code.

    Prints a report only if --explain is given.
    """
    args = _parse(sys.argv[1:])
    words: list[str] = args.program[1:] if args.program[:1] == ["--"] else args.program
    try:
        from unstall.virtual.entry import virtual_gpu
        from unstall.virtual.machine import current

        gpu = virtual_gpu(args.gpu, numerics=args.numerics, host=args.host, warm=args.warm).start()
    except UnstallError as error:
        sys.exit(f"unstall: {error}")
    sys.argv[:] = words
    try:
        if args.module:
            runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(words[0]).resolve().parent)
            runpy.run_path(words[0], run_name="__main__")
    except Exception as error:
        if found := current():
            found.ended_by(error)
        raise
    finally:
        gpu.stop()
        try:
            if args.trace:
                gpu.save(args.trace)
            if args.explain:
                print(_report_of(gpu), file=sys.stderr)
        except UnstallError as error:
            print(f"unstall: {error}", file=sys.stderr)


def _report_of(gpu: VirtualGpu) -> Report:
    """Returns the report of the same steps that `unstall run --gpu` explains: those after the warm-up."""
    from unstall.answers.explain import explain
    from unstall.virtual.profiler.frames import with_frames
    from unstall.virtual.timeline.part import part_of

    return explain(with_frames(part_of(gpu.timeline())))


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = _Parser(prog="python -m unstall.virtual", description=__doc__, allow_abbrev=False)
    parser.add_argument("--gpu", metavar="NAME[:N]", default="h200", help="which GPU, and how many (default: h200)")
    parser.add_argument(
        "--numerics",
        choices=NUMERICS,
        default="real",
        help="real: compute all tensors as the CPU does; skip: compute only small tensors; device: round and add "
        "up as a GPU does",
    )
    parser.add_argument("--host", choices=HOST_CLOCKS, default="modelled", help="how long the host's own work takes")
    parser.add_argument(
        "--warm",
        action="store_true",
        help="leave out one-time costs: the start-up of CUDA, and the first use of each operator",
    )
    parser.add_argument("--trace", metavar="FILE", help="write the trace of the run to FILE")
    parser.add_argument(
        "--explain",
        action="store_true",
        help="explain the run on stderr once it has ended: its steps after the warm-up",
    )
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name")
    parser.add_argument("program", metavar="SCRIPT", nargs=argparse.REMAINDER, help="the program, and its arguments")
    args = parser.parse_args(arguments)
    if not args.program:
        parser.error("say which program to run")
    return args


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"unstall: {message}\n")


if __name__ == "__main__":
    main()
