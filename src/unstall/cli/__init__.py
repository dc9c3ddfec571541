"""The command line. Each module of this package is a verb: its docstring the help, and two functions.

    prepare_parser(parser)    adds the verb's arguments
    run(args) -> int          does it, and returns the exit code

Exit codes: 0 fine, 1 findings over a budget or a checked thing that failed, 2 usage, 3 unreadable input.
"""

from __future__ import annotations

import argparse
import os
import pkgutil
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from unstall._version import __version__
from unstall.errors import UnstallError


class Verb(Protocol):
    """What a module of this package offers."""

    __doc__: str | None

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, args: argparse.Namespace) -> int: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Errors meant for the user become one sentence on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        args = build_parser().parse_args(argv)
        code: int = args.run(args)
        sys.stdout.flush()
    except UnstallError as error:
        print(f"unstall: {_one_line(str(error))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Python flushes stdout once more at exit, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13  # SIGPIPE, which Windows does not name
    return code


def build_parser() -> argparse.ArgumentParser:
    """The whole command line's parser, its verbs as sub-parsers."""
    parser = argparse.ArgumentParser(
        prog="unstall", description="See, fix and predict what stalls your GPU.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"unstall {__version__}")
    subparsers = parser.add_subparsers(metavar="VERB", required=True)
    for name, verb in verbs().items():
        about = (verb.__doc__ or "").strip()
        subparser = subparsers.add_parser(
            name,
            help=about.partition("\n")[0],
            description=about,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        verb.prepare_parser(subparser)
        subparser.set_defaults(run=verb.run)
    return parser


def verbs() -> dict[str, Verb]:
    """The verbs by name: every module here that does not start with an underscore."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name[0] != "_")
    return {name: cast(Verb, import_module(f"{__name__}.{name}")) for name in names}


def _one_line(text: str) -> str:
    from unstall.report.wording import plain

    return plain(text)
