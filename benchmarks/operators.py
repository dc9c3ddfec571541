"""Ordinary calls of torch on a real GPU and on the virtual one: kernels, time, waits, memory, and the host's time.

    python -m benchmarks.operators --out real.json                                       # on a GPU
    python -m unstall.virtual --gpu h200 --numerics skip -m benchmarks.operators --against real.json     # anywhere

What two H200s took is benchmarks/results/operators_h200.json; none of it went into the virtual GPU's file.
The calls are those of benchmarks/operator_cases.py. Each runs twice before it is measured.
"""

from __future__ import annotations

import gc
import json
import math
import statistics
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.on_device import comparing, machines, measured_on, why_skipped
from benchmarks.operator_cases import Call, cases

_CHUNK, _HOST_CALLS = 100, 5
_WITHIN = 0.15, 0.35, 1.0
_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")


def main(argv: list[str] | None = None) -> int:
    parser = comparing(__doc__)
    parser.add_argument("--only", default="", help="calls whose name contains it")
    args = parser.parse_args(argv)
    if skipped := why_skipped():
        print(skipped)
        return 0
    warnings.simplefilter("ignore")
    real = [each["calls"] for each in machines(args.against)]
    found: dict[str, dict[str, Any]] = {}
    chunk: list[tuple[str, Call]] = []
    for name, call in cases():
        if args.only not in name:
            continue
        chunk.append((name, call))
        if len(chunk) == _CHUNK:
            found |= _measure(chunk)
            chunk = []
    found |= _measure(chunk)
    if args.out:
        args.out.write_text(json.dumps(measured_on() | {"calls": found}) + "\n")
    for of in real:
        _compare(found, of)
    return 0


def _measure(chunk: list[tuple[str, Call]]) -> dict[str, dict[str, Any]]:
    """Returns what was measured of each call that works."""
    found: dict[str, dict[str, Any]] = {}
    for name, call in chunk:
        gc.collect()
        try:
            call()
            call()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            call()
            peak = torch.cuda.max_memory_allocated() - before
            host = []
            for _ in range(_HOST_CALLS):
                torch.cuda.synchronize()
                began = time.perf_counter_ns()
                call()
                host.append(time.perf_counter_ns() - began)
            found[name] = {"peak": peak, "host_us": round(statistics.median(host) / 1e3, 1)}
        except Exception as error:
            print(f"{name}: {type(error).__name__} {str(error).splitlines()[0][:150]}", flush=True)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for number, (name, call) in enumerate(chunk):
            if name not in found:
                continue
            for _ in range(2):
                torch.cuda.synchronize()
                with record_function(f"call {number}"):
                    call()
                    with record_function("the end"):
                        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text(errors="replace"))["traceEvents"]
    for number, calls in _by_call(events).items():
        found[chunk[number][0]] |= calls[-1]
    return found


def _by_call(events: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    spans = sorted(
        (float(each["ts"]), float(each["dur"]), int(each["name"].split()[1]))
        for each in events
        if each.get("cat") == "user_annotation" and each["name"].startswith("call ")
    )
    ends = sorted(float(e["ts"]) for e in events if e.get("cat") == "user_annotation" and e["name"] == "the end")
    calls: dict[int, list[dict[str, Any]]] = defaultdict(list)
    device = sorted(
        (each for each in events if each.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")),
        key=lambda each: float(each["ts"]),
    )
    waits = sorted(float(e["ts"]) for e in events if e.get("cat") == "cuda_runtime" and e["name"] in _WAITS)
    for (start, length, number), end in zip(spans, ends, strict=True):
        inside = [each for each in device if start <= float(each["ts"]) < start + length]
        calls[number].append(
            {
                "device_us": round(sum(float(each["dur"]) for each in inside), 3),
                "kernels": sum(each["cat"] == "kernel" for each in inside),
                "copies": sum(each["cat"] != "kernel" for each in inside),
                "waits": sum(start <= each < end for each in waits),
            }
        )
    return calls


@dataclass
class Ratio:
    """A call here and on the real GPU."""

    name: str
    ours: dict[str, Any]
    theirs: dict[str, Any]

    @property
    def device(self) -> float:
        """The device's time here, over the real one. Half a microsecond more counts for nothing."""
        return float((self.ours["device_us"] + 0.5) / (self.theirs["device_us"] + 0.5))

    @property
    def host(self) -> float:
        return float(self.ours["host_us"] / self.theirs["host_us"])

    def __str__(self) -> str:
        ours, theirs = self.ours, self.theirs
        return (
            f"{self.name[:70]:70} device {theirs['device_us']:9.1f} us x {self.device:5.2f}"
            f"  kernels {theirs['kernels']:4} {ours['kernels']:4}  waits {theirs['waits']:3} {ours['waits']:3}"
            f"  host x {self.host:5.2f}  peak {theirs['peak'] / 1e6:8.1f} {ours['peak'] / 1e6:8.1f} MB"
        )


def _compare(found: dict[str, dict[str, Any]], real: dict[str, dict[str, Any]]) -> None:
    both = [
        Ratio(name, mine, real[name])
        for name, mine in found.items()
        if name in real and "device_us" in mine and "device_us" in real[name]
    ]
    for each in sorted(both, key=lambda each: -abs(math.log(each.device))):
        print(each)
    for label, ratios in (("device", [each.device for each in both]), ("host", [each.host for each in both])):
        near = [f"within {most:.0%}: {sum(1 / (1 + most) <= x <= 1 + most for x in ratios)}" for most in _WITHIN]
        print(f"{label}: median {statistics.median(ratios):.2f}; {', '.join(near)} of {len(ratios)}")
    same = {what: sum(each.ours[what] == each.theirs[what] for each in both) for what in ("kernels", "waits")}
    peaks = sum(abs(e.ours["peak"] - e.theirs["peak"]) <= max(1e6, 0.05 * e.theirs["peak"]) for e in both)
    print(
        f"as many kernels: {same['kernels']}; as many waits: {same['waits']}; peak within 5 % or 1 MB: {peaks} "
        f"of {len(both)}"
    )


if __name__ == "__main__":
    sys.exit(main())
