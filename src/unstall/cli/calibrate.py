"""Measure this machine's GPU, to use it as a virtual one elsewhere.

Measures copies, launches, waits, and operators on many shapes. Writes the times to a JSON file, which `--gpu FILE`
reads. It stops at the time limit. What matters most is measured first.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from unstall.cli._trace import check_folders
from unstall.errors import UsageError
from unstall.files import check_targets, write_atomically


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="gpu.json", help="where to write it (default: gpu.json)"
    )
    parser.add_argument(
        "--minutes", type=float, default=6.0, metavar="N", help="the time limit, in minutes (default: 6)"
    )
    parser.add_argument("--quick", action="store_true", help="measure only the calls that matter most")
    parser.add_argument(
        "--host",
        action="store_true",
        help="measure only how fast the host is, and take the rest from the file of the same GPU in unstall",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="measure nothing, only check that each call can be made; needs no GPU"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print no progress")


def run(args: argparse.Namespace) -> int:
    if not args.output.endswith(".json"):
        raise UsageError(f"-o {args.output}: give it the ending .json, by which --gpu knows a file")
    if args.minutes <= 0:
        raise UsageError(f"--minutes {args.minutes:g}: give more than 0 minutes, such as 6")
    check_targets([args.output], [])
    check_folders([Path(args.output)])
    try:
        from unstall.virtual.costs import calibrate
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise UsageError("calibrate needs torch: install it, or run where it is") from None
    if args.dry_run:
        return _try(calibrate.try_shapes(0 if args.quick else 3))
    if not calibrate.available():
        raise UsageError("calibrate measures a real GPU, and torch sees none here")
    from unstall.virtual.costs.gpu_file import encode

    say = _silent if args.quiet else _say
    file = calibrate.calibrate_host(say) if args.host else calibrate.calibrate(args.minutes, args.quick, say)
    try:
        write_atomically(args.output, encode(file))
    except UsageError as error:
        raise UsageError(f"{error}. {_kept(encode(file), Path(args.output).name)}") from error
    print(f"{args.output}: {file.note} Use it with --gpu {args.output}")
    return 0


def _kept(measured: bytes, name: str) -> str:
    """Writes what was measured to a folder for temporary files. Returns a sentence that says where it is."""
    try:
        path = Path(tempfile.mkdtemp(prefix="unstall-gpu-")) / name
        write_atomically(path, measured)
    except (OSError, UsageError):
        return "What was measured is lost"
    return f"What was measured is kept in {path}"


def _try(found: tuple[int, list[str]]) -> int:
    count, wrong = found
    print(f"{count} calls; of {len(wrong)} operators not all could be tried by shapes alone")
    for line in wrong:
        print(f"  {line}")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _silent(text: str) -> None:
    pass
