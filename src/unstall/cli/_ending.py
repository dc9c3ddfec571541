"""The last output of `unstall run`: about ten lines that say what to do next and which command
shows the full report.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from unstall.cli._commands import launcher
from unstall.cli._last import TRACE_ENDING
from unstall.figures import numbered_findings

if TYPE_CHECKING:
    from unstall.document.document import Document
    from unstall.result import Result

_OF_OUTPUT = ("--trace", "--against", "-o", "--output")  # another run writes its own files
_ALONE = ("--full",)
_NO_STEPS = "# no steps were found: if there are any, first put unstall.step() at their end"
# Otherwise the run after it may have other steps.
_BEFORE_MENDING = "# before you mend: put unstall.step() at the end of each step, and run it again"
_RANKS = "# all ranks as one job: which of them makes the others wait, and why"
_WIDTH = 78  # columns
_RANKED = re.compile(rf"(.+-rank)0((?:-\d+)?{re.escape(TRACE_ENDING)})")
_MOST_LISTED = 8


def ending(args: argparse.Namespace, trace: Path, about: str = "") -> Callable[[Document], Document]:
    """Returns a function that makes the short report from the full report of a run. The short
    report is shown when the run has ended.

    Args:
        args: The parsed arguments of the command.
        trace: The trace of the run.
        about: What the program is an example of (see `unstall.report.short.document`), or "".
    """
    from unstall.report.short import document

    def make(full: Document) -> Document:
        result = cast("Result", full.data)
        last = ", or ".join([f"all of it: {shlex.join(['unstall', 'explain', str(trace)])}", *args.output])
        return document(result, list(_next(result, args, trace, about)), last, about)

    return make


def _all_ranks(trace: Path) -> str:
    """Returns the command that explains all ranks of the run, or "" if it has no ranks."""
    found = _RANKED.fullmatch(trace.name)
    if found is None:
        return ""
    return f"unstall fleet {shlex.quote(str(trace.with_name('{}*{}'.format(*found.groups()))))}"


def _next(result: Result, args: argparse.Namespace, trace: Path, about: str) -> Iterator[str]:
    """Yields the commands to type next, as lines of text."""
    from unstall.answers.finding import with_patches
    from unstall.report.short import MEMORY, example_of
    from unstall.report.show import place_of

    if ranks := _all_ranks(trace):
        yield _RANKS
        yield from in_lines(ranks)
    example = example_of(result, about)
    costs = not all(finding.harmless for finding in result.findings)
    if not (costs or example):
        return
    found = trace.parent == Path() and trace.name.endswith(TRACE_ENDING)
    behind = "" if found else f" {shlex.quote(str(trace))}"
    if example:
        first = example[0] or place_of(example[1].where)
    else:
        first = "b1" if any(finding.wrong for finding in result.findings) else "1"
    mendable = costs and not any(finding.fault is not None for finding in result.findings)
    if mendable and result.steps.found_by == "whole":
        yield _NO_STEPS
    if about != MEMORY:
        yield from in_lines(f"unstall show {first}{behind}")
    if not about and (patched := with_patches(result)):  # an example needs what it shows
        shown = patched if len(patched) <= _MOST_LISTED else [*patched[:_MOST_LISTED], "others"]
        yield f"# there is a patch for {numbered_findings(shown)}:"
        *lines, last = in_lines(f"unstall show {patched[0]}{behind} --patch")
        yield from [*lines, f"{last} | git apply"]
    yield from in_lines(f"unstall open{behind}")
    if not mendable:
        return
    if result.steps.found_by == "period":
        yield _BEFORE_MENDING
    if result.verdict.bound_by == "startup" and args.gpu and not args.warm:
        yield "# without first uses, which a run pays for once:"
        yield from in_lines(again(args, "--warm"))
    yield "# once something is mended:"
    yield from in_lines(again(args, "--against", str(trace)))


def in_lines(command: str) -> list[str]:
    """Wraps a command into lines of at most 78 columns. Each line but the last ends with a
    backslash, so that the lines can be pasted into a shell.
    """
    if command.startswith("#"):
        return [command]
    lines = [""]
    for word in (word if word == "…" else shlex.quote(word) for word in shlex.split(command)):
        if lines[-1] and len(lines[-1]) + len(word) + 1 > _WIDTH:
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


def again(args: argparse.Namespace, *options: str) -> str:
    """Returns the command that records the same program once more, with more options.

    Args:
        args: The parsed arguments of the command that recorded this run.
        options: The options.
    """
    words: Sequence[str] = args.words[1:]
    program = len(words) - len(args.program)
    kept = ["unstall", "run", *options]
    before = iter(words[:program])
    for word in before:
        name, equals, _ = word.partition("=")
        if name in _OF_OUTPUT:
            if not equals:
                next(before, None)
        elif name not in _ALONE and not (name.startswith("-o") and not name.startswith("--")):
            kept.append(word)
    return " ".join([*launcher(os.environ), shlex.join([*kept, *words[program:]])])
