"""The command line. Each public module of this package is a verb. The module's docstring is the help text of the verb.

A verb has two functions:

    prepare_parser(parser)    adds the verb's arguments
    run(args) -> int          runs the verb, and returns the exit code

Exit codes: 0 for success, 1 if a budget is exceeded or a check failed, 2 for wrong usage, 3 if an input cannot be read
or a budget cannot be checked.
"""

# `main` imports what it needs itself, where Ctrl-C is caught: imports take most of a short command's time.
from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Protocol

    class Verb(Protocol):
        """The interface of a verb: a public module of this package."""

        __doc__: str | None

        def prepare_parser(self, parser: argparse.ArgumentParser) -> None: ...
        def run(self, args: argparse.Namespace) -> int: ...


_ALONE = ("-h", "--help", "--version")
_FIRST = "unstall demo shows how it works, unstall run SCRIPT records and explains a program"
_INTERRUPTED = 128 + 2  # SIGINT
_NOBODY_READS = 128 + 13  # SIGPIPE, which has no name on Windows
_NO_PLACE = 2  # the same as for UsageError


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code. An error that is meant for the user is printed to
    stderr as one sentence.

    Args:
        argv: The words after `unstall`. If None, those with which this process was started.
    """
    try:
        from unstall.cli._streams import let_go_of_stdout, prepare
        from unstall.errors import UnstallError

        prepare()
        try:
            args = parse(argv)
            code: int = args.run(args)
        except UnstallError as error:
            _complain(str(error))
            code = error.exit_code
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        _complain("interrupted")
        return _INTERRUPTED
    except BrokenPipeError:
        let_go_of_stdout()
        return _NOBODY_READS
    except OSError as error:
        if error.filename is None:
            let_go_of_stdout()
        _complain(f"{error.filename or 'the output'}: {error.strerror or error}")
        return _NO_PLACE
    return code


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses a command line. Prints the usage and exits if the verb does not know an argument. A
    verb is the first word after `unstall`, such as `run`.

    Args:
        argv: The words after `unstall`. If None, those with which this process was started.

    Returns:
        The arguments, with three more attributes. `run` is the function that runs the verb.
        `parser` is the verb's parser. `words` is the command line as a list of words.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    if not given:
        build_parser().error(f"say what to do: {_FIRST}; --help lists the rest")
    if why := refused(given[0]):
        from unstall.errors import UsageError

        raise UsageError(why)
    args, unknown = build_parser(given[0] if given else "").parse_known_args(given)
    if unknown:
        from unstall.cli._what_to_type import instead_of

        options = [name for action in args.parser._actions for name in action.option_strings]
        args.parser.error(f"unrecognized arguments: {' '.join(unknown)}{instead_of(unknown, given[0], options)}")
    args.words = given
    return args


def refused(word: str) -> str:
    """Returns a sentence that says what to type instead of `word`; "" if `word` is a verb. A verb
    is the first word after `unstall`, such as `run`.
    """
    from unstall.cli._what_to_type import what_to_type

    return "" if word in _ALONE else what_to_type(word, _names())


def build_parser(only: str = "") -> argparse.ArgumentParser:
    """Returns the parser of the command line. Each verb, such as `run` or `explain`, has a
    sub-parser.

    If `only` is the name of a verb, only this verb has a sub-parser, and the other verbs are not
    imported. This saves a tenth of the time of a short command.
    """
    import argparse

    from unstall._version import __version__
    from unstall.cli._arguments import FilledHelp

    parser = argparse.ArgumentParser(
        prog="unstall",
        description="See, fix and predict what stalls your GPU.",
        epilog=f"To begin: {_FIRST}.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"unstall {__version__}")
    subparsers = parser.add_subparsers(metavar="VERB", required=True)
    for name, verb in verbs(only).items():
        about = (verb.__doc__ or "").strip()
        subparser = subparsers.add_parser(
            name,
            help=about.partition("\n")[0],
            description=about,
            formatter_class=FilledHelp,
            allow_abbrev=False,
        )
        verb.prepare_parser(subparser)
        subparser.set_defaults(run=verb.run, parser=subparser)
    return parser


def verbs(only: str = "") -> dict[str, Verb]:
    """Returns the modules of the verbs, such as `run` or `explain`, by name.

    If `only` is the name of a verb, returns only this verb, and imports no other.
    """
    from importlib import import_module
    from typing import cast

    names = _names()
    chosen = [only] if only in names else names
    return {name: cast("Verb", import_module(f"{__name__}.{name}")) for name in chosen}


def _names() -> list[str]:
    import pkgutil

    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name[0] != "_")


def _complain(text: str) -> None:
    from unstall.document.plain import no_command, plain

    print(no_command(f"unstall: {plain(text)}"), file=sys.stderr)
