"""What recording costs, and how well that is taken out again: step times of real programs on a GPU.

    python -m benchmarks.recording [--rounds 5] [--only resnet-18] [--out benchmarks/results/recording_h200.json]

Each round times every way of recording between two stretches without, in one process and in turns; figures are ratios
of the neighbours, as medians with their quartiles. "over" is the stretch behind by the one before. Of `cupti` the steps
of which the device is recorded and those of the host alone are told apart; its own figure is the mean of as many of
both as a window has. Needs a CUDA GPU, torchvision and transformers, and says so where there is none.

Then recordings as `unstall run` makes them tell the step time, with the one measured without recording withheld. What
they take out of a step (recorded over undistorted) stands against the ratio of the rounds: each is of one moment, while
plain steps timed half a second away may be of a host that is faster or slower by half. Last it says how far off those
recordings are in which the host kept its speed (`kept_speed`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.on_device import measured_on, why_skipped
from unstall.record.host_only import TIMES, HostOnly
from unstall.record.journal import Journal, read

if TYPE_CHECKING:
    from unstall.record.settings import RecorderName
    from unstall.timeline import Timeline

Row = dict[str, Any]
CHEAP = ("cupti", "cupti, lines by sys.monitoring")
USUAL = ("torch", "torch.profiler with stacks and shapes")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--rounds", type=int, default=5, help="of the cheap ways, 2 at least; of the others there are half as many"
    )
    parser.add_argument("--only", metavar="NAME", default="", help="programs whose name has this in it")
    parser.add_argument("--recorders", nargs="+", choices=("cupti", "torch"), default=["cupti", "torch"])
    parser.add_argument("--recordings", type=int, default=2, help="by cupti, to be undistorted; by torch half as many")
    parser.add_argument("--out", type=Path, help="where the figures go, as JSON")
    parser.add_argument("--traces", type=Path, help="a folder for a recording of each program")
    parser.add_argument(
        "--again", action="store_true", help="only undistort those recordings anew, and say how far off"
    )
    args = parser.parse_args(argv)
    if args.rounds < 2:
        parser.error("--rounds: quartiles take 2 at least")
    if args.again:
        return _again(args.traces)
    if skipped := why_skipped("torchvision", "transformers"):
        print(skipped)
        return 0
    from benchmarks.recording_programs import PROGRAMS

    result: dict[str, Any] = {**measured_on(), "rounds": args.rounds, "programs": {}}
    chosen = {name: each for name, each in PROGRAMS.items() if args.only.lower() in name.lower()}
    if not chosen:
        parser.error(f"--only {args.only}: it is in none of {', '.join(PROGRAMS)}")
    steps = {name: (make(), count) for name, (make, count) in chosen.items()}
    overheads: dict[str, _Overhead] = {}
    # Once torch's profiler has been used, its hold on CUPTI stays: it comes last.
    passes: tuple[tuple[RecorderName, Sequence[str], int, int], ...] = (
        ("cupti", CHEAP, args.rounds, args.recordings),
        ("torch", USUAL, max(2, args.rounds // 2), max(1, args.recordings // 2)),
    )
    for recorder, ways, rounds, recordings in passes:
        if recorder not in args.recorders:
            continue
        for name, (step, count) in steps.items():
            for _ in range(10):
                step()
            overhead = overheads.setdefault(name, _Overhead(step, count))
            overhead.measure(ways, rounds)
            rows = _undistorted(name, step, recorder, recordings, args.traces)
            figures = result["programs"].setdefault(name, {"undistorted": {}})
            figures["overhead"] = overhead.figures()
            figures["undistorted"][recorder] = rows
            _show(name, figures)
            if args.out:
                args.out.write_text(json.dumps(result, indent=1) + "\n")
    if "cupti" in args.recorders:
        print(windows([each["overhead"]["ratio"]["cupti"]["median"] for each in result["programs"].values()]))
    for recorder in args.recorders:
        print(summary([row for each in result["programs"].values() for row in each["undistorted"][recorder]], recorder))
    return 0


class _Overhead:
    """Step times without recording, and the ratios of those while and after something records."""

    def __init__(self, step: Callable[[], None], steps: int) -> None:
        self._time: Callable[..., float] = lambda times=1: _timed(step, times * steps)
        self._never = [self._time() for _ in range(5)]
        self._plain: list[float] = []
        self._ratios: dict[str, list[float]] = {}
        self._over: dict[str, list[float]] = {}

    def measure(self, ways: Sequence[str], rounds: int) -> None:
        """Each way in turn, between two stretches without recording."""
        for way in list(ways) * rounds:
            before = self._time()
            with recorded(way):
                during = self._time()
            parts = {way: during}
            if way in CHEAP:
                with host_only():
                    alone = self._time(TIMES)
                parts = {way: (during + TIMES * alone) / (1 + TIMES), f"{way}: with the device": during}
                parts |= {f"{way}: the host alone": alone}
            behind = self._time()
            for part, took in parts.items():
                self._ratios.setdefault(part, []).append(2 * took / (before + behind))
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
def recorded(way: str) -> Iterator[None]:
    """What runs within is recorded in one of the ways of CHEAP and USUAL."""
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


@contextmanager
def host_only() -> Iterator[None]:
    """Of what runs within the host alone is recorded. Raises RuntimeError where that cannot be done."""
    with tempfile.TemporaryDirectory() as folder:
        steps = HostOnly(Path(folder))
        if not steps.start(1):
            raise RuntimeError("the driver's calls cannot be timed here")
        try:
            yield
        finally:
            steps.stop(Journal(folder))


def _undistorted(
    name: str, step: Callable[[], None], recorder: RecorderName, recordings: int, traces: Path | None
) -> list[Row]:
    """Recordings in which steps are timed without recording too, and what each tells without knowing that."""
    import unstall

    # Long enough for what is timed before the window and after it.
    enough = 60 + round(1.5 / _timed(step, 4))
    rows = []
    for number in range(recordings):
        with unstall.record(steps=5, warmup=2, recorder=recorder) as recording:
            for _ in range(enough):
                step()
                unstall.step()
        rows.append({**_told(recording.timeline()), **steps_told(read(recording._recorded()))})
        if traces and not number:
            traces.mkdir(exist_ok=True)
            recording.save(traces / f"{re.sub(r'[^a-z0-9]+', '_', name.lower())}-{recorder}.trace.json.gz")
    return rows


def steps_told(events: Sequence[Row]) -> Row:
    """What a recording's journal says of single steps, in ms: those of the window, first the one in which the recorder
    settles; those timed before and after it; and what it took to start the recorder."""
    at = [event["at"] / 1e6 for event in events if event["event"] == "mark"]
    begun = next((event["at"] for event in events if event["event"] == "machine"), None)
    window = next((event["at"] for event in events if event["event"] == "window"), None)
    told = ([each / 1e6 for each in event["marks_ns"]] for event in events if event["event"] == "host_only")
    plain = {
        event["which"]: [each / 1e6 for each in event["marks_ns"]] for event in events if event["event"] == "plain"
    }
    return {
        "start_ms": (window - begun) / 1e6 if begun is not None and window is not None else None,
        "window_ms": [round(each, 3) for each in _between(at)],
        "host_only_ms": [round(each, 3) for each in _between(next(told, []))],
        "timed_ms": {which: _spread(_between(marks)) for which, marks in plain.items() if len(marks) > 2},
    }


def kept_speed(row: Row) -> bool:
    """Whether the host had one speed before a recording and after it, and was as even within it.

    Told by the steps that nothing slows down: medians of those timed before and after agree to 5 %, and quartiles of
    both, and of the steps of the host alone, lie within 10 % of their medians. How long the latter are does not count:
    that is what the undistorted step time is made of.
    """
    stretches = list(row["timed_ms"].values())
    if len(stretches) < 2:
        return False
    before, after = (each["median"] for each in stretches)
    # The first step of the host alone settles.
    stretches += [_spread(row["host_only_ms"][1:])] if len(row["host_only_ms"]) > 2 else []
    even = all(max(1 - each["q1"] / each["median"], each["q3"] / each["median"] - 1) <= 0.1 for each in stretches)
    return even and abs(after / before - 1) <= 0.05


def windows(ratios: Sequence[float]) -> str:
    """What a window of `cupti` costs, of the ratio of each program."""
    return f"a window of cupti: {statistics.median(ratios):.3f}x in the median of programs, {max(ratios):.3f}x at worst"


def summary(rows: Sequence[Row], recorder: str) -> str:
    """How far undistorted step times are off, of all recordings and of those in which the host kept its speed."""
    known = [row for row in rows if row["error"] is not None]
    errors, kept = ([abs(row["error"]) for row in chosen] for chosen in (known, filter(kept_speed, known)))
    told = f"{recorder}: {len(errors)} of {len(rows)} recordings tell a step time"
    if errors:
        told += f", off by up to {max(errors):.1%}"
    if kept:
        told += f"; in {len(kept)} the host kept its speed: off by up to {max(kept):.1%}"
        told += f", {statistics.median(kept):.1%} in the median"
    return told


def _between(times: Sequence[float]) -> list[float]:
    return [end - start for start, end in itertools.pairwise(times)]


def _told(timeline: Timeline) -> Row:
    """The step time that a recording tells with its plain one withheld, in ns, against that; and without the steps of
    the host alone, by the usual cost."""
    from unstall.diagnose.explain import explain
    from unstall.timeline import HostTimes

    plain_ns = timeline.meta.plain_step_ns
    withheld = replace(timeline, meta=replace(timeline.meta, plain_step_ns=None))
    result, usual = explain(withheld).result, explain(replace(withheld, host_times=HostTimes.none())).result
    told_ns = result.replay.undistorted_mean_step_ns if result.replay else None
    usual_ns = usual.replay.undistorted_mean_step_ns if usual.replay else None
    return {
        "by": result.replay.undistorted_by if result.replay else None,
        "usual_error": usual_ns / plain_ns - 1 if plain_ns and usual_ns else None,
        "plain_ns": plain_ns,
        "recorded_ns": result.steps.mean_ns,
        "undistorted_ns": told_ns,
        "error": told_ns / plain_ns - 1 if plain_ns and told_ns else None,
        "taken_out": result.steps.mean_ns / told_ns if told_ns else None,
    }


def _again(traces: Path) -> int:
    import unstall

    for path in sorted(traces.glob("*.trace.json.gz")):
        row = _told(unstall.load(path))
        print(f"{path.name}: {shown(row)}")
    return 0


def _spread(values: list[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": middle, "q1": low, "q3": high, "most": max(values)}


def _show(name: str, figures: dict[str, Any]) -> None:
    overhead = figures["overhead"]
    never, plain = (overhead[which]["median"] for which in ("never_recorded_ms", "plain_ms"))
    print(f"{name}: {plain:.2f} ms a step ({never:.2f} before anything was recorded)")
    for way, ratio in overhead["ratio"].items():
        over = overhead["over"].get(way)
        behind = f"; over: {over['median']:.3f}x ({over['q1']:.3f} to {over['q3']:.3f})" if over else ""
        print(f"  {way:50s} {ratio['median']:.3f}x ({ratio['q1']:.3f} to {ratio['q3']:.3f}){behind}")
    for recorder, rows in figures["undistorted"].items():
        for row in rows:
            print(f"  from {recorder}: {shown(row)}")
    sys.stdout.flush()


def shown(row: Row) -> str:
    """One undistorted recording, for people."""
    plain, recorded, told = (
        "?" if row[f"{which}_ns"] is None else f"{row[f'{which}_ns'] / 1e6:.2f}"
        for which in ("plain", "recorded", "undistorted")
    )
    error, taken_out = row["error"], row["taken_out"]
    text = f"plain {plain}, recorded {recorded}, undistorted {told} ms"
    text += f" by {row['by']} ({error:+.1%})" if error is not None else ""
    text += f", by the usual cost {row['usual_error']:+.1%}" if row["usual_error"] is not None else ""
    text += f", taken out {taken_out:.3f}x" if taken_out is not None else ""
    if row.get("window_ms"):
        settling, *steps = (f"{each:.2f}" for each in row["window_ms"])
        timed = (
            f"{which} {each['median']:.2f} ({each['q1']:.2f} to {each['q3']:.2f})"
            for which, each in row["timed_ms"].items()
        )
        text += f"\n    steps {' '.join(steps)}, settling {settling} ms; timed {', '.join(timed)} ms"
        text += f"; the recorder started in {row['start_ms']:.0f} ms" if row["start_ms"] is not None else ""
    if row.get("host_only_ms"):
        settling, *steps = (f"{each:.2f}" for each in row["host_only_ms"])
        text += f"\n    of the host alone {' '.join(steps)}, settling {settling} ms"
    return text


if __name__ == "__main__":
    sys.exit(main())
