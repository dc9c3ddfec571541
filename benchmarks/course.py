"""Runs the course, and keeps the figures that `unstall course` and docs/course.md show.

    python -m benchmarks.course --gpu t4       on a virtual GPU
    python -m benchmarks.course                on this machine's GPU
    python -m benchmarks.course --out FILE     the same, and leaves the package as it is
    python -m benchmarks.course --merge FILE   takes figures of another machine over
    python -m benchmarks.course --judge        compares the virtual GPUs with the authors' figures
    python -m benchmarks.course --docs         writes docs/course.md again

A row that fails does not stop the others. Figures are written after each row, and no row begins after --seconds.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from unstall.course.against_author import against_author
from unstall.course.against_real import reasons
from unstall.course.answer import WORDS
from unstall.course.figures import figure, filled
from unstall.course.recorded import FILE, Recorded, heading, recorded
from unstall.course.row import Row
from unstall.course.running import run
from unstall.course.search import name_of
from unstall.course.table import script, table

PAGE = Path(__file__).parents[1] / "docs" / "course.md"
_BEGIN, _END = "<!-- rows: by python -m benchmarks.course --docs -->", "<!-- end of rows -->"
_SCRIPTS = "../src/unstall/course/experiments"
_ROW_S = 60.0
_DEVICE = "import torch; print(torch.cuda.get_device_name(), torch.__version__, sep='\\n')"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", help="a virtual GPU (default: this machine's GPU)")
    parser.add_argument("--rows", help="names or numbers, such as 1,8 (default: all)")
    parser.add_argument("--out", type=Path, default=FILE, help="where the figures go")
    parser.add_argument("--seconds", type=float, default=230.0, help="no row begins later (default: 230)")
    parser.add_argument("--merge", type=Path, help="a file that --out wrote")
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--docs", action="store_true")
    args = parser.parse_args(argv)
    if args.judge:
        print("\n".join(_judged()))
    elif args.docs:
        PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
    elif args.merge:
        _write(FILE, _merged(recorded(), _read(args.merge)))
    else:
        _run(args)
    return 0


def _run(args: argparse.Namespace) -> None:
    """Runs rows of the course, and writes their figures to a file after each row."""
    began = time.monotonic()
    device, torch = _device(args.gpu)
    name = heading(args.gpu or _short(device), virtual=args.gpu is not None)
    rows = _chosen(args.rows)
    kept = _read(args.out)
    before = kept[name].figures if name in kept and args.rows else {}
    problems = kept[name].problems if name in kept and args.rows else {}
    seconds = dict(kept[name].seconds) if name in kept and args.rows else {}
    printed = dict(kept[name].printed) if name in kept and args.rows else {}
    figures = {row: of for row, of in before.items() if row in table()}
    for row in rows:
        left = args.seconds - (time.monotonic() - began)
        problems.pop(row, None)
        if left <= 0:
            problems[row] = [f"not run: {args.seconds:.0f} s were over"]
            continue
        start = time.monotonic()
        found = run(script(row), table()[row], args.gpu, min(_ROW_S, left))
        took = round(time.monotonic() - start, 1)
        seconds[row] = min(took, seconds.get(row, took))  # other programs of this machine can only add to it
        figures[row] = {figure.label: figure.text for figure in found.figures}
        if table()[row].prints:
            printed[row] = found.others
        wrong = [found.failure] if found.failure else []
        wrong += [f"{check.sentence} {check.reason}" for check in found.checks if not check.holds]
        if wrong:
            problems[row] = wrong
        print(f"{row}: {'; '.join(wrong) or 'holds'}", flush=True)
        if found.failure:
            print(found.said, file=sys.stderr)
        now = Recorded(
            device=device,
            torch=torch,
            date=time.strftime("%Y-%m-%d"),
            figures={each: figures[each] for each in table() if each in figures},
            seconds={each: seconds[each] for each in table() if each in seconds},
            printed={each: printed[each] for each in table() if each in printed},
            problems=problems,
        )
        _write(args.out, kept | {name: now})


def _merged(gpus: dict[str, Recorded], others: dict[str, Recorded]) -> dict[str, Recorded]:
    """Returns the figures of `gpus`, with those of `others` added. A row of a GPU that `others`
    lacks stays as it is.
    """
    merged = dict(gpus)
    for name, other in others.items():
        kept = gpus.get(name, other)
        problems = {row: of for row, of in kept.problems.items() if row not in other.figures} | other.problems
        merged[name] = msgspec.structs.replace(
            other,
            figures=kept.figures | other.figures,
            seconds=kept.seconds | other.seconds,
            printed=kept.printed | other.printed,
            problems=problems,
        )
    return merged


def _chosen(words: str | None) -> list[str]:
    return [name_of(word) for word in words.split(",")] if words else list(table())


def _device(gpu: str | None) -> tuple[str, str]:
    """Returns the name of the GPU and the version of torch. Another process finds them, so that
    this one takes no memory of the GPU.
    """
    start = [sys.executable, "-c", _DEVICE]
    if gpu:
        code = f"import unstall\nunstall.virtual_gpu({gpu!r}).start()\n{_DEVICE}"
        start = [sys.executable, "-c", code]
    device, torch = subprocess.run(start, capture_output=True, text=True, check=True).stdout.splitlines()[-2:]
    return device, torch


def _short(device: str) -> str:
    """The short name of a GPU: "h100" for "NVIDIA H100 80GB HBM3"."""
    found = re.search(r"\b[A-Z]+\d+\w*", device)
    return (found[0] if found else device).lower()


def _read(path: Path) -> dict[str, Recorded]:
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Recorded]) if path.exists() else {}


def _write(path: Path, gpus: dict[str, Recorded]) -> None:
    """Writes the figures to a file, those of virtual GPUs first."""
    ordered = dict(
        sorted(gpus.items(), key=lambda item: ("(virtual)" not in item[0], item[0] != "T4 (virtual)", item[0]))
    )
    path.write_text(json.dumps(msgspec.to_builtins(ordered), indent=1) + "\n")


def _judged() -> Iterator[str]:
    errors = []
    for name, gpu in recorded().items():
        for row, figures in gpu.figures.items():
            for each in against_author(table()[row], gpu.device, figures):
                use = "used  " if each.used else "judged"
                missed = "missed" if each.missed else ""
                errors += [] if each.used or each.within == 1 else [abs(each.ratio - 1)]
                both = f"{each.author:>18} {each.ours:>18} {each.ratio:5.2f}"
                yield f"{name} {use} {both} {missed:6}  {row}: {each.label}"
    yield f"median error of those judged that need not be equal: {statistics.median(errors):.0%}"


def page(text: str) -> str:
    """Returns the text of docs/course.md, with the part about the experiments written again. `text`
    is the page as it is.
    """
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n\n" + "\n".join(_rows()) + f"\n{_END}{after}"


def _rows() -> Iterator[str]:
    t4 = recorded()[heading("t4", virtual=True)]
    yield from ("| | experiment | question | takes, on a virtual T4 |", "|--:|---|---|--:|")
    for name, row in table().items():
        yield f"| {row.number} | [`{name}`](#{row.number}-{name}) | {row.question} | {t4.seconds[name]:.0f} s |"
    yield ""
    yield f"{WORDS} The [glossary](glossary.md) has more words."
    yield ""
    yield "The columns of the tables below:"
    yield ""
    for gpu, of in recorded().items():
        yield f"- {gpu}: {of.device}, torch {of.torch}, last run on {of.date}"
    yield ""
    yield (
        "Columns of different models, hosts and versions of torch differ. The real H200 and the real H100 are of"
        " different machines, with other hosts. Figures in the texts are those of the virtual T4"
        ' (which is meant by "here"); the command puts those of its own run in their place.'
    )
    yield ""
    for name, row in table().items():
        here = {label: figure(label, text) for label, text in t4.figures[name].items()}
        source = f", [source]({row.source})" if row.source else ""
        yield from (
            f"### {row.number} {name}",
            "",
            f"**{row.question}** ([script]({_SCRIPTS}/{name}.py){source})",
            "",
            *(line for text in filled(row.learn, here).splitlines() for line in (text, "")),
            *((f"Which case is mine? {filled(row.mine, here)}", "") if row.mine else ()),
        )
        if row.change:
            change, *code = row.change.splitlines()
            yield from (f"Change: {change}", "", *(("```python", *code, "```", "") if code else ()))
        yield from _figures(name, row)
        if row.prints and name in t4.printed:
            yield from ("On the virtual T4, the script also prints:", "", "```text", t4.printed[name], "```", "")
        yield from ("What should be seen:", "")
        yield from (f"- {check.sentence}" for check in row.checks)
        yield ""


def _figures(name: str, row: Row) -> Iterator[str]:
    """Yields the lines of a row's table of figures, and of the list of figures that are off."""
    columns: dict[str, dict[str, str]] = {}
    if row.author is not None:
        columns[f"author: {row.author.device}"] = dict(row.author.figures)
    for gpu, of in recorded().items():
        if name in of.figures:
            columns[gpu] = of.figures[name]
    labels = dict.fromkeys(label for figures in reversed(columns.values()) for label in figures)
    if labels:
        yield f"| | {' | '.join(columns)} |"
        yield f"|---|{'--:|' * len(columns)}"
        for label in labels:
            yield f"| {label} | {' | '.join(figures.get(label, '-') for figures in columns.values())} |"
        yield ""
    if row.host == "mixed" and labels:
        yield (
            "On virtual GPUs, the host's own work was measured on the machine that simulated, and scaled to the"
            " modelled host. If that machine was busy, it is too long."
        )
        yield ""
    for gpu, of in recorded().items():
        for each in against_author(row, of.device, of.figures.get(name, {})):
            if each.missed:
                said = f"The figure of the {gpu} for `{each.label}` is {each.ratio:.2f} times the author's."
                yield f"{said} {each.why[:1].upper()}{each.why[1:] or 'It is not known why.'}"
                yield ""
    if row.differs:
        yield "Where a virtual H200 is not as a real one:"
        yield ""
        yield from (f"- {why}: {'; '.join(labels)}" for why, labels in reasons(row).items())
        yield ""
    for gpu, of in recorded().items():
        for problem in of.problems.get(name, []):
            yield f"On {gpu}: {problem}"
            yield ""


if __name__ == "__main__":
    sys.exit(main())
