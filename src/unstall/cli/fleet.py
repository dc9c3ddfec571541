"""Explain a training job of many ranks as one: which rank makes the others wait, at which line, and why.

    unstall fleet traces/
    unstall fleet 'traces/rank*.json.gz' --edit no-stragglers -o fleet.html
    unstall fleet traces/ --on ray

TRACES are a folder, a glob, or the files of the ranks, as torch.profiler or unstall run wrote them. The report replays
all ranks together, and says how long a step would take if the slow rank worked as its peers do.

Edits, for the whole job:

    no-stragglers   rank-like:R:S   balance-stages

Every edit of unstall whatif works too: for all ranks (comm-speed:2), or for one (3/remove-syncs:train.py:41).

With --on ray, each trace is read on a node whose disk has the trace. Summaries of ranks are kept in
~/.cache/unstall, so a second question takes less time.
"""

from __future__ import annotations

import argparse
import gc
import os

from unstall.cli._arguments import add_place_options
from unstall.cli._output import add_output_options, check_outputs, deliver
from unstall.cli._progress import ranks_read

_KEPT_BYTES = 64 << 20  # a replay of some hundred ranks, which is done for each straggler


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("traces", metavar="TRACES", nargs="+", help="a folder, a glob, or files: one for each rank")
    parser.add_argument(
        "--edit",
        metavar="EDIT",
        action="append",
        default=[],
        help="a change to make (see above); may be repeated",
    )
    parser.add_argument("--on", metavar="WHERE", help="where to read the traces: ray, or ray://ADDRESS:PORT")
    parser.add_argument("--no-cache", action="store_true", help="do not read or write the cache of summaries")
    add_place_options(parser)
    add_output_options(parser, it="the report", largest="costliest ranks and lines")


def run(args: argparse.Namespace) -> int:
    check_outputs(args, *args.traces)
    # numpy starts threads, which nothing here uses, and a process with threads cannot be forked.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # What is imported and read stays: to look for garbage in it takes a tenth of a small job's time.
    gc.disable()
    try:
        _explain(args)
    finally:
        gc.freeze()  # nor does a process look there that ends now
        gc.enable()
    return 0


def _explain(args: argparse.Namespace) -> None:
    from unstall.answers.fleet import fleet
    from unstall.fleets.executors import executor_of
    from unstall.fleets.freed_memory import keep_freed_memory

    keep_freed_memory(_KEPT_BYTES)
    with ranks_read(quiet=args.quiet) as progress:
        answer = fleet(
            args.traces[0] if len(args.traces) == 1 else args.traces,
            edits=args.edit,
            step=args.step,
            user=args.user,
            on=executor_of(args.on, "--on "),
            cache=not args.no_cache,
            progress=progress,
        )
    deliver(answer, args)
