"""The output of verbs: adds the options that verbs share, checks the output files, and writes the results."""

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
"""Name endings of traces."""


def add_output_options(
    parser: argparse.ArgumentParser,
    *,
    it: str = "the result",
    largest: str | None = None,
    but: str = "only what",
    formats: Sequence[str] = FORMATS,
) -> argparse._ArgumentGroup:
    """Adds the options -o, --format, --json and --quiet. Returns their group, so that more options can be added to it.

    Args:
        parser: The parser of the verb.
        it: What -o writes, such as "the report". The help text of -o contains these words.
        largest: What --top counts, such as "costliest findings". If given, --top and --scrub-paths are added.
        but: Words for the help text of --quiet. For example, "only what" gives "print only what --format and -o ask
            for, without progress".
        formats: The names of the formats that the verb can write.
    """
    group = add_output_group(parser, formats, it=it, prints="what to print; github: workflow annotations")
    parser.set_defaults(formats=formats)
    if largest:
        add_size_options(group, largest)
    add_quiet_option(group, but)
    return group


def check_outputs(args: argparse.Namespace, *inputs: str, others: Sequence[str | None] = ()) -> None:
    """Raises UsageError if some output cannot be written. Verbs call this before they do any work.

    An output file must have a known format and an existing folder. The file must be neither an input nor another
    output.

    Args:
        args: The parsed arguments. `args.output` has the files of -o.
        inputs: The files that the verb reads.
        others: Other files that the verb writes.
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
    """Raises UsageError if an output would replace a file that is probably no earlier output, such as a script.

    A file may be replaced if its name has one of the endings, or if it is empty. `what` is the kind of output, for the
    error message.
    """
    if path.name.lower().endswith(endings) or not path.is_file() or not path.stat().st_size:
        return
    raise UsageError(
        f"{path}: cannot be written: it is there, and by its name no {what} ({', '.join(endings[:2])}), so it would be "
        "lost. Choose another place for the output"
    )


def deliver(shown: Shown, args: argparse.Namespace, ending: Callable[[Document], Document] | None = None) -> None:
    """Writes the document to the files that -o names. Also prints the document if the options say so.

    `ending` makes a short form of the document. With --full, the short form is printed below the document. Without
    --full, the short form is printed instead of the document. If some files cannot be written, raises UsageError at the
    end.
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
