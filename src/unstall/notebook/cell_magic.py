"""`%%unstall`: records a notebook cell while it runs, and explains it below the cell."""

from __future__ import annotations

import argparse
import ast
import html
import shlex
import sys
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
    """The magic of one shell."""

    shell: Shell

    def unstall(self, line: str, cell: str) -> object:
        """Run the cell, and explain below it where its time on the GPU went.

        %%unstall [--recorder auto|cupti|torch] [--lines auto|calls|monitoring|settrace|none] [--steps N]

        Without --steps the whole cell is recorded; with it, N steps of its loop in steady state. If the notebook has a
        virtual GPU, that explains the whole cell, and there are no options.
        """
        __tracebackhide__ = True  # a traceback should show only the cell
        options = _parse(line)
        body, last = _compile(self.shell, line, cell)
        recording = _begin(options)
        try:
            exec(body, self.shell.user_global_ns, self.shell.user_ns)
            return None if last is None else eval(last, self.shell.user_global_ns, self.shell.user_ns)
        finally:
            recording.__exit__(*sys.exc_info())
            _show(recording)


@dataclass(frozen=True)
class Framed:
    """A report in a notebook: the HTML report in its own frame, or text in a terminal."""

    report: Report

    def __repr__(self) -> str:
        return str(self.report)

    def _repr_html_(self) -> str:
        from unstall.document.formats import render

        # Sandboxed, so that a page about another person's trace has none of the notebook's rights.
        page = html.escape(render(self.report.document(), "html"))
        style = f"width: 100%; height: {_HEIGHT_PX}px; border: 0"
        return f'<iframe title="unstall" sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'


class _MagicParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def _parse(line: str) -> dict[str, Any]:
    """Returns the given arguments for `record`. Raises IPython's UsageError, which is shown as one line."""
    parser = _MagicParser(add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    parser.add_argument("--recorder", choices=RECORDERS)
    parser.add_argument("--lines", choices=LINE_CLOCKS)
    parser.add_argument("--steps", type=int, metavar="N")
    try:
        return vars(parser.parse_args(shlex.split(line)))
    except (UsageError, ValueError) as error:
        raise usage_error("%%unstall", error) from None


def _begin(options: dict[str, Any]) -> Recording | VirtualGpu:
    """Starts and returns the recording of the cell. Raises IPython's UsageError if there can be none."""
    from unstall.recording.in_process import record

    try:
        return _virtual(options) or record(**options).__enter__()
    except UnstallError as error:
        raise usage_error("%%unstall", error) from None


def _virtual(options: dict[str, Any]) -> VirtualGpu | None:
    """Returns a stretch of this process's virtual GPU, which sees everything a recorder would; None if there is
    none."""
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
    """Returns the code of the cell, and of its final expression, whose value is the cell's. Raises SyntaxError."""
    # A comment replaces the magic's own line, so that line numbers match those in the notebook.
    numbered = cell if cell.lstrip().startswith("%%") else f"# %%unstall {line}\n{cell}"
    source = shell.transform_cell(numbered)
    name = shell.compile.cache(source, shell.execution_count, raw_code=numbered)
    tree = shell.transform_ast(shell.compile.ast_parse(source, name))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    body = shell.compile(tree, name, "exec")
    return body, shell.compile(ast.Expression(last.value), name, "eval") if isinstance(last, ast.Expr) else None


def _show(recording: Recording | VirtualGpu) -> None:
    """Displays the report, or why there is none. An error here must not hide the cell's own result."""
    from unstall.document.plain import plain

    try:
        display(Framed(recording.explain()))
    except UnstallError as error:
        print(f"unstall: {plain(str(error))}", file=sys.stderr)
    except Exception as error:
        print(
            f"unstall: the recording cannot be explained ({type(error).__name__}: {plain(str(error))})", file=sys.stderr
        )
