"""Measure a statement, or compare several: on the device, on the host, and both.

    unstall bench "x.sum()" --setup "x = torch.ones(4096, device='cuda')"
    unstall bench "x.sum()" --vs "x @ x" --setup "x = torch.ones(4096)"

The names torch, np, jnp, cp, F, nn and math stand for what they usually do.
Statements that are compared run by turns, and their values are compared first.
A statement that computes something else than the first fails, as does one that
is slower than the baseline allows.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack, nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unstall.cli._arguments import add_output_group, add_quiet_option, add_value, parse_count, parse_seconds
from unstall.cli._bench_progress import shown
from unstall.errors import UsageError
from unstall.files import check_targets, write_atomically
from unstall.measuring.amounts import parse_bytes, parse_flops, parse_share
from unstall.report.formats import format_of

if TYPE_CHECKING:
    from unstall.measuring.baseline import Entry
    from unstall.measuring.comparison import Comparison
    from unstall.measuring.measurement import Measurement

# Of `unstall.bench`, whose modules take numpy, which no `--help` waits for; a test holds them alike.
_CACHES = ("cold", "hot", "rotate")
_METHODS = ("auto", "cupti", "events", "model", "host")
_TIMES = ("device", "wall", "throughput")
_FORMATS = ("html", "json", "markdown", "text")
_ALLOWED = 0.05
_REL_CI = 0.01
_SECONDS, _SECONDS_TO_COMPARE = 2.0, 5.0
_NO_GPU = ("not compiled with CUDA", "Found no NVIDIA driver", "No CUDA GPUs are available")  # torch's words


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("statement", metavar="STATEMENT", help="what to measure")
    parser.add_argument("--setup", metavar="CODE", default="", help="run once before, with the statements' globals")
    parser.add_argument(
        "--vs",
        metavar="STATEMENT",
        action="append",
        default=[],
        help="compare this one with the first; may be repeated",
    )
    group = parser.add_argument_group("measuring")
    group.add_argument("--cache", choices=_CACHES, help="what the cache holds before (default: cold on a device)")
    add_value(group, "--max-seconds", "S", _seconds, "for a statement, or for a comparison (default: 2, 5)")
    add_value(group, "--num-threads", "N", parse_count, "torch's threads on the CPU")
    group.add_argument("--gpu", metavar="NAME", help="measure on a virtual GPU, such as h200")
    group = parser.add_argument_group("one statement")
    add_value(group, "--rel-ci", "SHARE", parse_share, "how well the median is to be known: 1%% (the default) or 0.01")
    add_value(
        group, "--bytes", "SIZE", parse_bytes, "what it moves, such as 64MiB: its rate, and the share of the device's"
    )
    add_value(group, "--flops", "N", parse_flops, "what it computes, such as 2e9 or 2GFLOP: as --bytes")
    group.add_argument(
        "--method", choices=_METHODS, help="how device time is taken (default: auto; model is the virtual GPU's)"
    )
    group = parser.add_argument_group("a comparison")
    group.add_argument(
        "--by",
        choices=_TIMES,
        help="the time to compare (default: the device's, but throughput where the host bounds a statement)",
    )
    add_value(
        group, "--same-within", "SHARE", parse_share, "what is to be called the same: 1.5%% (the default) or 0.015"
    )
    group = add_output_group(parser, _FORMATS, prints="what to print")
    add_quiet_option(group)
    add_value(group, "--html", "FILE", _no_html, argparse.SUPPRESS)
    group = parser.add_argument_group("baselines", "exit with 1 where a statement is slower than one")
    group.add_argument("--save-baseline", metavar="FILE", help="add these times to FILE")
    group.add_argument("--baseline", metavar="FILE", help="hold the times against those in FILE")
    add_value(
        group,
        "--fail-above",
        "SHARE",
        parse_share,
        "how much slower than the baseline is allowed: 5%% (the default) or 0.05",
    )


def run(args: argparse.Namespace) -> int:
    for path in args.output:
        if format_of(path, args.format) not in _FORMATS:
            raise UsageError(f"{path}: a benchmark has no such format. Use one of {', '.join(_FORMATS)}")
    check_targets([*args.output, *([args.save_baseline] if args.save_baseline else [])], [])
    _check(args)
    by = args.by
    if args.baseline is not None:
        from unstall.measuring.baseline import read

        entries = read(args.baseline).entries  # what is wrong with it is said before anything is measured
        kinds = {entry.by for entry in entries.values()}
        by = by or (kinds.pop() if len(kinds) == 1 else None)
    try:
        with redirect_stdout(sys.stderr) if args.format else nullcontext():
            found = _measured(args, by)
    except UsageError as error:
        if args.gpu is None and any(text in str(error) for text in _NO_GPU):
            raise UsageError(f"{error}. --gpu h200 measures on a virtual GPU") from error
        raise
    for path in args.output:
        write_atomically(path, _rendered(found, format_of(path, args.format)).encode(errors="replace"))
    if args.format:
        sys.stdout.write(_rendered(found, args.format))
    elif not args.quiet:
        _show(found)
    return _code(found, args)


def _check(args: argparse.Namespace) -> None:
    """Raise UsageError for what does not go together."""
    if args.fail_above is not None and args.baseline is None:
        raise UsageError("--fail-above is about a baseline: give --baseline FILE too")
    if not args.vs and (args.by is not None or args.same_within is not None):
        raise UsageError("--by and --same-within are about a comparison: give --vs too")
    alone = [name for name in ("rel_ci", "bytes", "flops", "method") if getattr(args, name) is not None]
    if args.vs and alone:
        raise UsageError(f"--{alone[0].replace('_', '-')} is about one statement: leave --vs out")


def _measured(args: argparse.Namespace, by: Any) -> Measurement | Comparison:
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


def _without_launcher(found: Measurement) -> Measurement:
    """A statement stands in no file: the line of the script that started this one is no place of its own."""
    own = f"{sys.argv[0]}:"
    verdicts = tuple(
        replace(each, place=None) if each.place is not None and each.place.startswith(own) else each
        for each in found.verdicts
    )
    return replace(found, verdicts=verdicts)


def _show(found: Measurement | Comparison) -> None:
    from unstall.measuring.comparison import Comparison

    if isinstance(found, Comparison):
        from unstall.measuring.tables import show

        show([found])
    else:
        print(found)


def _rendered(found: Measurement | Comparison, form: str) -> str:
    if form == "json":
        return found.to_json()
    if form == "text":
        return f"{found}\n"
    if form == "markdown":
        return f"```\n{found}\n```\n"
    from unstall.measuring.plot import page

    return page(found)


def _code(found: Measurement | Comparison, args: argparse.Namespace) -> int:
    """1 where a statement computes something else than the first, or is slower than the baseline allows."""
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
    from unstall.measuring.baseline import held_against
    from unstall.measuring.wording import precise
    from unstall.report.wording import plain

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


def _entries(found: Measurement | Comparison) -> dict[str, Entry]:
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
