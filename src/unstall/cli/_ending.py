"""The end of `unstall run`: about ten lines, with what to do next and where all of it is."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from unstall.cli._last import TRACE_ENDING

if TYPE_CHECKING:
    from unstall.document.document import Document
    from unstall.result import Result

_OF_OUTPUT = ("--trace", "--against", "-o", "--output")  # another run writes its own files
_ALONE = ("--full",)


def ending(args: argparse.Namespace, trace: Path) -> Callable[[Document], Document]:
    """Returns what makes the short form of a run's report. `trace` is the file that was written."""
    from unstall.report.short import document

    def make(full: Document) -> Document:
        result = cast("Result", full.data)
        return document(result, list(_last_lines(result, args, trace)))

    return make


def _last_lines(result: Result, args: argparse.Namespace, trace: Path) -> Iterator[str]:
    found = trace.parent == Path() and trace.name.endswith(TRACE_ENDING)
    behind = "" if found else f" {shlex.quote(str(trace))}"
    findings = any(not finding.harmless for finding in result.findings)
    if findings:
        first = "b1" if any(finding.wrong for finding in result.findings) else "1"
        yield f"next: unstall show {first}{behind} · unstall open{behind} · then, mended:"
        yield f"      {again(args, trace)}"
    files = ", ".join([str(trace), *args.output])
    yield f"all of it: {'' if args.full else '--full, or '}{files}"


def again(args: argparse.Namespace, trace: Path) -> str:
    """Returns the command that records the same program once more, and compares the two runs."""
    words: Sequence[str] = args.words[1:]
    program = len(words) - len(args.program)
    kept = ["unstall", "run", "--against", str(trace)]
    options = iter(words[:program])
    for word in options:
        name, equals, _ = word.partition("=")
        if name in _OF_OUTPUT:
            if not equals:
                next(options, None)
        elif name not in _ALONE and not (name.startswith("-o") and not name.startswith("--")):
            kept.append(word)
    return shlex.join([*kept, *words[program:]])
