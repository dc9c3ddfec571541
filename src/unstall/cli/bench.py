"""Measure a statement, or compare several: their time on the device and on the host.

    unstall bench "x.sum()" --setup "x = torch.ones(4096, device='cuda')"
    unstall bench "x.sum()" --vs "x @ x" --setup "x = torch.ones(4096)"

The names torch, np, jnp, cp, F, nn and math can be used without an import.
With --vs, the results are checked to agree first; then the statements are timed
alternately. The exit code is 1 if a result differs from that of the first statement, or if a
statement is slower than its baseline allows.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack, nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unstall.cli._arguments import add_value, parse_count, parse_seconds
from unstall.cli._bench_progress import shown
from unstall.cli._output import add_output_options, check_outputs, deliver
from unstall.errors import UsageError
from unstall.measuring.amounts import parse_bytes, parse_flops, parse_share

if TYPE_CHECKING:
    from unstall.measuring.baseline import Entry
    from unstall.measuring.shown import ShownComparison, ShownMeasurement

# Copied from `unstall.bench`, whose modules import numpy, which is too slow for `--help`. A test checks that both
# agree.
_CACHES = ("cold", "hot", "rotate")
_METHODS = ("auto", "cupti", "events", "model", "host")
_TIMES = ("device", "wall", "throughput")
_ALLOWED = 0.05
_REL_CI = 0.01
_SECONDS, _SECONDS_TO_COMPARE = 2.0, 5.0
_NO_GPU = ("not compiled with CUDA", "Found no NVIDIA driver", "No CUDA GPUs are available")  # texts of torch's errors


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("statement", metavar="STATEMENT", help="what to measure")
    parser.add_argument(
        "--setup", metavar="CODE", default="", help="code to run once, first; the statements can use its names"
    )
    parser.add_argument(
        "--vs",
        metavar="STATEMENT",
        action="append",
        default=[],
        help="another statement, to compare with the first; may be repeated",
    )
    group = parser.add_argument_group("measuring")
    group.add_argument(
        "--cache",
        choices=_CACHES,
        help="cold: empty the device's cache before each call; hot: leave the cache as it is; rotate: leave it, but "
        "give each call other inputs (default: cold to measure the device, hot to measure the host)",
    )
    add_value(
        group, "--max-seconds", "S", _seconds, "the most time to take (default: 2 for a statement, 5 for a comparison)"
    )
    add_value(group, "--num-threads", "N", parse_count, "how many CPU threads torch uses")
    group.add_argument("--gpu", metavar="NAME", help="measure on a virtual GPU, such as h200")
    group = parser.add_argument_group("one statement")
    add_value(
        group, "--rel-ci", "SHARE", parse_share, "how exactly the median must be known, such as 0.5%% (default: 1%%)"
    )
    add_value(
        group,
        "--bytes",
        "SIZE",
        parse_bytes,
        "how many bytes a call moves, such as 64MiB: shows the rate, and its share of the device's peak",
    )
    add_value(
        group,
        "--flops",
        "N",
        parse_flops,
        "how many operations a call computes, such as 2e9 or 2GFLOP: shows the rate, and its share of the peak",
    )
    group.add_argument(
        "--method", choices=_METHODS, help="how to measure device time (default: auto; model is for a virtual GPU)"
    )
    group = parser.add_argument_group("a comparison")
    group.add_argument(
        "--by",
        choices=_TIMES,
        help="what to compare (default: device time, or throughput if a statement is host-bound)",
    )
    add_value(
        group,
        "--same-within",
        "SHARE",
        parse_share,
        "times count as the same if they differ by less than this (default: 1.5%%)",
    )
    add_output_options(parser)
    add_value(parser, "--html", "FILE", _no_html, argparse.SUPPRESS)
    group = parser.add_argument_group("baselines", "exit with 1 if a statement is slower than its baseline allows")
    group.add_argument("--save-baseline", metavar="FILE", help="add these times to FILE")
    group.add_argument("--baseline", metavar="FILE", help="compare the times with those in FILE")
    add_value(
        group,
        "--fail-above",
        "SHARE",
        parse_share,
        "how much slower than its baseline a statement may be (default: 5%%)",
    )


def run(args: argparse.Namespace) -> int:
    check_outputs(args, others=[args.save_baseline])
    _check(args)
    by = args.by
    if args.baseline is not None:
        from unstall.measuring.baseline import read

        entries = read(args.baseline).entries  # errors in it are reported before anything is measured
        kinds = {entry.by for entry in entries.values()}
        by = by or (kinds.pop() if len(kinds) == 1 else None)
    try:
        with redirect_stdout(sys.stderr) if args.format else nullcontext():
            found = _measured(args, by)
    except UsageError as error:
        if args.gpu is None and any(text in str(error) for text in _NO_GPU):
            raise UsageError(f"{error}. --gpu h200 measures on a virtual GPU") from error
        raise
    deliver(found, args)
    return _code(found, args)


def _check(args: argparse.Namespace) -> None:
    """Raises UsageError if options exclude each other."""
    if args.fail_above is not None and args.baseline is None:
        raise UsageError("--fail-above is about a baseline: give --baseline FILE too")
    if not args.vs and (args.by is not None or args.same_within is not None):
        raise UsageError("--by and --same-within need --vs")
    alone = [name for name in ("rel_ci", "bytes", "flops", "method") if getattr(args, name) is not None]
    if args.vs and alone:
        raise UsageError(f"--{alone[0].replace('_', '-')} is about one statement: leave --vs out")


def _measured(args: argparse.Namespace, by: Any) -> ShownMeasurement | ShownComparison:
    from unstall.measuring.benchmark import bench
    from unstall.measuring.compare import compare
    from unstall.measuring.comparing.rounds import MARGIN
    from unstall.measuring.progress import begin, heard_by
    from unstall.measuring.statement import errors_as_usage, errors_as_usage_of, functions

    with ExitStack() as stack:
        stack.enter_context(heard_by(stack.enter_context(shown(quiet=args.quiet or args.format is not None))))
        begin("the setup")
        if args.gpu is not None:
            from unstall.virtual.entry import virtual_gpu

            stack.enter_context(virtual_gpu(args.gpu))
        sys.path.insert(0, str(Path.cwd()))  # as `python -c` does
        made = functions([args.statement, *args.vs], args.setup, {"__name__": "__main__"})
        if not args.vs:
            ((label, function),) = made.items()
            with errors_as_usage(label):
                found = bench(
                    function,
                    label=label,
                    cache=args.cache,
                    rel_ci=args.rel_ci or _REL_CI,
                    max_seconds=args.max_seconds or _SECONDS,
                    bytes=args.bytes,
                    flops=args.flops,
                    method=args.method or "auto",
                    num_threads=args.num_threads,
                )
            return _without_launcher(found)
        with errors_as_usage_of(made):
            return compare(
                made,
                by=by or "auto",
                cache=args.cache or "auto",
                max_seconds=args.max_seconds or _SECONDS_TO_COMPARE,
                num_threads=args.num_threads,
                same_within=args.same_within or MARGIN,
            )


def _without_launcher(found: ShownMeasurement) -> ShownMeasurement:
    """Removes the source place from verdicts whose place is the script that started unstall.

    The measured statement is in no file, so it has no source place.
    """
    own = f"{sys.argv[0]}:"
    verdicts = tuple(
        replace(each, place=None) if each.place is not None and each.place.startswith(own) else each
        for each in found.verdicts
    )
    return replace(found, verdicts=verdicts)


def _code(found: ShownMeasurement | ShownComparison, args: argparse.Namespace) -> int:
    """Returns the exit code. With --save-baseline, also saves the baseline.

    The exit code is 1 if a statement's result differs from the first statement's, or if a statement is slower than the
    baseline allows.
    """
    from unstall.measuring.comparison import Comparison

    code = 0 if not isinstance(found, Comparison) or found.agrees else 1
    entries = _entries(found)
    if args.baseline is not None:
        code = max(code, _against_baseline(entries, args))
    if args.save_baseline is not None:
        from unstall.measuring.baseline import save

        save(args.save_baseline, entries)
    return code


def _against_baseline(entries: dict[str, Entry], args: argparse.Namespace) -> int:
    from unstall.document.plain import plain
    from unstall.measuring.baseline import held_against
    from unstall.measuring.wording import precise

    allowed = _ALLOWED if args.fail_above is None else args.fail_above
    code = 0
    for held in held_against(args.baseline, entries):
        change = 100 * (held.ratio.median - 1)
        times = f"{precise(held.now_ns)}, in the baseline {precise(held.then_ns)}: {change:+.1f} %"
        sure = f"95 % interval {100 * (held.ratio.low - 1):+.1f} to {100 * (held.ratio.high - 1):+.1f} %"
        if held.is_slower(allowed):
            code = 1
            budget = f"--fail-above is {100 * allowed:g} %"
            print(f"unstall: over budget: {plain(held.label)} takes {times} ({sure}), {budget}", file=sys.stderr)
        else:
            print(f"unstall: {plain(held.label)} takes {times} ({sure})", file=sys.stderr)
    return code


def _entries(found: ShownMeasurement | ShownComparison) -> dict[str, Entry]:
    from unstall.measuring.baseline import entry
    from unstall.measuring.comparison import Comparison

    device, cache = found.device_name, found.cache
    if isinstance(found, Comparison):
        return {each.name: entry(each.time, by=found.by, cache=cache, device=device) for each in found.candidates}
    by = "wall" if found.device is None else "device"
    return {found.label: entry(found.best, by=by, cache=cache, device=device)}


def _no_html(text: str) -> None:
    raise UsageError(f"there is no such option: -o {text} writes a page, where its ending is .html")


def _seconds(text: str) -> float:
    seconds = parse_seconds(text)
    if not seconds:
        raise UsageError("nothing is measured in 0 s: give seconds, such as 2.5")
    return seconds
