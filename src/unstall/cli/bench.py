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
import re
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.cli._arguments import named, parse_count
from unstall.errors import UsageError
from unstall.files import check_targets

if TYPE_CHECKING:
    from unstall.bench.baseline import Entry
    from unstall.bench.comparison import Comparison
    from unstall.bench.measurement import Measurement

_ALLOWED = 0.05
_SECONDS, _SECONDS_TO_COMPARE = 2.0, 5.0
_NO_GPU = ("not compiled with CUDA", "Found no NVIDIA driver", "No CUDA GPUs are available")  # torch's words
_FORMATS = {".htm": "html", ".html": "html", ".json": "json", ".txt": "text"}


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
    group.add_argument(
        "--cache", choices=("cold", "hot", "rotate"), help="what the cache holds before (default: cold on a device)"
    )
    group.add_argument(
        "--by", choices=("device", "wall", "throughput"), help="the time to compare (default: the device's, if any)"
    )
    group.add_argument(
        "--max-seconds",
        metavar="S",
        type=named("--max-seconds", _seconds),
        help="for a statement, or for a comparison (default: 2, 5)",
    )
    group.add_argument(
        "--same-within",
        metavar="SHARE",
        type=named("--same-within", _share),
        help="what is to be called the same: 1.5%% (the default) or 0.015",
    )
    group.add_argument(
        "--num-threads", metavar="N", type=named("--num-threads", parse_count), help="torch's threads on the CPU"
    )
    group.add_argument("--gpu", metavar="NAME", help="measure on a virtual GPU, such as h200")
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print JSON, with all samples")
    group.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        action="append",
        default=[],
        help="write it to FILE too: .html with a plot of the samples, .json or .txt; may be repeated",
    )
    group = parser.add_argument_group("baselines", "exit with 1 where a statement is slower than one")
    group.add_argument("--save-baseline", metavar="FILE", help="add these times to FILE")
    group.add_argument("--baseline", metavar="FILE", help="hold the times against those in FILE")
    group.add_argument(
        "--fail-above",
        metavar="SHARE",
        type=named("--fail-above", _share),
        help="how much slower than the baseline is allowed: 5%% (the default) or 0.05",
    )


def run(args: argparse.Namespace) -> int:
    for path in args.output:
        if Path(path).suffix.lower() not in _FORMATS:
            raise UsageError(f"{path}: its ending names no format of a benchmark. Use {', '.join(sorted(_FORMATS))}")
    check_targets([*args.output, *([args.save_baseline] if args.save_baseline else [])], [])
    if args.fail_above is not None and args.baseline is None:
        raise UsageError("--fail-above is about a baseline: give --baseline FILE too")
    from unstall.files import write_atomically

    if args.baseline is not None:
        from unstall.bench.baseline import read

        read(args.baseline)  # what is wrong with it is said before anything is measured
    try:
        found = _measured(args)
    except UsageError as error:
        if args.gpu is None and any(text in str(error) for text in _NO_GPU):
            raise UsageError(f"{error}. --gpu h200 measures on a virtual GPU") from error
        raise
    for path in args.output:
        write_atomically(path, _rendered(found, _FORMATS[Path(path).suffix.lower()]).encode(errors="replace"))
    if args.json:
        sys.stdout.write(found.to_json())
    else:
        _show(found)
    return _code(found, args)


def _measured(args: argparse.Namespace) -> Measurement | Comparison:
    from unstall.bench.compare import compare
    from unstall.bench.measure import bench
    from unstall.bench.rounds import MARGIN
    from unstall.bench.statement import functions, told

    if not args.vs and (args.by is not None or args.same_within is not None):
        raise UsageError("--by and --same-within are about a comparison: give --vs too")
    with ExitStack() as stack:
        if args.gpu is not None:
            from unstall.virtual.entry import virtual_gpu

            stack.enter_context(virtual_gpu(args.gpu))
        sys.path.insert(0, str(Path.cwd()))  # as `python -c` does
        made = functions([args.statement, *args.vs], args.setup, {"__name__": "__main__"})
        for label, function in made.items():
            with told(label):
                if args.vs:
                    function()
                    continue
                seconds = args.max_seconds or _SECONDS
                found = bench(
                    function, label=label, cache=args.cache, max_seconds=seconds, num_threads=args.num_threads
                )
                if args.gpu is not None and found.device is None:
                    print(
                        "unstall: nothing of it runs on the virtual GPU: the times are this machine's", file=sys.stderr
                    )
                return _without_launcher(found)
        return compare(
            made,
            by=args.by or "auto",
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
    from unstall.bench.comparison import Comparison

    if isinstance(found, Comparison):
        from unstall.bench.tables import show

        show([found])
    else:
        print(found)


def _rendered(found: Measurement | Comparison, form: str) -> str:
    if form == "json":
        return found.to_json()
    if form == "text":
        return f"{found}\n"
    from unstall.bench.plot import page

    return page(found)


def _code(found: Measurement | Comparison, args: argparse.Namespace) -> int:
    """1 where a statement computes something else than the first, or is slower than the baseline allows."""
    from unstall.bench.comparison import Comparison

    code = 0 if not isinstance(found, Comparison) or found.agrees else 1
    entries = _entries(found)
    if args.baseline is not None:
        code = max(code, _against_baseline(entries, args))
    if args.save_baseline is not None:
        from unstall.bench.baseline import save

        save(args.save_baseline, entries)
    return code


def _against_baseline(entries: dict[str, Entry], args: argparse.Namespace) -> int:
    from unstall.bench.baseline import held_against
    from unstall.bench.wording import precise
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
    from unstall.bench.baseline import entry
    from unstall.bench.comparison import Comparison

    device, cache = found.device_name, found.cache
    if isinstance(found, Comparison):
        return {each.name: entry(each.time, by=found.by, cache=cache, device=device) for each in found.candidates}
    by = "wall" if found.device is None else "device"
    return {found.label: entry(found.best, by=by, cache=cache, device=device)}


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise UsageError(f"{text!r} is no time: give seconds, such as 2.5")
    return seconds


def _share(text: str) -> float:
    """The fraction that "5%" or "0.05" stands for."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%?)\s*", text)
    share = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not 0 < share < 1:
        raise UsageError(f"{text!r}: write a percentage or a fraction, such as 5% or 0.05")
    return share
