"""What unstall says of public traces that were read by hand, beside what is true of them.

Usage: python -m benchmarks.strangers FOLDER [--out FILE]

`strangers.tsv` has the repository, path and commit of each trace, and what its steps and its limit are, worked out from
its events. The files are not in this repository. FOLDER holds those that you fetched, plain or
gzip, under any name: they are told by the SHA-256 of their text. A verdict is right if `bound_by`, or the one with the
recorder's overhead, is among the accepted values, or if none is given where the replay misses ("untrusted").
`--out` writes the table of docs/strangers.md.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from unstall.diagnose.explain import explain
from unstall.errors import UnstallError
from unstall.figures import duration, share
from unstall.result import Result

TRUTHS = Path(__file__).with_suffix(".tsv")


@dataclass(frozen=True, slots=True)
class Row:
    """A trace: what is true of it, and what unstall says.

    Attributes:
        truth: The row of `strangers.tsv`.
        said: The verdict of unstall, as text.
        steps: What unstall says of the steps.
        right: Whether the verdict is right.
    """

    truth: dict[str, str]
    said: str
    steps: str
    right: bool


def read(folder: Path) -> Iterator[Row]:
    """Yields a row for each known trace in a folder, in the order of `strangers.tsv`."""
    files = {_digest(path): path for path in sorted(folder.rglob("*.json*")) if path.is_file()}
    with TRUTHS.open(newline="") as table:
        for truth in csv.DictReader(table, delimiter="\t"):
            if path := files.get(truth["sha256"]):
                yield _row(truth, path)


def _digest(path: Path) -> str:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _row(truth: dict[str, str], path: Path) -> Row:
    try:
        result = explain(path).result
    except UnstallError as error:
        return Row(truth, f"refused: {error}", "-", right=False)
    accepted = truth["accepted"].split()
    known = result.verdict.if_free is not None
    bounds = {result.verdict.bound_by, result.verdict.or_bound_by}
    right = not bounds.isdisjoint(accepted) or (not known and "untrusted" in accepted)
    steps = result.steps
    found = "one run" if steps.found_by == "whole" else f"{steps.count} by {steps.found_by}"
    return Row(truth, _said(result), f"{found}, {duration(steps.mean_ns)}", right)


def _said(result: Result) -> str:
    """Returns the verdict of a result as text, such as "`launch`: host 76 %, kernels 3 %"."""
    verdict, replay = result.verdict, result.replay
    if verdict.if_free is None or replay is None:
        off = f", the replay is {100 * replay.error:+.0f} % off" if replay else ""
        return f"`{verdict.bound_by}` by its share, no gain promised{off}"
    step_ns = replay.undistorted_mean_step_ns
    ranked = sorted(verdict.if_free.items(), key=lambda pair: -pair[1])[:2]
    other = verdict.or_bound_by
    beside = f"; or `{other}`" if other else ""
    gains = ", ".join(f"{name} {share(gain, step_ns)}" for name, gain in ranked if gain > max(replay.error_ns, 1))
    return f"`{verdict.bound_by}`{': ' if gains else ''}{gains}{beside}"


def table(rows: list[Row]) -> Iterator[str]:
    """Yields the lines of a Markdown table."""
    heads = "repository", "program, device", "by hand: steps", "by hand: limit", "unstall: steps", "unstall: limit", ""
    yield f"| {' | '.join(heads)} |"
    yield f"|{' --- |' * len(heads)}"
    for row in rows:
        truth = row.truth
        what = f"{truth['program']}, {truth['device'].removeprefix('NVIDIA ')}"
        mark = "right" if row.right else "**wrong**"
        cells = truth["repository"], what, truth["steps"], truth["limit"], row.steps, row.said, mark
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--out", type=Path, metavar="FILE")
    args = parser.parse_args()
    rows = list(read(args.folder))
    text = "\n".join(table(rows))
    print(text)
    if rows:
        right = sum(row.right for row in rows)
        print(f"\n{right} of {len(rows)} right, {share(right, len(rows))}")
    if args.out:
        args.out.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
