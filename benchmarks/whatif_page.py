"""Makes the page docs/predictions.md from the figures of `benchmarks/whatif.py`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any

_GROUPS = {
    "h200": "Three programs of public kinds (`h200`), with torch 2.11",
    "pairs": "Nine programs of other kinds (`pairs`: benchmarks/whatif_programs.py)",
    "examples": "Small programs that stall on purpose (`examples`: examples/programs)",
}


def page(result: dict[str, Any]) -> str:
    """Returns the page as Markdown. All figures in it come from `result`."""
    return "\n".join([_HEAD, *_summary(result), *_pairs(result), *_identity(result), *_recorder(result)])


_HEAD = """# How far off predictions are

<picture>
  <source media="(prefers-color-scheme: dark)" srcset="predictions-dark.svg">
  <img alt="Predicted against measured step times of all pairs" src="predictions.svg">
</picture>

Programs that stall were recorded and fixed, and both were timed without a profiler on an NVIDIA H200. Each prediction
is made from the recording alone: it becomes a [Program](glossary.md#replaying), the recorder's overhead is taken out,
the edit is made, and the Program is replayed until its step time no longer changes. It is compared with the step time
of the fixed program. `benchmarks/whatif.py` writes this page.

| plain step time of the stalled program | predictions | step: median error | 9 of 10 within | worst | gain right |
|---|--:|--:|--:|--:|--:|"""
_IDENTITY = """
## Replayed unchanged

A replay without edits should give the recorded run back. Errors are shares of the step: of the mean step time, and of
the start of each op within its step (the 90th percentile of each run). `peers` are traces of other projects.

| runs | | step: median error | worst | op starts: median | worst |
|---|--:|--:|--:|--:|--:|"""
_BRANCHES = """
None of these has a CUDA graph on several streams, as `graphed` makes them. Those are tested on the virtual GPU
(`tests/replay`), whose traces have of a graph what CUPTI reports. Steps of a ResNet, a GAN, a decoder, GPT-2 and blocks
like GoogLeNet's, each one graph on four streams, replay within 0.5 %; random graphs that fork and join, within 1 % and
2 µs. The order within a graph is inferred: an op waits for the op that ended last before it. So the predicted gain of a
faster branch may be too small.

If a replay is 2 % off or more, the report says so before any prediction.
"""
_RECORDER = """## Without the recorder

If the plain step time is not known, the recorder's usual cost is taken out. The step time is then off by:

| | runs | median | 9 of 10 within | worst |
|---|--:|--:|--:|--:|"""
_PAIRS = """
A gain is right if it differs from the measured one by at most 20 % of it, or by at most 3 % of the step.

## Predicted and measured

The plain step time is given, and edits are made everywhere. Traces without Python stacks have an error of their own.
*By ratio*: both programs were timed in turns, and their ratio is compared.
"""
_CAUSES = """### The largest errors

Their causes are not in a trace:

- `opt_decode`, `gpt2_small_decode`: during a capture, `transformers` builds an attention mask; otherwise it checks on
  the host whether it needs one. So the graphs do more work than the recorded steps.
- `downloads`: the fixed program copies into pinned memory, and does not wait for each copy.
- `growing`, `empty_cache`: torch's own work around an allocation that fails in its cache is gone too.

### Left out

No edit models what fixes these programs:
"""


def _summary(result: dict[str, Any]) -> Iterator[str]:
    for facts in result["predictions"]["summary"]:
        if facts["placed"]:
            continue
        plain = "given" if facts["plain_given"] else "estimated"
        stacks = "stacks" if facts["stacks"] else "no stacks"
        step, count = facts["step"], facts["step"]["count"]
        errors = " | ".join(_share(step[figure]) for figure in ("median", "p90", "worst"))
        yield f"| {plain}, {stacks} | {count} | {errors} | {facts['gains_right']} of {count} |"


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
        yield "| from → to | edits | before, ms | after, ms | predicted | error | no stacks | gain, ms | predicted | |"
        yield "|---|---|--:|--:|--:|--:|--:|--:|--:|---|"
        without_stacks = {_pair(row): row for row in mine if not row["stacks"]}
        for row in mine:
            if not row["stacks"]:
                continue
            other = without_stacks.get(_pair(row))
            judged = " by ratio" if row["judged_by"] == "ratio" else ""
            yield (
                f"| {row['stalled']} → {_rest(row)} | {row['label']} | {row['stalled_ms']:.2f} "
                f"| {row['measured_ms']:.2f}{judged} | {row['predicted_ms']:.2f} | {_error(row)} "
                f"| {'-' if other is None else _error(other)} | {row['true_gain_ms']:.2f} | {row['gain_ms']:.2f} "
                f"| {'' if row['gain_right'] else 'gain off'} |"
            )
        yield ""
    yield _CAUSES
    for name, why in result["predictions"]["left_out"].items():
        yield f"- `{name}`: {why}."


def _pair(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["stalled"], row["mended"], row["label"]


def _rest(row: dict[str, Any]) -> str:
    """The name of the fixed program, without the words with which both names begin."""
    stalled, mended = row["stalled"].split("_"), row["mended"].split("_")
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(stalled, mended, strict=False))))
    return "_".join(mended[min(shared, len(mended) - 1) :])


def _error(row: dict[str, Any]) -> str:
    return f"{100 * row['error']:+.1f} %"


def _share(part: float) -> str:
    return f"{100 * part:.2g} %" if part < 0.1 else f"{100 * part:.0f} %"
