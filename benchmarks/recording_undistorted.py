"""Without its plain step time, what step time does a recording tell? Of real programs on a GPU.

    python -m benchmarks.recording_undistorted [--recordings 3] [--only resnet-18] [--out FILE] [--traces FOLDER]
    python -m benchmarks.recording_undistorted --sum-up --out benchmarks/results/recording_undistorted_h200.json

Recordings as `unstall run` makes them tell the step time, with the one measured without recording withheld. Steps timed
half a second away may be of a host that is faster or slower by half, so the last lines say how far off those recordings
are in which the host kept its speed (`kept_speed`). Needs a CUDA GPU, torchvision and transformers, and says so where
there is none.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.on_device import measured_on, why_skipped
from benchmarks.recording import timed
from unstall.recording.journal import read

if TYPE_CHECKING:
    from unstall.recording.settings import RecorderName
    from unstall.timeline.columns import Timeline

Row = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--recordings", type=int, default=3, help="by cupti; by torch half as many")
    parser.add_argument("--only", metavar="NAME", default="", help="programs whose name has this in it")
    parser.add_argument("--recorders", nargs="+", choices=("cupti", "torch"), default=["cupti", "torch"])
    parser.add_argument("--out", type=Path, help="where the figures go, as JSON: behind those of the runs that it has")
    parser.add_argument("--sum-up", action="store_true", help="only those runs, of which none is added")
    parser.add_argument("--traces", type=Path, help="a folder for a recording of each program")
    parser.add_argument(
        "--again", action="store_true", help="only undistort those recordings anew, and say how far off"
    )
    args = parser.parse_args(argv)
    if args.again:
        if args.traces is None:
            parser.error("--again needs --traces FOLDER")
        return _again(args.traces)
    if args.sum_up and not (args.out and args.out.exists()):
        parser.error("--sum-up needs --out FILE, with the figures of earlier runs")
    runs: list[Row] = json.loads(args.out.read_text()) if args.out and args.out.exists() else []
    if not args.sum_up:
        if skipped := why_skipped("torchvision", "transformers"):
            print(skipped)
            return 0
        runs.append(_run(args.only, args.recorders, args.recordings, args.traces))
        if args.out:
            args.out.write_text(json.dumps(runs, indent=1) + "\n")
    for recorder in sorted(args.recorders):
        programs = [program for run in runs for program in run["programs"].values()]
        print(summary([row for program in programs for row in program.get(recorder, ())], recorder))
    return 0


def _run(only: str, recorders: Sequence[RecorderName], recordings: int, traces: Path | None) -> Row:
    """Records the programs whose name contains `only`, in this process."""
    from benchmarks.recording_programs import chosen

    run: Row = {**measured_on(), "programs": {}}
    steps = {name: make() for name, make in chosen(only).items()}
    for recorder in sorted(recorders):  # Once torch's profiler has been used, its hold on CUPTI stays: it comes last.
        count = recordings if recorder == "cupti" else max(1, recordings // 2)
        for name, step in steps.items():
            rows = _undistorted(name, step, recorder, count, traces)
            run["programs"].setdefault(name, {})[recorder] = rows
            print("\n".join((f"{name}, from {recorder}:", *(f"  {shown(row)}" for row in rows))), flush=True)
    return run


def _undistorted(
    name: str, step: Callable[[], None], recorder: RecorderName, recordings: int, traces: Path | None
) -> list[Row]:
    """Records a program `recordings` times, and times plain steps for each recording too. Returns a
    row for each: the step time that the recording tells without knowing the plain one, beside that.
    """
    import unstall

    for _ in range(10):
        step()
    # Long enough for what is timed before the window and after it.
    enough = 60 + round(1.5 / timed(step, 4, 1))
    rows = []
    for number in range(recordings):
        with unstall.record(steps=5, warmup=2, recorder=recorder) as recording:
            for _ in range(enough):
                step()
                unstall.step()
        rows.append({**_told(recording.timeline()), **steps_told(read(recording._settings.folder))})
        if traces and not number:
            traces.mkdir(exist_ok=True)
            recording.save(traces / f"{re.sub(r'[^a-z0-9]+', '_', name.lower())}-{recorder}.trace.json.gz")
    return rows


def steps_told(events: Sequence[Row]) -> Row:
    """Returns what the journal of a recording says of single steps, in ms: those of the recording
    window, the first of which warms the recorder up; those timed before and after it; and how long
    it took to start the recorder.
    """
    at = [event["at"] / 1e6 for event in events if event["event"] == "mark"]
    begun = next((event["at"] for event in events if event["event"] == "machine"), None)
    window = next((event["at"] for event in events if event["event"] == "window"), None)
    plain = {
        event["which"]: [each / 1e6 for each in event["marks_ns"]] for event in events if event["event"] == "plain"
    }
    return {
        "start_ms": (window - begun) / 1e6 if begun is not None and window is not None else None,
        "window_ms": [round(each, 3) for each in _between(at)],
        "timed_ms": {which: _spread(_between(marks)) for which, marks in plain.items() if len(marks) > 2},
    }


def kept_speed(row: Row) -> bool:
    """Returns whether the host had the same speed before and after a recording, and an even one.

    That is so if the medians of the steps timed before and after agree to 5 %, and the quartiles of
    both are within 10 % of their medians.
    """
    stretches = list(row["timed_ms"].values())
    if len(stretches) < 2:
        return False
    before, after = (each["median"] for each in stretches)
    even = all(max(1 - each["q1"] / each["median"], each["q3"] / each["median"] - 1) <= 0.1 for each in stretches)
    return even and abs(after / before - 1) <= 0.05


def summary(rows: Sequence[Row], recorder: str) -> str:
    """Returns a text that says how far off the undistorted step times are: of all recordings, and
    of those in which the host kept its speed.
    """
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
    """Returns the step time that a recording tells if its plain step time is withheld, and that
    plain step time, in ns.
    """
    from unstall.diagnose.explain import explain

    plain_ns = timeline.meta.plain_step_ns
    withheld = timeline.with_meta(plain_step_ns=None)
    result = explain(withheld).result
    told_ns = result.replay.undistorted_mean_step_ns if result.replay else None
    return {
        "by": result.replay.undistorted_by if result.replay else None,
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


def shown(row: Row) -> str:
    """Returns the figures of an undistorted recording as text."""
    plain, recorded, told = (
        "?" if row[f"{which}_ns"] is None else f"{row[f'{which}_ns'] / 1e6:.2f}"
        for which in ("plain", "recorded", "undistorted")
    )
    error, taken_out = row["error"], row["taken_out"]
    text = f"plain {plain}, recorded {recorded}, undistorted {told} ms"
    text += f" by {row['by']} ({error:+.1%})" if error is not None else ""
    text += f", taken out {taken_out:.3f}x" if taken_out is not None else ""
    if row.get("window_ms"):
        settling, *steps = (f"{each:.2f}" for each in row["window_ms"])
        timed = (
            f"{which} {each['median']:.2f} ({each['q1']:.2f} to {each['q3']:.2f})"
            for which, each in row["timed_ms"].items()
        )
        text += f"\n    steps {' '.join(steps)}, settling {settling} ms; timed {', '.join(timed)} ms"
        text += f"; the recorder started in {row['start_ms']:.0f} ms" if row["start_ms"] is not None else ""
    return text


if __name__ == "__main__":
    sys.exit(main())
