"""The output of commands: adds the options that several commands have, checks the output files, and
writes the results.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.cli._arguments import add_output_group, add_quiet_option, add_size_options
from unstall.document.formats import FORMATS, TOP, format_of, render, write
from unstall.errors import UsageError
from unstall.files import check_targets

if TYPE_CHECKING:
    from unstall.document.document import Document
    from unstall.document.shown import Shown

TRACES = (".json", ".json.gz", ".json.zst", ".trace", ".trace.gz")
"""The endings of names of trace files."""


def add_output_options(
    parser: argparse.ArgumentParser,
    *,
    it: str = "the result",
    largest: str | None = None,
    but: str = "only what",
    formats: Sequence[str] = FORMATS,
) -> argparse._ArgumentGroup:
    """Adds the options -o, --format, --json and --quiet to a parser. Returns their group, so that
    more options can be added to it.

    Args:
        parser: The parser of the verb, such as `run`.
        it: What -o writes, such as "the report". The help text of -o contains these words.
        largest: What --top counts, such as "costliest findings". If given, --top and --scrub-paths
            are added.
        but: Words for the help text of --quiet. For example, "only what" gives "print only what
            --format and -o ask for, without progress".
        formats: The names of the formats that the verb can write.
    """
    group = add_output_group(parser, formats, it=it, prints="what to print; github: workflow annotations")
    parser.set_defaults(formats=formats)
    if largest:
        add_size_options(group, largest)
    add_quiet_option(group, but)
    return group


def check_outputs(args: argparse.Namespace, *inputs: str, others: Sequence[str | None] = ()) -> None:
    """Checks that all output files of a command can be written. Commands call this before they do
    any work.

    Args:
        args: The parsed arguments. `args.output` has the files that -o names.
        inputs: The files that the command reads.
        others: Other files that the command writes. None is ignored.

    Raises:
        UsageError: An output file has an unknown format, is in a folder that does not exist, or is
            an input or another output.
    """
    formats = [_format_of(path, args) for path in args.output]
    if "html" in formats:
        from unstall.report import editor

        editor.chosen()
    check_targets([*args.output, *(path for path in others if path)], inputs)


def _format_of(path: str, args: argparse.Namespace) -> str:
    """Returns the format of a file of -o. If the name is a trace's, the error names the option for traces."""
    try:
        return format_of(path, args.format, args.formats)
    except UsageError as error:
        if not path.lower().endswith(TRACES) or "--trace" not in args.parser._option_string_actions:
            raise
        raise UsageError(f"{error}. -o writes the report. For the trace, say --trace {path}") from None


def check_replaced(path: Path, endings: tuple[str, ...] = TRACES, what: str = "trace") -> None:
    """Checks that an output would not replace a file that is probably no earlier output, such as a
    script.

    A file may be replaced if its name has one of the endings, or if it is empty.

    Args:
        path: The output file.
        endings: The endings of names of earlier outputs.
        what: The kind of output, for the error message.

    Raises:
        UsageError: The file may not be replaced.
    """
    if path.name.lower().endswith(endings) or not path.is_file() or not path.stat().st_size:
        return
    raise UsageError(
        f"{path}: cannot be written: it is there, and by its name no {what} ({', '.join(endings[:2])}), so it would be "
        "lost. Choose another place for the output"
    )


def deliver(shown: Shown, args: argparse.Namespace, ending: Callable[[Document], Document] | None = None) -> None:
    """Writes a document to the files that -o names. Also prints the document to stdout, if the
    options say so.

    Args:
        shown: The object that has the document.
        args: The parsed arguments.
        ending: A function that makes a short form of the document; None for no short form. With
            --full, the short form is printed below the document. Without --full, it is printed
            instead of the document.

    Raises:
        UsageError: A file cannot be written. Raised after the other files are written.
    """
    if args.quiet and not args.output and not args.format:
        return
    top = getattr(args, "top", None)
    document = shown.document(scrub_paths=getattr(args, "scrub_paths", False))
    failed = []
    for path in args.output:
        try:
            write(document, path, format_of(path, args.format, args.formats), top=top)
        except UsageError as error:
            failed.append(str(error))
    if args.format:
        sys.stdout.write(render(document, args.format, top=top))
    elif not args.quiet:
        from unstall.document import terminal

        if ending is None or args.full:
            terminal.show(document, top=TOP if top is None else top)
        if ending is not None:
            print()
            terminal.show(ending(document))
    if failed:
        raise UsageError(". ".join(failed))
