"""The page docs/predictions.md, made of the figures of `benchmarks/whatif.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_GROUPS = {
    "h200": "recorded with torch 2.11 on an H200, in three programs of public kinds",
    "pairs": "of benchmarks/whatif_programs.py, nine programs of other kinds",
    "examples": "of examples/programs, small ones that stall on purpose",
}


def page(result: dict[str, Any]) -> str:
    """Markdown; every figure in it is the benchmark's."""
    return "\n".join([_HEAD, *_identity(result), *_recorder(result), *_pairs(result), ""])


_HEAD = """# How far off predictions are

<picture>
  <source media="(prefers-color-scheme: dark)" srcset="predictions-dark.svg">
  <img alt="Predicted against measured step times of all pairs" src="predictions.svg">
</picture>

A prediction is made from the recorded run of a stalled program: the run becomes a program of instructions, the
recorder's cost is taken out of it, the edit is made, and it is replayed until it settles. Beside it stands what
the mended program really took on an NVIDIA H200, with no profiler running. `benchmarks/whatif.py` makes this page.
"""
_IDENTITY = """## Replayed unchanged

The mean step of the replay against the recorded one, and how far the device's ops start from when they did, counted
from their step's start, as a share of the step (the 90th percentile of each run).

| runs | | step: median error | worst | op starts: median | worst |
|---|--:|--:|--:|--:|--:|"""
_BRANCHES = """
None of these runs has a CUDA graph on several streams, as `graphed` makes them. Their replays are measured on the
virtual GPU, where a trace holds no more of a graph than CUPTI tells: which of its ops ran when, on which streams.
Recorded steps of a ResNet, a GAN, a decoder, GPT-2 and blocks of GoogLeNet's kind, each one graph on four streams,
replay within 0.5 %; random graphs that fork and join, on any streams, within 1 % and 2 µs
(`tests/replay`). What waited for what there is inferred, an op for the one that ended last before it, so that the
gain of a faster branch may be told too small. A replay that is 2 % off or more is said in the report before all
that is predicted.
"""
_RECORDER = """## Without the recorder

Where the plain step time is not given, the recorder's usual cost is taken out. How far the step then is from the one
measured without recording:

| | runs | median | 9 of 10 within | worst |
|---|--:|--:|--:|--:|"""
_PAIRS = """## Predicted and measured

With the plain step time of the stalled program given, and the edits made everywhere. A gain is right within 20 % of
it or 3 % of the step. *No stacks*: the trace has no Python stacks.
"""
_CAUSES = """The largest errors have causes that a trace does not show. `transformers` launches other kernels while a
graph is captured (it builds the attention mask that it else looks for on the host), so `opt_decode` and
`gpt2_small_decode` do more work as graphs than when they were recorded. `downloads` into pageable memory become
pinned ones that the mended program does not wait for one by one. In `growing` and `empty_cache`, torch's own work
around an allocation that fails in its cache is gone too.
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
    parts = [("all", found["all"]), ("those that the host bounds", found["host_bound"])]
    if fit := found.get("fit"):
        crossed = fit["cross_validated"]
        parts.append(("all, the cost fitted without the program's own family", crossed["all"]))
        parts.append(("of these the host-bound", crossed["host_bound"]))
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
        yield f"### Runs {about}"
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
        yield f"- Left out: `{name}`, since {why}."


def _share(part: float) -> str:
    return f"{100 * part:.2g} %" if part < 0.1 else f"{100 * part:.0f} %"
