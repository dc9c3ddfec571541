"""Show what unstall does: a training loop that stalls, and the same loop mended.

    unstall demo

Both run on a virtual H200, so no GPU is needed. The first is explained, then compared with the second. FOLDER gets both
programs, their traces and report.html.

The virtual GPU needs Linux and PyTorch's build for CPUs. The first run may take some minutes, because the virtual GPU
is then compiled for your PyTorch by a C++ compiler. If the virtual GPU does not work here, the demo explains two
recorded runs instead, which come with unstall.
"""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import chdir, redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from unstall.cli._last import TRACE_ENDING, is_page
from unstall.errors import UsageError
from unstall.files import check_targets, write_atomically

if TYPE_CHECKING:
    from unstall.answers.report import Report
    from unstall.cli.run import Explain
    from unstall.document.document import Block
    from unstall.timeline.columns import Timeline

SHIPPED = Path(__file__).parents[1] / "demo"
"""The folder that comes with unstall for the demo. It has two programs, and a trace of each that
the command RUN wrote.
"""
PROGRAMS = {"train": "a training loop that stalls", "mended": "the same loop, mended as the report says"}
RUN = ("run", "--gpu", "h200", "--steps", "2")
_FOLDER, _REPORT = "unstall-demo", "report.html"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", metavar="FOLDER", nargs="?", default=_FOLDER, help=f"where all files go (default: {_FOLDER})"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help=f"write the report to FILE (default: {_REPORT} in FOLDER)"
    )
    parser.add_argument("--recorded", action="store_true", help="run nothing, and explain the recorded runs")


def run(args: argparse.Namespace) -> int:
    folder = Path(args.folder)
    report = _report(args.output, folder / _REPORT)
    _unpack(folder)
    why = "" if args.recorded else _why_not()
    # Into a file or a pipe, the text comes late, and a program's own output only at its end.
    progress = None if sys.stdout.isatty() else sys.stderr
    with redirect_stderr(sys.stdout):  # what runs say there is a part of this text
        _say(
            "A training loop that keeps its GPU waiting, and the same loop mended, both on a virtual H200: the CPU "
            f"computes the values, and a model of the GPU tells the times. All files are in {folder}."
        )
        if why:
            _say(f"{why[0].upper()}{why[1:]}")
        if why is not None:
            _say("Nothing runs now: both programs ran earlier, and what was recorded of them is explained.")
        with chdir(folder):
            code = _play(report, progress, recorded=why is not None)
        if not code:
            _commands("next", _next(folder, report, why))
    return code


def _unpack(folder: Path) -> None:
    """Writes both programs into the folder. Raises UsageError if other files in the folder have the names of these
    programs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    programs = {folder / f"{name}.py": (SHIPPED / f"{name}.py").read_bytes() for name in PROGRAMS}
    for path, source in programs.items():
        if path.exists() and path.read_bytes() != source:
            raise UsageError(
                f"{path} is not as the demo writes it, and would be lost: name another folder, unstall demo FOLDER"
            )
    for path, source in programs.items():
        write_atomically(path, source)


def _report(output: str | None, usual: Path) -> Path:
    """Returns the path of the report. Raises UsageError if the report cannot be written, or if the report would
    overwrite a file that is no report.
    """
    from unstall.document.formats import format_of

    if output is not None:
        format_of(output)
        check_targets([output])
    elif usual.exists() and not is_page(usual):
        raise UsageError(f"{usual} is no report of unstall, and would be lost: name another file, -o FILE")
    return Path(output or usual).absolute()


def _why_not() -> str | None:
    """Returns why the virtual GPU does not work here, and what to install. Returns None if the virtual GPU works."""
    if sys.platform != "linux":
        return "the virtual GPU needs Linux"
    from unstall.virtual.shim.build import why_not

    return why_not()


def _play(report: Path, progress: TextIO | None, *, recorded: bool) -> int:
    """Runs both programs in the current folder, and prints a report on each. Returns the exit code.

    If `recorded` is set, runs nothing, and reports on the traces that come with unstall. Otherwise, says to `progress`
    which program runs, unless it is None.
    """
    from unstall.cli import parse
    from unstall.cli._inputs import read_timeline

    told: list[Report] = []

    def tell(timeline: Timeline, args: argparse.Namespace, trace: Path) -> Report:
        told.append(_explained(timeline))
        if len(told) == 1:
            told[0].save(report)
            _tell_of_one(told[0])
        else:
            _tell_of_both(*told)
        return told[-1]

    for number, (name, about) in enumerate(PROGRAMS.items(), 1):
        trace = f"{name}{TRACE_ENDING}"
        args = parse([*RUN, "--no-config", "--trace", trace, f"{name}.py"])
        _commands(f"{number}. {name}.py: {about}", [f"$ {shlex.join(['unstall', *RUN, f'{name}.py'])}"])
        if recorded:
            write_atomically(trace, (SHIPPED / trace).read_bytes())
            tell(read_timeline(trace, quiet=False), args, Path(trace))
        else:
            if progress is not None:
                print(f"unstall: running {name}.py …", file=progress, flush=True)
            if code := _run(args, tell):
                return code
        if len(told) < number:  # it is said why
            return 1
    return 0


def _run(args: argparse.Namespace, tell: Explain) -> int:
    from unstall.cli.run import run_program
    from unstall.virtual.shim.installed import VirtualGpuError

    try:
        return run_program(args, tell)
    except VirtualGpuError as error:
        raise VirtualGpuError(f"{error}. unstall demo --recorded explains runs that were recorded earlier") from error


def _explained(timeline: Timeline) -> Report:
    from unstall.answers.explain import explain
    from unstall.cli._progress import working

    with working("analysing the run"):
        return explain(timeline)


def _tell_of_one(found: Report) -> None:
    from unstall.document import terminal
    from unstall.report.short import document

    print()
    terminal.show(document(found.result))


def _tell_of_both(before: Report, after: Report) -> None:
    from unstall.answers.difference import Difference
    from unstall.document import terminal

    difference = Difference.between(before, after)
    print()
    terminal.show(difference.promise_document())
    print(f"\n{difference.conclusion()}")


def _next(folder: Path, report: Path, why: str | None) -> Iterator[str]:
    """Yields the commands to type next. `why` is the reason why nothing ran on the virtual GPU, or None if the programs
    ran.
    """
    from unstall.guest.device import has_gpu
    from unstall.virtual.shim.installed import CPU_WHEEL

    page = report.name if report.parent == folder.absolute() else str(report)
    gpu = "" if has_gpu() or why is not None else "--gpu h200 "
    commands = {
        shlex.join(["cd", str(folder)]): "",
        shlex.join(["unstall", "open", page]): "the report, with a timeline",
        f"unstall show 1 train{TRACE_ENDING}": "a finding, with its source",
        "diff train.py mended.py": "what was changed",
        f"unstall run {gpu}SCRIPT": f"your own program{'' if gpu or has_gpu() else ', on a machine with a GPU'}",
    }
    width = max(map(len, commands))
    yield from (f"{command:{width}}  # {about}" if about else command for command, about in commands.items())
    if has_gpu() and why:
        yield from ("# the first program on this machine's GPU:", "unstall run train.py")
    elif why and importlib.util.find_spec("torch") is None:
        yield from ("# the first program on a virtual GPU here:", CPU_WHEEL, shlex.join(["unstall", *RUN, "train.py"]))


def _say(text: str) -> None:
    from unstall.document.document import Prose, words

    _show(Prose((words(text),)))


def _commands(title: str, commands: Iterable[str]) -> None:
    from unstall.document.document import Code, Span, words

    _show(Code(words(Span(title, "strong")), tuple(commands), language="sh"))


def _show(block: Block) -> None:
    """Prints an empty line, and then the block."""
    from unstall.document import terminal
    from unstall.document.document import Document

    print()
    terminal.show(Document(title="unstall demo", about=(), blocks=(block,), data={}))
