"""`%%unstall`: records a notebook cell while the cell runs, and shows a report below the cell."""

from __future__ import annotations

import argparse
import ast
import html
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any, NoReturn

from unstall.errors import UnstallError, UsageError
from unstall.notebook.ipython import Shell, display, usage_error
from unstall.recording.settings import LINE_CLOCKS, RECORDERS

if TYPE_CHECKING:
    from unstall.answers.report import Report
    from unstall.recording.in_process import Recording
    from unstall.virtual.entry import VirtualGpu

_HEIGHT_PX = 720


@dataclass(frozen=True)
class CellMagic:
    """Implements the magic `%%unstall` for one IPython shell."""

    shell: Shell

    def unstall(self, line: str, cell: str | None = None) -> object:
        """Run the cell, and show below it where the cell's GPU time went. `%%unstall --help` lists the options."""
        __tracebackhide__ = True  # a traceback should show only the cell
        options = _parse(line)
        if options.pop("help", False):
            print(_parser().format_help(), end="")
            return None
        if cell is None:
            raise usage_error("%%unstall", UsageError("there is no code below it, so nothing to run and explain"))
        files = options.pop("output", [])
        body, last = _compile(self.shell, line, cell)
        from unstall.recording.in_process import Recording

        recording = _begin(options)
        try:
            exec(body, self.shell.user_global_ns, self.shell.user_ns)
            return None if last is None else eval(last, self.shell.user_global_ns, self.shell.user_ns)
        finally:
            recording.__exit__(*sys.exc_info())
            _show(recording, files)
            if isinstance(recording, Recording):
                recording.close()  # a traceback of the cell would keep its files


@dataclass(frozen=True)
class Framed:
    """Wraps a report, so that a notebook shows the report as HTML in a separate frame. A terminal
    shows the report as text.
    """

    report: Report

    def __repr__(self) -> str:
        return str(self.report)

    def _repr_html_(self) -> str:
        from unstall.document.formats import render

        # Sandboxed, so that a page about another person's trace has none of the notebook's rights.
        page = html.escape(render(self.report.document(), "html"))
        style = f"width: 100%; height: {_HEIGHT_PX}px; border: 0"
        return f'<iframe title="unstall" sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'


def without_body(lines: list[str]) -> list[str]:
    """Returns the lines of a cell, changed so that `%%unstall --help` works in a cell with no other
    text.

    If the first line begins with `%%unstall` and all other lines are blank, `%%unstall` is changed
    to `%unstall`. Without this change, IPython refuses the cell, because it has no code. All other
    cells are returned unchanged. IPython calls this function on the lines of each cell (an input
    transformer of IPython).
    """
    first, *rest = lines or [""]
    alone = re.match(r"%%unstall(?=\s|$)", first) and not "".join(rest).strip()
    return [first.removeprefix("%"), *rest] if alone else lines


class _MagicParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def _parser() -> _MagicParser:
    parser = _MagicParser(
        prog="%%unstall",
        description="Runs the cell, and explains below it where its time on the GPU went.",
        epilog="On a virtual GPU the whole cell is explained, so --recorder, --lines and --steps do not apply.",
        add_help=False,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("-h", "--help", action="store_true", help="show this help; the cell does not run")
    parser.add_argument("--recorder", choices=RECORDERS, help="what records: auto takes cupti if it works here")
    parser.add_argument("--lines", choices=LINE_CLOCKS, help="how lines are known: auto takes the cheapest that works")
    parser.add_argument(
        "--steps", type=int, metavar="N", help="record N steps of the cell's loop in steady state, not the whole cell"
    )
    parser.add_argument(
        "-o",
        "--output",
        action="append",
        metavar="FILE",
        help="also write the report to FILE, in the format of its ending (.html .json .md .txt); may be repeated",
    )
    return parser


def _parse(line: str) -> dict[str, Any]:
    """Returns the options in `line`, the text after `%%unstall`: a dict from the name of an option
    to its value. It omits options that are not given.

    Raises:
        UsageError: The text has an unknown option, or a wrong value. This is the UsageError of
            IPython.
    """
    from unstall.document.formats import format_of

    try:
        options = vars(_parser().parse_args(shlex.split(line)))
        for file in options.get("output", []):
            format_of(file)
    except (UsageError, ValueError) as error:
        raise usage_error("%%unstall", error) from None
    return options


def _begin(options: dict[str, Any]) -> Recording | VirtualGpu:
    """Starts to record the cell, and returns the recording. If this process has a virtual GPU, the
    virtual GPU makes the recording.

    Raises:
        UsageError: The recording cannot start. This is the UsageError of IPython.
    """
    from unstall.recording.in_process import record

    try:
        return _virtual(options) or record(**options).__enter__()
    except UnstallError as error:
        raise usage_error("%%unstall", error) from None


def _virtual(options: dict[str, Any]) -> VirtualGpu | None:
    """Starts a recording by this process's virtual GPU, and returns the recording. Returns None if
    the process has no virtual GPU.

    Raises:
        UsageError: The process has a virtual GPU and `options` is not empty. A virtual GPU accepts
            no options.
    """
    from unstall.virtual.machine import current

    machine = current()
    if machine is None:
        return None
    if options:
        given = ", ".join(f"--{name}" for name in options)
        raise UsageError(f"{given}: about a recording, and the virtual GPU needs none: it explains the whole cell")
    from unstall.virtual.entry import VirtualGpu

    return VirtualGpu(machine).start()


def _compile(shell: Shell, line: str, cell: str) -> tuple[CodeType, CodeType | None]:
    """Returns `(body, last)`. `body` is the code of the cell without its last expression, `last`
    the code of this expression. `last` is None if the cell does not end with an expression.

    Raises:
        SyntaxError: The cell is not valid code.
    """
    # A comment replaces the magic's own line, so that line numbers match those in the notebook.
    numbered = cell if cell.lstrip().startswith("%%") else f"# %%unstall {line}\n{cell}"
    source = shell.transform_cell(numbered)
    name = shell.compile.cache(source, _number(shell), raw_code=numbered)
    tree = shell.transform_ast(shell.compile.ast_parse(source, name))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    body = shell.compile(tree, name, "exec")
    return body, shell.compile(ast.Expression(last.value), name, "eval") if isinstance(last, ast.Expr) else None


def _number(shell: Shell) -> int:
    """Returns the number of the running cell.

    Some versions of IPython increment `shell.execution_count` before they run a cell. So the number
    is taken from the call stack, in which the file name of the cell's code stands. If no frame
    there belongs to a cell, returns `shell.execution_count`.
    """
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        known = shell.compile.format_code_name(frame.f_code.co_filename)
        if known is not None and (number := re.search(r"\d+", known[1])):
            return int(number.group())
    return shell.execution_count


def _show(recording: Recording | VirtualGpu, files: Sequence[str]) -> None:
    """Displays the report of the recording and writes it to `files`. The ending of a file's name
    chooses the format. If there is no report, prints the reason to stderr.

    Does not raise, so that the result or the exception of the cell's code is not lost.
    """
    from unstall.document.plain import plain

    try:
        report = recording.explain()
        display(Framed(report))
        for file in files:
            report.save(file)
            print(f"unstall: the report is in {plain(file)}", file=sys.stderr)
    except UnstallError as error:
        print(f"unstall: {plain(str(error))}", file=sys.stderr)
    except Exception as error:
        print(
            f"unstall: the recording cannot be explained ({type(error).__name__}: {plain(str(error))})", file=sys.stderr
        )
