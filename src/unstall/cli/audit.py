"""Run many programs on a virtual GPU, and tell in a table what keeps the GPU waiting in each.

    unstall audit train.py eval.py
    unstall audit package.module:function
    unstall audit 'examples/*.py' -o audit.html
    unstall audit examples/audit/diffusers_schedulers.py

An ENTRY is one of these:

    train.py           a script, which is run
    file.py:function   a function of a file; also module:function
    file.py            a file that defines entries(): all of its entries
    file.py:PATTERN    its entries whose names match: 'file.py:Euler*'
    'folder/*.py'      all files that match

A function is called several times. The first calls are warm-up, and each later one is a step.

entries() returns a dict from names to functions. Each function prepares what its entry needs, such as a model, and
returns a second function, which is called once for each step.

Each entry runs in a process of its own, for at most --timeout seconds. The table begins with the entries that would
gain most. An entry that fails or takes too long is listed with its reason and its log.

The exit code is 0 if all entries ran, and 1 if an entry failed or took too long.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.cli._arguments import add_user_option, add_value, parse_count, parse_file, parse_limit
from unstall.cli._output import add_output_options, check_outputs, deliver
from unstall.cli._virtual_options import add_simulation_options, get_ready
from unstall.errors import UsageError
from unstall.virtual.options import parse

if TYPE_CHECKING:
    from unstall.auditing.audit import Settings, Tell
    from unstall.auditing.result import Row

_LIMIT_S = 60.0
_FOLDER = "unstall-audit-"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("entry", metavar="ENTRY", nargs="*", help="a script, a function, or a file of entries")
    more = "a file that lists more entries, one a line; a script may be followed by its arguments"
    add_value(parser, "--entries", "FILE", parse_file, more)
    group = parser.add_argument_group("how entries run")
    group.add_argument("--gpu", metavar="NAME[:N]", default="h200", help="the virtual GPU (default: h200)")
    add_simulation_options(group)
    add_value(group, "--timeout", "S", parse_limit, f"seconds that an entry may take (default: {_LIMIT_S:g})")
    add_value(group, "--jobs", "N", parse_count, "entries that run side by side (default: as many as there are cores)")
    add_value(group, "--warmup", "N", parse_count, "skip N steps first (default: 3)")
    add_value(group, "--steps", "N", parse_count, "stop after N more steps (default: 5)")
    group.add_argument("--keep", metavar="FOLDER", help="keep each entry's log, trace and report in FOLDER")
    add_user_option(group)
    add_output_options(parser, it="the table", largest="entries and lines that would gain most", but="only what")


def run(args: argparse.Namespace) -> int:
    if sys.platform != "linux":
        raise UsageError("audit needs Linux, since the virtual GPU does")
    check_outputs(args, *filter(None, [args.entries]))
    from unstall.auditing.entries import asked_for

    parse(args.gpu)
    asked = asked_for(args.entry, [args.entries] if args.entries else [])
    if not asked:
        raise UsageError("say what to audit: unstall audit SCRIPT, or unstall audit FILE.py:FUNCTION")
    get_ready(args.gpu)  # now, because the time of each entry is limited
    from unstall.answers.audit import Audited
    from unstall.auditing.audit import audit

    with _folder(args.keep) as folder:
        found = audit(asked, _settings(args, folder), _teller(quiet=args.quiet))
    deliver(Audited(found), args)
    return 1 if found.failed else 0


def _settings(args: argparse.Namespace, folder: Path) -> Settings:
    from unstall.auditing.audit import Settings

    options = []
    for name in ("numerics", "host", "warmup", "steps"):
        if getattr(args, name) is not None:
            options += [f"--{name}", str(getattr(args, name))]
    if args.warm:
        options.append("--warm")
    for glob in args.user:
        options += ["--user", glob]
    return Settings(
        gpu=args.gpu,
        options=tuple(options),
        limit_s=_LIMIT_S if args.timeout is None else args.timeout,
        at_once=args.jobs or len(os.sched_getaffinity(0)),
        folder=folder,
        keep=args.keep is not None,
    )


@contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    """Yields the folder for logs, traces and reports of the entries: `keep`, or else a temporary folder.

    At the end, removes the temporary folder if it is empty. It is not empty if it contains the log of a failed entry.
    """
    if keep is not None:
        yield Path(keep)
        return
    folder = Path(tempfile.mkdtemp(prefix=_FOLDER))
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if not any(folder.iterdir()):
        folder.rmdir()


def _teller(*, quiet: bool) -> Tell:
    """Returns a function that prints a line to stderr for an entry that has ended."""

    def tell(row: Row, done: int, of: int) -> None:
        if not quiet:
            how = row.failure.reason if row.failure else f"{row.took_s:.0f} s"
            print(f"unstall: {done} of {of}: {row.entry}: {how}", file=sys.stderr, flush=True)

    return tell
