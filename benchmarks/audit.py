"""Waits of diffusers' and transformers' models by line: does the virtual GPU find those of a real one?

    python -m benchmarks.audit record --gpu h200        # on a virtual GPU
    python -m benchmarks.audit record                   # on this machine's GPU, each entry under `unstall run`
    python -m benchmarks.audit compare VIRTUAL REAL

`record` audits ENTRIES, by default all of the recipes for diffusers in examples/audit/, and writes their table as
results/audit_virtual or results/audit_NAME, as JSON and as Markdown. With --only, it replaces these entries in a table
that is there. Figures are means per step, which is one call of the entry.

`compare` prints recall and precision of the virtual table's waits, with every difference. A wait is one that a line
makes in a step: if a line waits 10 times in the real table and 9 times in the virtual one, 9 are found and 1 is missed.
An entry that ran on the real GPU and not on the virtual one has all its waits missed. An entry that did not run on the
real GPU is named, and counts in neither.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.on_device import measured_on, why_skipped
from unstall.auditing.audit import Settings, audit
from unstall.auditing.entries import asked_for
from unstall.auditing.result import Figures, Row
from unstall.figures import duration

RECIPES = ("examples/audit/diffusers_schedulers.py", "examples/audit/diffusers_pipelines.py")
RESULTS = Path(__file__).parent / "results"
_PACKAGES = ("torch", "diffusers", "transformers", "unstall")
_INSTALLED = re.compile(r"^.*/(?:site-packages|dist-packages)/")
Table = Mapping[str, Mapping[str, Any]]
"""By entry, its figures. `waits` are the waits per step, by line. If the entry failed, there is
only `failed`, which says why.
"""


def main() -> None:
    """Records a table, or compares two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    recording = verbs.add_parser("record")
    recording.add_argument("entries", nargs="*", default=RECIPES)
    recording.add_argument("--gpu", help="a virtual GPU, in place of this machine's")
    recording.add_argument("--only", action="store_true", help="keep the other entries of the table that is there")
    recording.add_argument("--limit", type=float, default=60, help="seconds for one entry")
    recording.add_argument("--jobs", type=int, help="entries at once (default: the cores; 1 on a real GPU)")
    recording.add_argument("--results", type=Path, default=RESULTS)
    recording.set_defaults(run=record)
    comparing = verbs.add_parser("compare")
    comparing.add_argument("virtual", type=Path, nargs="?", default=RESULTS / "audit_virtual.json")
    comparing.add_argument("real", type=Path, nargs="?", default=RESULTS / "audit_h100.json")
    comparing.set_defaults(run=lambda args: print("\n".join(compared(read(args.virtual), read(args.real)))))
    args = parser.parse_args()
    args.run(args)


def record(args: argparse.Namespace) -> None:
    """Audits the entries, and writes a table of their figures as JSON and as Markdown."""
    if not args.gpu and (skipped := why_skipped()):
        print(skipped)
        return
    on = _made_on(args.gpu)
    jobs = args.jobs or (len(os.sched_getaffinity(0)) if args.gpu else 1)

    def tell(row: Row, done: int, of: int) -> None:
        print(
            f"{done} of {of}: {row.entry}: {row.failure.reason if row.failure else f'{row.took_s:.0f} s'}", flush=True
        )

    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(args.gpu, (), args.limit, jobs, Path(folder))
        rows = audit(asked_for(args.entries, []), settings, tell).rows
    out = args.results / f"audit_{'virtual' if args.gpu else str(on['device']).split()[1].lower()}.json"
    kept = read(out) if args.only and out.exists() else {}
    table = dict(sorted({**kept, **{row.entry: _saved(row) for row in rows}}.items()))
    out.write_text(json.dumps({**on, "entries": table}, indent=1) + "\n")
    out.with_suffix(".md").write_text(f"{_told(on)}\n\n{markdown(table)}")


def read(path: Path) -> Table:
    """Returns a table that `record` wrote."""
    table: Table = json.loads(path.read_text())["entries"]
    return table


def markdown(table: Table) -> str:
    """Returns a table as Markdown."""
    failed = {entry: row["failed"] for entry, row in table.items() if "failed" in row}
    took = [row["took_s"] for row in table.values() if "failed" not in row]
    lines = [
        f"{len(table) - len(failed)} of {len(table)} entries ran, each within {max(took, default=0):.0f} s.",
        "",
        "| entry | launches | waits | lines that wait | copies | idle | step | with the plan |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for entry, row in table.items():
        if entry not in failed:
            counts = [row["launches"], sum(row["waits"].values()), len(row["waits"]), row["copies"]]
            times = [f"{row['idle']:.0%}", duration(row["step_ns"]), duration(row["mended_ns"])]
            lines.append(f"| {' | '.join([_short(entry), *(f'{each:,.10g}' for each in counts), *times])} |")
    lines += ["", "Did not run:", ""] if failed else []
    lines += [f"- {_short(entry)}: {reason}" for entry, reason in failed.items()]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Score:
    """How many waits two tables have, one of a virtual GPU and one of a real one. Waits are per
    step, summed over all entries.

    Attributes:
        both: The waits that both tables have.
        virtual: The waits in the table of the virtual GPU.
        real: The waits in the table of the real GPU.
    """

    both: float
    virtual: float
    real: float

    @property
    def recall(self) -> float:
        """The share of the waits on the real GPU that the virtual GPU has too."""
        return self.both / self.real if self.real else 1.0

    @property
    def precision(self) -> float:
        """The share of the waits on the virtual GPU that the real GPU has too."""
        return self.both / self.virtual if self.virtual else 1.0


def score(virtual: Table, real: Table, *, lines: bool = False) -> Score:
    """Counts the waits of a virtual and of a real GPU, line by line. Only entries that ran on the
    real GPU count.

    Args:
        virtual: The table of the virtual GPU.
        real: The table of the real GPU.
        lines: Whether a line counts as one wait, however often it waits in a step.
    """

    def counts(row: Mapping[str, Any]) -> Mapping[str, float]:
        waits: Mapping[str, float] = row.get("waits", {})
        return dict.fromkeys(waits, 1.0) if lines else waits

    both = in_virtual = in_real = 0.0
    for entry, row in real.items():
        if "failed" not in row:
            mine, theirs = counts(virtual.get(entry, {})), counts(row)
            both += sum(min(times, mine.get(line, 0.0)) for line, times in theirs.items())
            in_virtual += sum(mine.values())
            in_real += sum(theirs.values())
    return Score(both, in_virtual, in_real)


def compared(virtual: Table, real: Table) -> Iterator[str]:
    """Yields lines of text: recall and precision, and then every difference between the two
    tables.
    """
    ran = {entry for entry, row in real.items() if "failed" not in row}
    both = sorted(entry for entry in ran if "failed" not in virtual.get(entry, {"failed": ""}))
    yield f"{len(ran)} entries ran on the real GPU, {len(both)} of them on the virtual one"
    for what, lines in (("waits per step", False), ("lines that wait", True)):
        found = score(virtual, real, lines=lines)
        yield (
            f"{what}: recall {found.recall:.1%}, precision {found.precision:.1%} "
            f"({found.both:,.1f} in both, {found.real:,.1f} real, {found.virtual:,.1f} virtual)"
        )
    if both:
        ratios = [virtual[entry]["step_ns"] / real[entry]["step_ns"] for entry in both]
        yield f"predicted step / real step: median {median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}"
    for entry, row in sorted(real.items()):
        if "failed" in row:
            yield f"{entry}: not compared, since it did not run on the real GPU: {row['failed']}"
        elif entry not in both:
            yield f"{entry}: all missed: {virtual.get(entry, {}).get('failed', 'it is not in the virtual table')}"
        else:
            yield from _differences(entry, virtual[entry]["waits"], row["waits"])


def _differences(entry: str, virtual: Mapping[str, float], real: Mapping[str, float]) -> Iterator[str]:
    for line in sorted({*virtual, *real}):
        if virtual.get(line, 0) != real.get(line, 0):
            yield f"{entry}: {line}: {real.get(line, 0):.10g} real, {virtual.get(line, 0):.10g} virtual"


def _saved(row: Row) -> dict[str, Any]:
    if row.figures is None:
        return {"failed": row.failure.reason if row.failure else ""}
    figures = row.figures
    return {
        "took_s": row.took_s,
        "steps": figures.steps,
        "launches": figures.launches,
        "copies": figures.copies,
        "idle": round(figures.idle, 4),
        "step_ns": figures.step_ns,
        "mended_ns": figures.mended_ns,
        "waits": waits_by_line(figures),
        **({"caveats": figures.caveats} if figures.caveats else {}),
    }


def waits_by_line(figures: Figures) -> dict[str, float]:
    """Returns how often each line waits per step. The path of a file in an installed package begins
    with the package.
    """
    waits: dict[str, float] = {}
    for wait in figures.waits:
        file = _INSTALLED.sub("", wait.where.file or wait.where.op or "?")
        line = file if wait.where.line is None else f"{file}:{wait.where.line}"
        waits[line] = waits.get(line, 0.0) + wait.per_step
    return dict(sorted(waits.items()))


def _short(entry: str) -> str:
    return entry.removeprefix("examples/audit/")


def _told(on: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" if name in (*_PACKAGES, "python") else str(value) for name, value in on.items())


def _made_on(gpu: str | None) -> dict[str, object]:
    """Returns the device, the versions and the day, which say what the figures are of. `gpu` is the
    name of a virtual GPU; None stands for the GPU of this machine.
    """
    on = {"device": f"virtual {gpu}", "date": time.strftime("%Y-%m-%d")} if gpu else measured_on()
    return {**on, **{name: _version(name) for name in _PACKAGES}, "python": platform.python_version()}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


if __name__ == "__main__":
    main()
