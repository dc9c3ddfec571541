"""What recording costs, and how well that is taken out again: step times of real programs on a GPU.

    python -m benchmarks.recording [--rounds 5] [--out benchmarks/results/recording_h200.json]

Each round times every way of recording between two stretches without, in one process and in turns; figures are ratios
of the neighbours, as medians with their quartiles. "over" is the stretch behind by the one before. Needs a CUDA GPU,
torchvision and transformers, and says so where there is none.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unstall.record.settings import RecorderName

_RUNS = 3
WAYS = ("cupti", "cupti, lines by sys.monitoring", "torch", "torch.profiler with stacks and shapes")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(argv)
    missing = [name for name in ("torch", "torchvision", "transformers") if find_spec(name) is None]
    if missing:
        print(f"skipped: it needs {', '.join(missing)}")
        return 0
    import torch

    if not torch.cuda.is_available():
        print("skipped: there is no CUDA device")
        return 0
    from benchmarks.recording_programs import PROGRAMS

    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
        "programs": {},
    }
    for name, (make, steps) in PROGRAMS.items():
        step = make()
        for _ in range(10):
            step()
        figures = {"overhead": _overheads(step, steps, args.rounds), "undistorted": _undistorted(step, steps)}
        result["programs"][name] = figures
        _show(name, figures)
        if args.out:
            args.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def _overheads(step: Callable[[], None], steps: int, rounds: int) -> dict[str, Any]:
    never = [_timed(step, steps) for _ in range(5)]
    ratios: dict[str, list[float]] = {way: [] for way in WAYS}
    after: dict[str, list[float]] = {way: [] for way in WAYS}
    plain: list[float] = []
    for _ in range(rounds):
        for way in WAYS:
            before = _timed(step, steps)
            with _recorded(way):
                recorded = _timed(step, steps)
            behind = _timed(step, steps)
            ratios[way].append(2 * recorded / (before + behind))
            after[way].append(behind / before)
            plain += [before, behind]
    return {
        "never_recorded_ms": _spread([1e3 * each for each in never]),
        "plain_ms": _spread([1e3 * each for each in plain]),
        "ratio": {way: _spread(each) for way, each in ratios.items()},
        "over": {way: _spread(each) for way, each in after.items()},
    }


def _timed(step: Callable[[], None], steps: int) -> float:
    """Seconds a step: so many in a row, after one that is not timed."""
    import torch

    step()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / steps


@contextmanager
def _recorded(way: str) -> Iterator[None]:
    import torch

    if way.startswith("torch.profiler"):
        with torch.profiler.profile(with_stack=True, record_shapes=True):
            yield
        return
    from unstall.record.choose import choose
    from unstall.record.settings import Settings

    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(folder, "torch" if way == "torch" else "cupti")
        if "monitoring" in way:
            settings = replace(settings, lines="monitoring")
        recorder, clock = choose(settings)
        if clock is not None:
            clock.start()
        recorder.start()
        try:
            yield
        finally:
            torch.cuda.synchronize()
            recorder.stop()
            if clock is not None:
                clock.stop()


def _undistorted(step: Callable[[], None], steps: int) -> dict[str, Any]:
    """The step time that a recording alone tells, against the one timed in the same run without recording."""
    import unstall
    from unstall.diagnose.explain import explain

    found: dict[str, Any] = {}
    recorders: tuple[RecorderName, ...] = ("cupti", "torch")
    for recorder in recorders:
        errors, rows = [], []
        # Long enough for what is timed before the window and after it, half a second each.
        enough = 40 + round(2.0 / _timed(step, steps))
        for _ in range(_RUNS):
            with unstall.record(steps=5, warmup=2, recorder=recorder) as recording:
                for _ in range(enough):
                    step()
                    unstall.step()
            timeline = recording.timeline()
            plain_ns = timeline.meta.plain_step_ns
            report = explain(replace(timeline, meta=replace(timeline.meta, plain_step_ns=None)))
            told_ns = report.result.replay.undistorted_mean_step_ns if report.result.replay else None
            if plain_ns and told_ns:
                errors.append(told_ns / plain_ns - 1)
                recorded_ns = report.result.steps.mean_ns
                rows.append({"plain_ns": plain_ns, "recorded_ns": recorded_ns, "undistorted_ns": told_ns})
        found[recorder] = {"error": errors, "runs": rows}
    return found


def _spread(values: list[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return {"median": middle, "q1": low, "q3": high, "most": max(values)}


def _show(name: str, figures: dict[str, Any]) -> None:
    overhead = figures["overhead"]
    never, plain = (overhead[which]["median"] for which in ("never_recorded_ms", "plain_ms"))
    print(f"{name}: {plain:.2f} ms a step ({never:.2f} before anything was recorded)")
    for way in WAYS:
        ratio, over = overhead["ratio"][way], overhead["over"][way]
        print(
            f"  {way:42s} {ratio['median']:.3f}x ({ratio['q1']:.3f} to {ratio['q3']:.3f});"
            f" over: {over['median']:.3f}x ({over['q1']:.3f} to {over['q3']:.3f})"
        )
    for recorder, found in figures["undistorted"].items():
        errors = ", ".join(f"{error:+.1%}" for error in found["error"])
        print(f"  undistorted from {recorder}: {errors} {found['runs'][:1]}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
