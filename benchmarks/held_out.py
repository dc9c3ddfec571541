"""What the benchmarks of held-out programs share: each program runs in a process of its own, on a real GPU or on a
virtual one, and its figures stand beside those of real machines.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.on_device import agreement, comparing, machines, measured_on, on_virtual, step_ms, why_skipped

_STEPS, _ROUNDS, _PROFILED = 8, 5, 3
_LIMITS = {"first": 0.35, "step": 0.35, "device": 0.15, "kernels": 0, "waits": 0, "allocated": 0.01, "reserved": 0.1}
Step = Callable[[], object]


def compared(
    about: str | None, module: str, programs: Mapping[str, Callable[[], Step]], by_values: Collection[str] = ()
) -> int:
    """Runs the command line of a benchmark: measures programs, and compares them with real machines.

    Args:
        about: The documentation of the benchmark.
        module: The module that calls this, by which a program is run in a process of its own.
        programs: By name, a function that makes a program and returns its step.
        by_values: The names of the programs whose kernels depend on values. The virtual GPU computes them.

    Returns:
        The exit code.
    """
    parser = comparing(about)
    parser.add_argument("--gpu", help="the virtual GPU; without it, the real one")
    parser.add_argument("--one", help="only this program, in this process")
    parser.add_argument("--traces", type=Path, help="a folder for a trace of a few steps of each program")
    parser.add_argument("names", nargs="*", help="programs; without any, all")
    args = parser.parse_args()
    if args.one:
        figures = figures_of(programs[args.one], args.traces and args.traces / f"{args.one}.json.gz")
        print(json.dumps(measured_on() | {"figures": figures}))
        return 0
    if not args.gpu and (skipped := why_skipped()):
        print(skipped)
        return 0
    if args.traces:
        args.traces.mkdir(parents=True, exist_ok=True)
    real = [each["programs"] for each in machines(args.against)]
    found: dict[str, dict[str, float]] = {}
    for name in args.names or programs:
        program = ["-m", module, "--one", name, *(["--traces", str(args.traces)] if args.traces else [])]
        numerics = "real" if name in by_values else "skip"
        command = on_virtual(args.gpu, *program, numerics=numerics) if args.gpu else [sys.executable, *program]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        if said.returncode:
            print(f"{name:12} failed\n{said.stderr[-2000:]}", flush=True)
            continue
        told: dict[str, Any] = json.loads(said.stdout.splitlines()[-1])
        found[name] = figures = told.pop("figures")
        line = "  ".join(
            f"{label} {value:9,.2f}{_ratios(value, name, label, real)}" for label, value in figures.items()
        )
        print(f"{name:12} {line}", flush=True)
        if args.out:  # after each: a machine may be taken back
            args.out.write_text(json.dumps(told | {"programs": found}, indent=1) + "\n")
    for label, limit in _LIMITS.items():
        its = [{name: of[name][label] for name in of if label in of[name]} for of in real]
        if any(its):
            print(f"{label}: {agreement({name: each[label] for name, each in found.items()}, its, limit)}")
    return 0


def _ratios(value: float, name: str, label: str, real: list[dict[str, dict[str, float]]]) -> str:
    """Returns a figure of a program over that of each real machine, in parentheses; "of 0" if that is 0."""
    its = [of[name][label] for of in real if label in of.get(name, {})]
    ratios = [f"{value / of:.2f}" if of else "of 0" for of in its]
    return f" ({' '.join(ratios)})" if ratios else ""


def figures_of(make: Callable[[], Step], trace: Path | None = None) -> dict[str, float]:
    """Returns how long making a program, its first step and a later step take, in ms, and the peaks of allocated and
    of reserved memory, in MiB. Of a later step, returns also for how many ms the device is busy, how many kernels,
    copies and memsets run, and how often the host waits for the device.

    Args:
        make: Makes the program, and returns its step.
        trace: Where a trace of a few steps goes, if not None.
    """
    torch.manual_seed(0)
    begin = time.perf_counter()
    step = make()
    torch.cuda.synchronize()
    made = time.perf_counter()
    step()
    torch.cuda.synchronize()
    first = time.perf_counter()
    for _ in range(4):
        step()
    return {
        "made": (made - begin) * 1e3,
        "first": (first - made) * 1e3,
        "step": step_ms(step, steps=_STEPS, rounds=_ROUNDS),
        "allocated": torch.cuda.max_memory_allocated() / 2**20,
        "reserved": torch.cuda.max_memory_reserved() / 2**20,
        **_profiled(step, trace),
    }


def _profiled(step: Step, trace: Path | None) -> dict[str, float]:
    with torch.profiler.profile() as profile:
        torch.cuda.synchronize()
        with torch.profiler.record_function("held-out steps"):
            for _ in range(_PROFILED):
                step()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        written = trace or Path(folder, "trace.json.gz")
        profile.export_chrome_trace(str(written))
        with gzip.open(written) as file:
            events = [event for event in json.load(file)["traceEvents"] if "dur" in event]
    steps = next(event for event in events if event["cat"] == "user_annotation" and event["name"] == "held-out steps")
    work = [event for event in events if event["cat"] in {"kernel", "gpu_memcpy", "gpu_memset"}]
    waits = [
        event
        for event in events
        if event["cat"] == "cuda_runtime"
        and event["name"].endswith("Synchronize")
        and steps["ts"] <= event["ts"] <= steps["ts"] + steps["dur"]
    ]
    return {
        "device": _busy_us(work) / 1e3 / _PROFILED,
        "kernels": len(work) / _PROFILED,
        "waits": len(waits) / _PROFILED,
    }


def _busy_us(work: list[dict[str, float]]) -> float:
    """Returns for how long at least one of the events runs."""
    busy, until = 0.0, float("-inf")
    for event in sorted(work, key=lambda event: event["ts"]):
        end = event["ts"] + event["dur"]
        busy += max(0.0, end - max(event["ts"], until))
        until = max(until, end)
    return busy
