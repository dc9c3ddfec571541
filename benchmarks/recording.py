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
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unstall.record.settings import RecorderName
    from unstall.timeline import Timeline

Row = dict[str, Any]
CHEAP = ("cupti", "cupti, lines by sys.monitoring")
USUAL = ("torch", "torch.profiler with stacks and shapes")
_RECORDINGS: dict[RecorderName, int] = {"cupti": 2, "torch": 1}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="of the cheap ways; of the others there are half as many")
    parser.add_argument("--out", type=Path, help="where the figures go, as JSON")
    parser.add_argument("--traces", type=Path, help="a folder for a recording of each program")
    parser.add_argument(
        "--again", action="store_true", help="only undistort those recordings anew, and say how far off"
    )
    args = parser.parse_args(argv)
    if args.again:
        return _again(args.traces)
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
    steps = {name: (make(), count) for name, (make, count) in PROGRAMS.items()}
    overheads: dict[str, _Overhead] = {}
    # Once torch's profiler has been used, its hold on CUPTI stays: it comes last.
    passes: tuple[tuple[RecorderName, Sequence[str], int], ...] = (
        ("cupti", CHEAP, args.rounds),
        ("torch", USUAL, max(2, args.rounds // 2)),
    )
    for recorder, ways, rounds in passes:
        for name, (step, count) in steps.items():
            for _ in range(10):
                step()
            overhead = overheads.setdefault(name, _Overhead(step, count))
            overhead.measure(ways, rounds)
            rows = _undistorted(name, step, recorder, args.traces)
            figures = result["programs"].setdefault(name, {"undistorted": {}})
            figures["overhead"] = overhead.figures()
            figures["undistorted"][recorder] = rows
            _show(name, figures)
            if args.out:
                args.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


class _Overhead:
    """Step times without recording, and the ratios of those while and after something records."""

    def __init__(self, step: Callable[[], None], steps: int) -> None:
        self._time: Callable[[], float] = lambda: _timed(step, steps)
        self._never = [self._time() for _ in range(5)]
        self._plain: list[float] = []
        self._ratios: dict[str, list[float]] = {}
        self._over: dict[str, list[float]] = {}

    def measure(self, ways: Sequence[str], rounds: int) -> None:
        """Each way in turn, between two stretches without recording."""
        for way in list(ways) * rounds:
            before = self._time()
            with _recorded(way):
                recorded = self._time()
            behind = self._time()
            self._ratios.setdefault(way, []).append(2 * recorded / (before + behind))
            self._over.setdefault(way, []).append(behind / before)
            self._plain += [before, behind]

    def figures(self) -> dict[str, Any]:
        return {
            "never_recorded_ms": _spread([1e3 * each for each in self._never]),
            "plain_ms": _spread([1e3 * each for each in self._plain]),
            "ratio": {way: _spread(each) for way, each in self._ratios.items()},
            "over": {way: _spread(each) for way, each in self._over.items()},
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


def _undistorted(name: str, step: Callable[[], None], recorder: RecorderName, traces: Path | None) -> list[Row]:
    """Recordings in which steps are timed without recording too, and what each tells without knowing that."""
    import unstall

    # Long enough for what is timed before the window and after it.
    enough = 30 + round(1.5 / _timed(step, 4))
    rows = []
    for number in range(_RECORDINGS[recorder]):
        with unstall.record(steps=5, warmup=2, recorder=recorder) as recording:
            for _ in range(enough):
                step()
                unstall.step()
        rows.append(_told(recording.timeline()))
        if traces and not number:
            traces.mkdir(exist_ok=True)
            recording.save(traces / f"{re.sub(r'[^a-z0-9]+', '_', name.lower())}-{recorder}.trace.json.gz")
    return rows


def _told(timeline: Timeline) -> Row:
    """The step time that a recording tells with its plain one withheld, in ns, against that."""
    from unstall.diagnose.explain import explain

    plain_ns = timeline.meta.plain_step_ns
    result = explain(replace(timeline, meta=replace(timeline.meta, plain_step_ns=None))).result
    told_ns = result.replay.undistorted_mean_step_ns if result.replay else None
    error = told_ns / plain_ns - 1 if plain_ns and told_ns else None
    return {"plain_ns": plain_ns, "recorded_ns": result.steps.mean_ns, "undistorted_ns": told_ns, "error": error}


def _again(traces: Path) -> int:
    import unstall

    for path in sorted(traces.glob("*.trace.json.gz")):
        row = _told(unstall.load(path))
        print(f"{path.name}: {row}")
    return 0


def _spread(values: list[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": middle, "q1": low, "q3": high, "most": max(values)}


def _show(name: str, figures: dict[str, Any]) -> None:
    overhead = figures["overhead"]
    never, plain = (overhead[which]["median"] for which in ("never_recorded_ms", "plain_ms"))
    print(f"{name}: {plain:.2f} ms a step ({never:.2f} before anything was recorded)")
    for way, ratio in overhead["ratio"].items():
        over = overhead["over"][way]
        print(
            f"  {way:38s} {ratio['median']:.3f}x ({ratio['q1']:.3f} to {ratio['q3']:.3f});"
            f" over: {over['median']:.3f}x ({over['q1']:.3f} to {over['q3']:.3f})"
        )
    for recorder, rows in figures["undistorted"].items():
        for row in rows:
            print(f"  undistorted from {recorder}: {row}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
