"""What each mechanism that tells the recorder's overhead earns: how much further off are step and gains without it?

    python -m benchmarks.recorder_mechanisms [--out FILE]

Needs no GPU. First part: the recordings in `examples/transformers/recorded`, each explained once with every mechanism
and once without one of them, against the turns that were measured in the same process (`*.turns.json`). Second part: a
simulated host and device whose true step time is known, for the pauses that a plain step time leaves out.

Errors are percentage points of the measured step. "As recorded": the plain step time is the recording's own, so a host
that changed its speed before the turns counts as an error too. "As in the turns": it is that of the turns, which leaves
the host's speed out.

Mechanisms that are gone were judged by this script too, before they went: the first table of
`benchmarks/results/recorder_mechanisms.txt`.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from unittest import mock

import numpy as np

import unstall
from unstall.diagnose.explain import explain
from unstall.read import load
from unstall.recording.plain import Plain
from unstall.recording.trace.plain_step import plain_step
from unstall.replay.program import Program
from unstall.timeline.columns import Bool, Timeline
from unstall.what_if import calibrate
from unstall.what_if import model as model_module

RECORDED = Path(__file__).resolve().parents[1] / "examples" / "transformers" / "recorded"
_MS = 1_000_000
_CASES = 4_000

Calibrated = tuple[Program, float]


def not_calibrated(program: Program, plain_step_ns: float, elastic: Bool, kept: Bool) -> Calibrated:
    return program, 1.0


def without_plain(timeline: Timeline) -> Timeline:
    return timeline.with_meta(plain_step_ns=None, plain_steps_ns=None)


@dataclass(frozen=True)
class Variant:
    """A way to explain a recording.

    Attributes:
        title: The name in the tables.
        timeline: A function that returns what is left of a recording's timeline.
        by_speed: The function that calibrates the program of a timeline.
    """

    title: str
    timeline: Callable[[Timeline], Timeline] = lambda timeline: timeline
    by_speed: Callable[..., Calibrated] = calibrate.by_speed


VARIANTS = (
    Variant("every mechanism"),
    Variant("not calibrated", by_speed=not_calibrated),
    Variant("no plain steps", without_plain),
)


@dataclass(frozen=True)
class Row:
    """What a variant says of a recording. Errors are percentage points of the measured step.

    Attributes:
        step: The error of the step.
        after: The error of the step as a CUDA graph.
        gain: The error of what the graph saves.
        bound_by: The verdict.
        findings: The rules of the findings that have a gain.
        other_gains_ms: The gains of all other findings, in ms.
    """

    step: float
    after: float
    gain: float
    bound_by: str
    findings: str
    other_gains_ms: tuple[float, ...]


def row(timeline: Timeline, turns: dict[str, list[float]], plain_ms: float | None, variant: Variant) -> Row:
    """Explains a recording in one variant, and compares the step and the gain of a CUDA graph with
    the steps that were measured by turns.

    Args:
        timeline: The recording.
        turns: The ms of the steps as they are ("before") and as a CUDA graph ("after").
        plain_ms: The plain step time; None to take that of the recording.
        variant: The variant.
    """
    plain_ns = None if plain_ms is None else round(plain_ms * _MS)
    with mock.patch.object(model_module, "by_speed", variant.by_speed):
        result = explain(variant.timeline(timeline), plain_step_ns=plain_ns).result
    assert result.replay is not None
    before, after = turns["before"], turns["after"]
    measured, mended = statistics.median(before), statistics.median(after)
    gained = statistics.median(np.subtract(before, after).tolist())
    gains = {finding.edit or "": finding.gain_ns / _MS for finding in result.findings if finding.gain_ns}
    gain = next((ms for edit, ms in gains.items() if edit.startswith("graph")), 0.0)
    step = result.replay.undistorted_mean_step_ns / _MS
    return Row(
        100 * (step / measured - 1),
        100 * (step - gain - mended) / measured,
        100 * (gain - gained) / measured,
        result.verdict.bound_by,
        " ".join(finding.rule for finding in result.findings if finding.gain_ns),
        tuple(ms for edit, ms in gains.items() if not edit.startswith("graph")),
    )


def of_recordings() -> Iterator[str]:
    """Yields the lines of two tables: for each variant, the errors on each recording, and the
    median of their sizes.
    """
    timelines, measured = {}, {}
    for path in sorted(RECORDED.glob("*.trace.json.gz")):
        name = path.name.partition("-")[0]
        told = json.loads(path.with_name(f"{name}-0.turns.json").read_text())
        timelines[name] = load(path)
        measured[name] = {"before": told["before_ms"], "after": told["after_ms"]["graph"]}
    for title, in_turns in (("as recorded", False), ("as in the turns", True)):
        yield f"plain step time {title}; points of the measured step, by recording, and the median of their sizes"
        yield f"  {'':36}{'':6}" + "".join(f"{name[:11]:>12}" for name in timelines) + f"{'median':>9}"
        asked = {name: statistics.median(measured[name]["before"]) if in_turns else None for name in timelines}
        reference: list[Row] = []
        for variant in VARIANTS:
            if in_turns and variant.timeline(timelines["vit_infer"]).meta.plain_step_ns is None:
                continue
            rows = [row(timelines[name], measured[name], asked[name], variant) for name in timelines]
            reference = reference or rows
            for which in ("step", "after", "gain"):
                errors = [getattr(each, which) for each in rows]
                cells = "".join(f"{error:>+12.1f}" for error in errors)
                middle = statistics.median(map(abs, errors))
                yield f"  {variant.title if which == 'step' else '':36}{which:6}{cells}{middle:>9.1f}"
            same = sum(one.bound_by == other.bound_by for one, other in zip(rows, reference, strict=True))
            ranked = sum(one.findings == other.findings for one, other in zip(rows, reference, strict=True))
            yield f"  {'':36}verdicts as with every mechanism: {same} of {len(rows)}, findings: {ranked}"
            others = " | ".join(" ".join(f"{ms:.3f}" for ms in each.other_gains_ms) for each in rows)
            yield f"  {'':36}other gains, ms: {others}"
        yield ""


def stretch(
    steps: int, host_ms: float, device_ms: float, wait_every: int, ahead: int, pauses: set[int], pause_ms: float
) -> Plain:
    """Simulates a loop, and returns its steps as if they had been timed.

    Args:
        steps: The number of steps.
        host_ms: How long the host takes for a step.
        device_ms: How long the device takes for a step.
        wait_every: After so many steps, the host waits for the device.
        ahead: How many steps the host may be ahead of the device.
        pauses: The steps in which everything pauses.
        pause_ms: How long a pause takes.
    """
    now, free, done = 0.0, 0.0, [0.0] * (ahead + 1)
    marks, reached = [], []
    for number in range(-50, steps + 1):
        now = max(now + host_ms, done[-ahead - 1])
        free = max(free, now) + device_ms
        done.append(free)
        if number % wait_every == 0:
            now = free
        if number in pauses:
            now = free = max(now, free) + pause_ms
        if number >= 0:
            marks.append(round(now * _MS))
            reached.append(max(now, free) * _MS)
    of_device = (reached[-1] - reached[0]) / steps
    return Plain("before", steps, (marks[-1] - marks[0]) / steps, of_device, tuple(marks))


def of_pauses() -> Iterator[str]:
    """Yields the lines of a table: how far off plain step times are, if pauses are left out and if
    nothing is.
    """
    drawn = random.Random(1)
    errors: dict[str, dict[str, list[float]]] = {}
    for _ in range(_CASES):
        host_ms, device_ms = (10 ** drawn.uniform(-0.3, 1.7) for _ in range(2))
        step_ms = max(host_ms, device_ms)
        steps = max(6, min(200, int(300 / step_ms)))
        loop = (steps, host_ms, device_ms, drawn.choice([1, 1, 4, 10, 25, 50, 10**6]), drawn.choice([2, 3, 5, 20]))
        pauses = {drawn.randrange(1, steps) for _ in range(drawn.choice([0, 0, 0, 1, 2]))}
        pause_ms = step_ms * 10 ** drawn.uniform(0.7, 2.7)
        paused, true_ns = stretch(*loop, pauses, pause_ms), stretch(*loop, set(), 0.0).device_ns
        assert true_ns is not None and paused.device_ns is not None  # noqa: PT018
        kind = f"{'with' if pauses else 'without'} pauses, bound by the {'host' if host_ms > device_ms else 'device'}"
        recorded = np.full(5, round(step_ms * _MS), np.int64)
        told = {"nothing left out": paused.device_ns}
        told["pauses left out"] = plain_step([paused], recorded, device_ms * _MS).ns
        for title, ns in told.items():
            errors.setdefault(kind, {}).setdefault(title, []).append(100 * abs(ns / true_ns - 1))
    yield f"plain step times of {_CASES:,} simulated loops: errors in percent"
    for kind, by_title in sorted(errors.items()):
        for title, found in sorted(by_title.items()):
            median, p90, p99 = np.percentile(found, (50, 90, 99))
            off = np.mean(np.array(found) > 2)
            yield (
                f"  {kind:38}{title:30}{len(found):>6} median {median:8.2f} p90 {p90:8.1f} p99 {p99:8.1f}"
                f" beyond 2 %: {off:.1%}"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, help="a text file for the tables")
    args = parser.parse_args()
    versions = f"unstall {unstall.__version__}, python {platform.python_version()}, numpy {np.__version__}"
    text = "\n".join([f"{date.today()}: {versions}", "", *of_recordings(), *of_pauses()])
    print(text)
    if args.out:
        args.out.write_text(f"{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
