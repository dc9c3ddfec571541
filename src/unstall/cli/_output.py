"""How verbs print a report: the options they share, and where it goes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.cli._arguments import add_output_group, add_quiet_option, add_size_options
from unstall.errors import UsageError
from unstall.files import check_targets
from unstall.report.formats import FORMATS, format_of

if TYPE_CHECKING:
    from unstall.diagnose.explain import Report

TRACES = (".json", ".json.gz", ".json.zst", ".trace", ".trace.gz")
"""How the names of traces end."""


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """-o, --format, --json, --top, --scrub-paths, --quiet."""
    group = add_output_group(parser, FORMATS, it="the report", prints="what to print; github: workflow annotations")
    add_size_options(group, "costliest findings and lines")
    add_quiet_option(group, "no report but")


def check_outputs(args: argparse.Namespace, *inputs: str, others: Sequence[str | None] = ()) -> None:
    """Raise UsageError for outputs that cannot all be written, before any work is done.

    `others` are outputs beside those of `-o`. A file's format must be known, its folder must be there, and it must
    be neither an input nor another output.
    """
    for path in args.output:
        format_of(path, args.format)
    check_targets([*args.output, *(path for path in others if path)], inputs)


def check_replaced(path: Path, endings: tuple[str, ...] = TRACES, what: str = "trace") -> None:
    """Raise UsageError where an output would replace a file that by its name is no such thing: a script, say, that was
    named by mistake. Nothing is lost with an empty one."""
    if path.name.lower().endswith(endings) or not path.is_file() or not path.stat().st_size:
        return
    raise UsageError(
        f"{path}: cannot be written: it is there, and by its name no {what} ({', '.join(endings[:2])}), so it would be "
        "lost. Choose another place for the output"
    )


def deliver(report: Report, args: argparse.Namespace) -> None:
    """Write the report's files, then print it, as the options ask."""
    from unstall.files import write_atomically
    from unstall.report.formats import render, scrubbed

    for path in args.output:
        text = render(report, format_of(path, args.format), top=args.top, scrub_paths=args.scrub_paths)
        write_atomically(path, text.encode(errors="replace"))
    if args.format:
        sys.stdout.write(render(report, args.format, top=args.top, scrub_paths=args.scrub_paths))
    elif not args.quiet:
        from unstall.report import terminal

        terminal.show(scrubbed(report) if args.scrub_paths else report.result, top=args.top)
