"""What `unstall run` promised of each program's first finding, and what mending it by hand gave in the same process.

python examples/transformers/measure.py [NAME…] [--budget 150] [--out FILE] [--traces FOLDER]
python examples/transformers/measure.py --remake --traces FOLDER

Each run of a program is a process: `unstall run` records a few of its steps as written, and it goes on to time steps as
written and mended in turns (`turns.py`). Programs take turns too, until no further run fits into the budget: first
those of which there is no run yet in which the host kept its speed, from before the recording to the turns.

A promise is of a step as long as it was around the recording. Where the host has another speed in the turns, that alone
makes it wrong. It kept its speed if a step as written took as long before the recording, after it and in the turns, to
15 % of what mending gained; and of all runs the report is asked once more, of a step as long as it was in the turns
("again").
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import unstall

NAMES = ("llama_generate", "vit_infer_bf16", "gpt2_train", "bert_train", "gpt2_generate", "vit_infer")
_PROGRAM = Path(__file__).parent / "programs.py"
_LONGEST_S = 120.0
_TRACE, _TURNS = ".trace.json.gz", ".turns.json"
_MOST_NAMES, _LONGEST_NAME = 8, 120
_KEPT = 0.15  # of what mending gained: how far three times of a step as written may be apart

Run = dict[str, Any]
"""One process: what its recording promised (`said_…`) and what its turns gave (`got_…`), in ms a step."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", default=list(NAMES))
    parser.add_argument("--budget", type=float, default=150.0, help="seconds, for all; each program runs once at least")
    parser.add_argument("--turns", type=float, default=6.0, help="seconds of turns in each run")
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--traces", type=Path, help="a folder for the recording of each run, and the times of its turns"
    )
    parser.add_argument(
        "--remake", action="store_true", help="what is said of those recordings now, without running any"
    )
    args = parser.parse_args()
    if args.remake:
        if args.traces is None:
            parser.error("--remake needs --traces FOLDER")
        runs = remade(args.traces)
        write(runs, {}, args.out)
        return 0 if runs else 1
    begun = time.monotonic()
    runs: dict[str, list[Run]] = {name: [] for name in args.names}
    left_out: dict[str, list[str]] = {}
    took_s = dict.fromkeys(args.names, 0.0)
    waiting = list(args.names)
    while waiting:
        name = waiting.pop(0)
        if took_s[name] and time.monotonic() - begun + took_s[name] > args.budget:
            continue
        started = time.monotonic()
        try:
            # Torch's profiler slows what comes after it: once, and at the end of a run.
            kept = args.traces and args.traces / f"{name}-{len(runs[name])}"
            runs[name].append(one_run(name, args.turns, kept, work=not runs[name]))
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            print(f"{name}: {error}\n{getattr(error, 'stderr', None) or ''}", flush=True)
            left_out.setdefault(name, []).append(str(error).partition("\n")[0])
        else:
            print(f"{name}: {line(runs[name][-1])}", flush=True)
            waiting.append(name)
            waiting.sort(key=lambda each: sum(run["kept_speed"] for run in runs[each]))
        took_s[name] = time.monotonic() - started
        write(runs, left_out, args.out, say=False)
    write(runs, left_out, args.out)
    return 0 if all(runs.values()) else 1


def write(runs: dict[str, list[Run]], left_out: dict[str, list[str]], out: Path | None, *, say: bool = True) -> None:
    """To a file as JSON, if there is one, and for people; `left_out` says why other runs of a program do not count."""
    if out:
        out.write_text(json.dumps({**results(runs), **({"left_out": left_out} if left_out else {})}, indent=1) + "\n")
    if not say:
        return
    for name, of_it in runs.items():
        if not of_it:
            continue
        off = ", ".join(f"{run['error']['gain_ms']:+.1%}{'' if run['kept_speed'] else ' (unsteady)'}" for run in of_it)
        later = ", ".join(f"{run['again']['error']['gain_ms']:+.1%}" for run in of_it)
        middle = statistics.median(run["error"]["gain_ms"] for run in of_it)
        print(f"{name}: {len(of_it)} runs; gains off by {middle:+.1%} in the median: {off}")
        print(f"{' ' * len(name)}  of steps as in the turns by {later}")
    for name, why in left_out.items():
        print(f"{name}: {len(why)} runs do not count: {'; '.join(sorted(set(why)))}")


def one_run(name: str, turns_s: float, kept: Path | None = None, *, work: bool) -> Run:
    """Record and time one process; `kept`, with two endings more, is where its trace and its turns stay.

    Raises CalledProcessError where it failed, ValueError where it was not recorded.
    """
    with tempfile.TemporaryDirectory() as folder:
        report, trace = Path(folder, "report.json"), Path(folder, "run.trace.json.gz")
        command = [sys.executable, "-m", "unstall", "run", "-q", "-o", str(report), "--trace", str(trace)]
        command += [str(_PROGRAM), name, "--turns", str(turns_s), *(["--work"] if work else [])]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_LONGEST_S)
        for warning in (said for said in done.stderr.splitlines() if "Warning" in said):
            print(f"{name}: {warning[:300]}")
        if not report.exists():
            raise ValueError(f"it was not recorded\n{done.stderr}")
        turns: Run = json.loads(done.stdout.splitlines()[-1])
        run = held(trace, json.loads(report.read_text()), turns)
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.with_name(f"{kept.name}{_TRACE}").write_bytes(trace.read_bytes())
            kept.with_name(f"{kept.name}{_TURNS}").write_text(json.dumps(turns))
        return run


def remade(folder: Path) -> dict[str, list[Run]]:
    """The runs that are kept there, in their order, with what the unstall of today says of them."""
    runs: dict[str, list[Run]] = {}
    for trace in sorted(folder.glob(f"*{_TRACE}"), key=lambda each: (len(each.name), each.name)):
        kept = trace.name.removesuffix(_TRACE)
        with tempfile.TemporaryDirectory() as reports:
            report = Path(reports, "report.json")
            unstall.explain(trace).save(report)
            told = json.loads(report.read_text())
        turns = json.loads(trace.with_name(f"{kept}{_TURNS}").read_text())
        runs.setdefault(kept.rpartition("-")[0], []).append(held(trace, told, turns))
    return runs


def held(trace: Path, report: Run, turns: Run) -> Run:
    """What a `report` promises, and what it would of a step as in the turns, against the turns."""
    told: Run = json.loads(gzip.decompress(trace.read_bytes()))["unstall"]
    run = compared(report, told.get("plain", {}), turns)
    return run | {"again": again(trace, run)}


def again(trace: Path, run: Run) -> Run:
    """What the same finding is said to gain of a step as long as it was in the turns, and how far off that is.

    Where there is no such finding then, nothing is said to be gained.
    """
    told = unstall.explain(trace, plain_step_ns=round(1e6 * run["got"]["before_ms"]["median"])).result
    before_ns = told.replay.undistorted_mean_step_ns if told.replay else 0
    gain_ns = next((each.gain_ns for each in told.findings if each.edit == run["edit"] and each.gain_ns), 0)
    said = {"gain_ms": gain_ns / 1e6, "after_ms": (before_ns - gain_ns) / 1e6}
    return {**said, "error": {what: said[what] / run["got"][what]["median"] - 1 for what in said}}


def compared(report: dict[str, Any], plain: dict[str, Any], turns: dict[str, Any]) -> Run:
    """A report's first finding, with the `plain` stretches that its recording timed, against the `turns` behind it.

    Raises ValueError where the recording had not ended before the turns began, has no finding, or one whose mending was
    not timed.
    """
    if "after" not in plain:
        raise ValueError("the recording was still under way when the turns began")
    first = next((each for each in report["findings"] if each["gain_ns"]), None)
    if first is None:
        raise ValueError("the report has no finding whose mending gains anything")
    replay, steps = report["replay"], report["steps"]
    where = first["where"]
    said_before, gain = replay["undistorted_mean_step_ns"] / 1e6, first["gain_ns"] / 1e6
    said = {"before_ms": said_before, "after_ms": said_before - gain, "gain_ms": gain}
    way = first["edit"].partition(":")[0]
    if way not in turns["after_ms"]:
        raise ValueError(f"its first finding is mended by {way}, which was not timed")
    before, after = turns["before_ms"], turns["after_ms"][way]
    pairs = [(one - other, one / other) for one, other in zip(before, after, strict=True)]
    got = {
        "before_ms": spread(before),
        "after_ms": spread(after),
        "gain_ms": spread([gained for gained, _ in pairs]),
        "ratio": spread([ratio for _, ratio in pairs]),
    }
    said["ratio"] = said["before_ms"] / said["after_ms"]
    plain_ms = {which: (each["device_ns"] or each["host_ns"]) / 1e6 for which, each in plain.items()}
    speeds = [*plain_ms.values(), got["before_ms"]["median"]]
    return {
        "title": first["title"],
        "where": f"{where['file']}:{where['line']} {where['function']}",
        "edit": first["edit"],
        "bound_by": report["verdict"]["bound_by"],
        "device": report["source"]["device"],
        "torch": report["source"]["torch"],
        "recorded_ms": steps["mean_ns"] / 1e6,
        "recorded_busy_ms": sum(report["accounts"]["busy_ns"].values()) / steps["count"] / 1e6,
        "plain_by": replay["undistorted_by"],
        "plain_ms": plain_ms,
        "kept_speed": max(speeds) - min(speeds) <= _KEPT * got["gain_ms"]["median"],
        "said": said,
        "got": got,
        "turns": len(before),
        # How far what was said is off what was got.
        "error": {what: said[what] / got[what]["median"] - 1 for what in said},
        **({"work": compared_work(turns["work"])} if "work" in turns else {}),
    }


def compared_work(work: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    """A step's ops on the device and their milliseconds, as written and mended; `more`: in what names they differ most.

    An edit replays the recorded ops: those that mending adds or takes away are no part of what it says.
    """
    written, mended = work["written"], work["graph"]
    more = []
    for name in {**written, **mended}:
        ops, ms = (
            after - before for before, after in zip(*(of.get(name, [0, 0]) for of in (written, mended)), strict=True)
        )
        more.append({"name": name[:_LONGEST_NAME], "ops": ops, "ms": ms})
    more.sort(key=lambda each: -abs(each["ms"]))
    total = {
        which: {"ops": sum(ops for ops, _ in of.values()), "ms": sum(ms for _, ms in of.values())}
        for which, of in work.items()
    }
    return {**total, "more": more[:_MOST_NAMES]}


def spread(values: Sequence[float]) -> dict[str, float]:
    """The median, the quartiles and the extremes."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return {"median": middle, "q1": low, "q3": high, "least": min(values), "most": max(values)}


def summary(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Over processes: the median and the extremes of what was said, got, and of how far one was off the other."""
    told: dict[str, list[float]] = {}
    for run in runs:
        for what in ("before_ms", "after_ms", "gain_ms", "ratio"):
            told.setdefault(f"said_{what}", []).append(run["said"][what])
            told.setdefault(f"got_{what}", []).append(run["got"][what]["median"])
            told.setdefault(f"error_{what}", []).append(run["error"][what])
        told.setdefault("again_error_gain_ms", []).append(run["again"]["error"]["gain_ms"])
    return {
        what: {"median": statistics.median(each), "least": min(each), "most": max(each)} for what, each in told.items()
    }


def results(runs: dict[str, list[Run]]) -> dict[str, Any]:
    """All that was measured, with what is the same of all runs but once."""
    once = ("device", "torch")
    return {
        name: {
            **{what: of_it[-1][what] for what in once},
            "summary": summary(of_it),
            "runs": [{what: value for what, value in run.items() if what not in once} for run in of_it],
        }
        for name, of_it in runs.items()
        if of_it
    }


def line(run: Run) -> str:
    """One run, for people."""
    said, got, error = run["said"], run["got"], run["error"]
    stretches = " and ".join(f"{which} {ms:.2f}" for which, ms in run["plain_ms"].items())
    work = "".join(
        f"; {which} {run['work'][which]['ops']:.0f} ops of {run['work'][which]['ms']:.2f} ms"
        for which in ("written", "graph")
        if "work" in run
    )
    return (
        f"{run['edit']}, bound by {run['bound_by']}; plain {stretches}, recorded {run['recorded_ms']:.2f} ms"
        f"{work}\n"
        f"  said {said['before_ms']:.2f} -> {said['after_ms']:.2f} ms ({said['ratio']:.2f}x);"
        f" got {got['before_ms']['median']:.2f} ({got['before_ms']['q1']:.2f} to {got['before_ms']['q3']:.2f})"
        f" -> {got['after_ms']['median']:.2f} ({got['after_ms']['q1']:.2f} to {got['after_ms']['q3']:.2f}) ms"
        f" ({got['ratio']['median']:.2f}x), {run['turns']} turns;"
        f"{'' if run['kept_speed'] else ' the host changed its speed;'}"
        f" off: gain {error['gain_ms']:+.1%}, after {error['after_ms']:+.1%}, ratio {error['ratio']:+.1%}"
        f"; of a step as in the turns: gain {run['again']['error']['gain_ms']:+.1%}"
    )


if __name__ == "__main__":
    sys.exit(main())
