"""Predict the gain of changes to a program: replay a recorded run with the changes made.

TRACE is a trace or a saved timeline. The plan of `unstall explain TRACE` names the edits worth trying. Several edits
add up: each is made on top of those before it. Without an edit, the command shows how well the replay agrees with the
recorded run.

These edits can be limited to a place, by :FILE:LINE, :FILE:LINE:OP or :OP after the name:

    remove-syncs    pin-copies      reuse-pinned    make-on-device
    read-later      overlap-copies  keep-cache      load-ahead
    keep-on-device

These make something K times as fast; K can be inf:

    host-speed:K    kernel-speed:K[:FILE:LINE]      copy-speed:K    comm-speed:K
    input-speed:K   startup-speed:K                 sleep-speed:K

Other edits:

    graph           graph:FILE:FUNCTION
    leave-out:FILE:FUNCTION         overlap-comm
"""

from __future__ import annotations

import argparse
from pathlib import Path

from unstall.cli._arguments import add_place_options, add_plain_step_options
from unstall.cli._inputs import read_timeline
from unstall.cli._output import add_output_options, check_outputs, check_replaced, deliver


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", metavar="TRACE", help="the recorded run; - for stdin")
    parser.add_argument(
        "--edit",
        metavar="EDIT",
        action="append",
        default=[],
        help="a change to make (see above); may be repeated",
    )
    add_plain_step_options(parser)
    add_place_options(parser)
    parser.add_argument(
        "--save-trace",
        metavar="FILE",
        help="also write the predicted run as a trace (.json or .json.gz), which unstall and Perfetto open",
    )
    add_output_options(parser)


def run(args: argparse.Namespace) -> int:
    check_outputs(args, args.trace, others=[args.save_trace])
    if args.save_trace is not None:
        check_replaced(Path(args.save_trace))
    from unstall.answers.what_if import whatif

    answer = whatif(
        read_timeline(args.trace, quiet=args.quiet),
        args.edit,
        plain_step_ns=args.plain_step_ns,
        as_recorded=args.as_recorded,
        step=args.step,
        user=args.user,
    )
    if args.save_trace is not None:
        from unstall.virtual.profiler.trace_file import write_trace

        write_trace(answer.after.timeline, Path(args.save_trace), {"predicted": list(args.edit)})
    deliver(answer, args)
    return 0
