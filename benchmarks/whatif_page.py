"""Makes the page docs/predictions.md from the figures of `benchmarks/whatif.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_GROUPS = {
    "h200": "Three programs of public kinds (`h200`), with torch 2.11",
    "pairs": "Nine programs of other kinds (`pairs`: benchmarks/whatif_programs.py)",
    "examples": "Small programs that stall on purpose (`examples`: examples/programs)",
}


def page(result: dict[str, Any]) -> str:
    """Returns the page as Markdown. All figures in it come from `result`."""
    return "\n".join([_HEAD, *_identity(result), *_recorder(result), *_pairs(result), ""])


_HEAD = """# How far off predictions are

<picture>
  <source media="(prefers-color-scheme: dark)" srcset="predictions-dark.svg">
  <img alt="Predicted against measured step times of all pairs" src="predictions.svg">
</picture>

A prediction starts from a recorded run of a program that stalls. The run becomes a [Program](glossary.md#replaying):
instructions that depend on each other. The recorder's overhead is taken out, the edit is made, and the Program is
replayed until its step time no longer changes. This page compares that step time with the one of the fixed program,
measured on an NVIDIA H200 without a profiler. `benchmarks/whatif.py` writes this page.
"""
_IDENTITY = """## Replayed unchanged

A replay without edits should give the recorded run back. The table shows two errors, as shares of the step: of the mean
step time, and of the start of each op, counted from its step's start (the 90th percentile of each run). `h200`,
`examples` and `pairs` are the programs [below](#predicted-and-measured); `peers` are traces of other projects.

| runs | | step: median error | worst | op starts: median | worst |
|---|--:|--:|--:|--:|--:|"""
_BRANCHES = """
None of these runs has a CUDA graph on several streams, as `graphed` makes them. Such graphs are tested on the virtual
GPU (`tests/replay`), whose traces hold as much of a graph as CUPTI reports: which ops ran when, on which streams. Steps
of a ResNet, a GAN, a decoder, GPT-2 and blocks like GoogLeNet's, each one graph on four streams, replay within 0.5 %.
Random graphs that fork and join, on any streams, replay within 1 % and 2 µs. The order within such a graph is inferred:
an op waits for the op that ended last before it. So the predicted gain of a faster branch may be too small.

If a replay is 2 % off or more, the report says so before any prediction.
"""
_RECORDER = """## Without the recorder

If the plain step time is not known, the recorder's usual cost is taken out. The error of the estimated step time,
against the one measured without recording:

| | runs | median | 9 of 10 within | worst |
|---|--:|--:|--:|--:|"""
_PAIRS = """## Predicted and measured

Here the plain step time of the stalled program is given, and edits are made everywhere.

- *Gain off*: the predicted gain differs from the true one by more than 20 % of it, and by more than 3 % of the step.
- *No stacks*: the trace has no Python stacks.
- *By ratio*: the fixed and the stalled program were timed in turns, and their ratio is compared.
"""
_CAUSES = """### The largest errors

Their causes are not in a trace:

- `opt_decode`, `gpt2_small_decode`: while a graph is captured, `transformers` builds an attention mask. Otherwise it
  checks on the host whether it needs one. So the graphs do more work than the recorded steps.
- `downloads`: the fixed program copies into pinned memory, and does not wait for each copy.
- `growing`, `empty_cache`: torch's own work around an allocation that fails in its cache is gone too.

### Left out

No edit models what fixes these programs:
"""


def _identity(result: dict[str, Any]) -> Iterator[str]:
    yield _IDENTITY
    for group, facts in result["identity"]["groups"].items():
        step, starts = facts["step"], facts["op_start_p90"]
        yield (
            f"| {group} | {step['count']} | {_share(step['median'])} | {_share(step['worst'])} "
            f"| {_share(starts['median'])} | {_share(starts['worst'])} |"
        )
    yield _BRANCHES


def _recorder(result: dict[str, Any]) -> Iterator[str]:
    found = result["undistortion"]
    yield _RECORDER
    parts = [("all", found["all"]), ("host-bound", found["host_bound"])]
    if fit := found.get("fit"):
        crossed = fit["cross_validated"]
        parts.append(("all, usual cost fitted without the program's own family", crossed["all"]))
        parts.append(("host-bound, usual cost fitted likewise", crossed["host_bound"]))
    for title, part in parts:
        spread = " | ".join(_share(part[figure]) for figure in ("median", "p90", "worst"))
        yield f"| {title} | {part['count']} | {spread} |"
    yield ""


def _pairs(result: dict[str, Any]) -> Iterator[str]:
    rows = [row for row in result["predictions"]["pairs"] if row["plain_given"] and not row["placed"]]
    yield _PAIRS
    for group, about in _GROUPS.items():
        mine = [row for row in rows if row["group"] == group]
        if not mine:
            continue
        yield f"### {about}"
        yield ""
        yield "| from | edits | plain, ms | predicted, ms | measured, ms | error | gain, ms | true gain, ms | |"
        yield "|---|---|--:|--:|--:|--:|--:|--:|---|"
        for row in mine:
            stacks = "" if row["stacks"] else ", *no stacks*"
            judged = " by ratio" if row["judged_by"] == "ratio" else ""
            yield (
                f"| {row['stalled']}{stacks} → {row['mended']} | {row['label']} | {row['stalled_ms']:.2f} "
                f"| {row['predicted_ms']:.2f} | {row['measured_ms']:.2f}{judged} | {100 * row['error']:+.1f} % "
                f"| {row['gain_ms']:.2f} | {row['true_gain_ms']:.2f} | {'' if row['gain_right'] else 'gain off'} |"
            )
        yield ""
    yield _CAUSES
    for name, why in result["predictions"]["left_out"].items():
        yield f"- `{name}`: {why}."


def _share(part: float) -> str:
    return f"{100 * part:.2g} %" if part < 0.1 else f"{100 * part:.0f} %"
