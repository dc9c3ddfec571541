"""Options that several verbs have, and functions that parse arguments. The errors of these
functions name the argument. A verb is the first word after `unstall`, such as `run`.
"""

from __future__ import annotations

import argparse
import math
import os
import textwrap
from collections.abc import Callable, Sequence
from typing import TypeVar

from unstall.document.formats import endings
from unstall.errors import UsageError
from unstall.figures import listed, parse_ms

Value = TypeVar("Value")


class FilledHelp(argparse.HelpFormatter):
    """A formatter for help texts. It wraps the paragraphs of a description to the terminal's width,
    and leaves indented text unchanged.
    """

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.split("\n\n")
        return "\n\n".join(
            part if part.startswith(" ") else textwrap.fill(part, width, break_on_hyphens=False) for part in paragraphs
        )


def named(option: str, parse: Callable[[str], Value]) -> Callable[[str], Value]:
    """Returns a function that converts text as `parse` does. If it raises UsageError, the message
    begins with the name of the option, `option`.
    """

    def parse_value(text: str) -> Value:
        try:
            return parse(text)
        except UsageError as error:
            raise UsageError(f"{option}: {error}") from error

    return parse_value


def add_value(
    group: argparse._ActionsContainer,
    option: str,
    metavar: str,
    parse: Callable[[str], object],
    help: str,
    *,
    dest: str | None = None,
) -> None:
    """Adds an option with a value to a parser. If the value is wrong, the error begins with the
    option's name.

    Args:
        group: The parser, or a group of its options.
        option: The option, such as "--steps".
        metavar: The placeholder for the value in the help text.
        parse: A function that converts the text of the value, and raises UsageError if it is wrong.
        help: The help text.
        dest: The name of the attribute of the parsed arguments. If None, it comes from `option`.
    """
    dest = dest or option.lstrip("-").replace("-", "_")
    group.add_argument(option, dest=dest, metavar=metavar, type=named(option, parse), help=help)


def parse_file(text: str) -> str:
    """Returns `text` if it can be the name of a file. Raises UsageError if it ends with a slash,
    because such a name is that of a folder.
    """
    if text.endswith(("/", os.sep)):
        raise UsageError(f"{text} is a folder: name a file in it")
    return text


def parse_seconds(text: str) -> float:
    """Converts text to a number of seconds. Raises UsageError if it is no finite number, or below 0."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise UsageError(f"{text!r} is no time: give seconds, such as 2.5")
    return seconds


def parse_limit(text: str) -> float:
    """Converts text to a limit of time, in seconds. Raises UsageError if it is no finite number, or not above 0."""
    seconds = parse_seconds(text)
    if not seconds:
        raise UsageError("nothing runs in 0 s: give seconds, such as 60")
    return seconds


def parse_count(text: str) -> int:
    """Converts text to a whole number. Raises UsageError if it is no whole number, or below 1."""
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def add_place_options(parser: argparse._ActionsContainer, runs: str = "") -> None:
    """Adds the options --step and --user to a parser. The text `runs`, such as ", in both runs", is
    added to the help of --step.
    """
    about = f"the name of the annotation around one step{runs} (default: detected)"
    parser.add_argument("--step", metavar="NAME", help=about)
    add_user_option(parser)


def add_user_option(parser: argparse._ActionsContainer) -> None:
    """Adds the option --user to a parser."""
    parser.add_argument(
        "--user",
        metavar="GLOB",
        action="append",
        default=[],
        help="count only these files as your code, such as 'src/*'; may be repeated",
    )


def add_output_group(
    parser: argparse.ArgumentParser, formats: Sequence[str], *, it: str = "the result", prints: str = "what to print"
) -> argparse._ArgumentGroup:
    """Adds the options -o, --format and --json to a new group of a parser. Returns the group, so
    that more options can be added to it.

    Args:
        parser: The parser of the verb, such as `run`.
        formats: The names of the formats that the verb can write.
        it: What -o writes, such as "the report". The help text of -o contains these words.
        prints: The help text of --format.
    """
    group = parser.add_argument_group("output")
    group.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        action="append",
        default=[],
        help=f"also write {it} to FILE; the ending selects the format: {listed(endings(formats), 'or')}; "
        "may be repeated",
    )
    group.add_argument("--format", choices=formats, help=prints)
    group.add_argument("--json", dest="format", action="store_const", const="json", help="the same as --format json")
    return group


def add_size_options(group: argparse._ArgumentGroup, largest: str) -> None:
    """Adds the options --top and --scrub-paths to a group of a parser. `largest` says what --top
    counts, such as "costliest findings and lines".
    """
    add_value(group, "--top", "N", parse_count, f"show the N {largest} (default: 10)")
    group.add_argument(
        "--scrub-paths", action="store_true", help="shorten paths, so that none names a home folder or a machine"
    )


def add_quiet_option(group: argparse._ArgumentGroup, but: str = "only what") -> None:
    """Adds the option -q to a group of a parser. The help text of -q begins with "print " and then
    `but`.

    For example, "only what" gives the help text "print only what --format and -o ask for, without
    progress".
    """
    group.add_argument(
        "-q", "--quiet", action="store_true", help=f"print {but} --format and -o ask for, without progress"
    )


def add_plain_step_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options --plain-step-ms and --as-recorded to a parser."""
    add_value(
        parser,
        "--plain-step-ms",
        "MS",
        parse_ms,
        "the step time without recording, if you measured it; it is used to take out the recorder's overhead "
        "(default: as `unstall run` measured it, else an estimate)",
        dest="plain_step_ns",
    )
    parser.add_argument("--as-recorded", action="store_true", help="do not subtract the recorder's overhead")
