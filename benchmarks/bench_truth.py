"""How true device times are: `unstall.bench` by CUPTI and by events against `ncu`, and what the usual timers say.

    python benchmarks/bench_truth.py                       # needs a CUDA device; ncu in PATH for the oracle
    python benchmarks/bench_truth.py --only softmax --json truth.json

The oracle is `ncu --clock-control none --cache-control none`, which times every kernel by the device's own counters:
medians of the sums over a call's kernels. It sees no copies and no memsets, so that CUPTI's kernels alone stand beside
it ("kernels"). It tells no time that is a kernel's own, but two that lie on either side of it:

- "ncu", `gpu__time_duration`, is the time around a kernel with what ncu itself adds, in ticks of 32 ns: longer. What is
  added to one that does next to nothing is measured, and taken off in "ncu less".
- "ncu active", `sm__cycles_active.max` by the clock, is the time in which the busiest multiprocessor had a warp in
  flight: shorter, by how long a kernel takes to begin and to end.

Kernels of two streams run one after the other under it, so that for these events are held against CUPTI's span alone.
Without a CUDA device it says so and ends well.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import io
import json
import re
import shutil
import statistics
import subprocess
import sys
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPEATS = 7
TURNS = 3
MARKER = "spin_kernel"
NULL = "next to nothing"
Case = Callable[[], Any]
SPAN, ACTIVE, CLOCK = "gpu__time_duration.sum", "sm__cycles_active.max", "gpc__cycles_elapsed.avg.per_second"
COLUMNS = (
    "ncu active",
    "ncu",
    "ncu less",
    "kernels",
    "cupti",
    "events",
    "naive",
    "Timer",
    "timeit",
    "around",
    "do_bench",
    "cudagraph",
)


def cases(torch: Any) -> dict[str, Case]:
    """Returns the functions that are measured, by name: one that does next to nothing, and then
    sixteen others.
    """
    functional, device = torch.nn.functional, "cuda"
    half, brain = torch.float16, torch.bfloat16
    small, square = torch.randn(64, 64, device=device), torch.randn(1024, 1024, device=device)
    large = torch.randn(4096, 4096, device=device, dtype=brain)
    little = torch.randn(256, 256, device=device, dtype=half)
    vector = torch.randn(1 << 24, device=device)
    rows = torch.randn(4096, 4096, device=device)
    weight, bias = torch.randn(4096, device=device), torch.randn(4096, device=device)
    images, filters = (torch.randn(*shape, device=device, dtype=half) for shape in ((32, 64, 56, 56), (64, 64, 3, 3)))
    query = torch.randn(4, 16, 1024, 64, device=device, dtype=brain)
    table, tokens = torch.randn(50_000, 512, device=device), torch.randint(0, 50_000, (8192,), device=device)
    target = torch.empty(4096, 4096, device=device)
    side = torch.cuda.Stream()
    static = torch.randn(1024, 1024, device=device)

    def two_streams() -> Any:
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        first = large @ large
        with torch.cuda.stream(side):
            second = large @ large
        main.wait_stream(side)
        return first, second

    def chain() -> Any:
        value = static
        for _ in range(5):
            value = functional.gelu(value @ static)
        return value

    chain()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = chain()

    def replay() -> Any:
        graph.replay()
        return output

    one = torch.ones(1, device=device)
    return {
        NULL: lambda: one.fill_(1.0),
        "add 64x64": lambda: small + 1,
        "mm 1024 fp32": lambda: square @ square,
        "mm 4096 bf16": lambda: large @ large,
        "softmax 16M": lambda: torch.softmax(vector, 0),
        "gelu chain x20": lambda: [functional.gelu(small) for _ in range(20)],
        "sort 16M": lambda: vector.sort(),
        "mm 256 fp16": lambda: little @ little,
        "conv 3x3 fp16": lambda: functional.conv2d(images, filters, padding=1),
        "softmax rows": lambda: torch.softmax(rows, -1),
        "layer norm": lambda: functional.layer_norm(rows, (4096,), weight, bias),
        "attention bf16": lambda: functional.scaled_dot_product_attention(query, query, query),
        "sort rows": lambda: square.sort(-1),
        "index": lambda: table[tokens],
        "copy transposed": lambda: target.copy_(rows.t()),
        "two streams": two_streams,
        "graph replay": replay,
    }


def under_ncu(chosen: dict[str, Case], torch: Any) -> None:
    """Runs the cases while ncu watches: each REPEATS times with cold caches, and as often with warm
    ones. A marker kernel comes before each run.
    """
    flushed = torch.empty(2 * torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.uint8, device="cuda")
    for fn in chosen.values():
        for _ in range(3):
            fn()
        for cold in (True, False):
            for _ in range(REPEATS):
                flushed.zero_() if cold else fn()
                torch.cuda.synchronize()
                torch.cuda.profiler.start()
                torch.cuda._sleep(100)
                fn()
                torch.cuda.synchronize()
                torch.cuda.profiler.stop()


def oracle(names: list[str]) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Runs the cases under ncu. Returns, by case and by state of the caches, the times of all runs
    in ns: by the two measures "ncu" and "ncu active". Returns an empty dict if ncu cannot run.
    """
    ncu = shutil.which("ncu") or next((str(path) for path in sorted(Path("/usr/local").glob("cuda*/bin/ncu"))), None)
    if ncu is None:
        print("no ncu here: no oracle")
        return {}
    options = "--clock-control none --cache-control none --profile-from-start off --csv --page raw --print-units base"
    metrics = ["--metrics", ",".join((SPAN, ACTIVE, CLOCK))]
    program = [sys.executable, __file__, "--under-ncu", "--only", *names]
    done = subprocess.run([ncu, *options.split(), *metrics, *program], capture_output=True, text=True, check=False)
    if re.search(r"- ([2-9]|\d\d+) passes", done.stdout + done.stderr):
        print("ncu ran kernels more than once: what it tells of cold caches is not true")
    found = samples_of(done.stdout)
    if found is None:
        print("ncu gave no table:", *(done.stdout.splitlines() + done.stderr.splitlines())[-8:], sep="\n  ")
        return {}
    if len(found["ncu"]) != 2 * REPEATS * len(names):
        print(f"ncu saw {len(found['ncu'])} samples of {2 * REPEATS * len(names)}: no oracle")
        return {}
    by_case: dict[str, dict[str, dict[str, list[float]]]] = {}
    at = 0
    for name in names:
        by_case[name] = {}
        for cache in ("cold", "hot"):
            by_case[name][cache] = {which: each[at : at + REPEATS] for which, each in found.items()}
            at += REPEATS
    return by_case


def samples_of(printed: str) -> dict[str, list[float]] | None:
    """Returns, by "ncu" and "ncu active", the time of each run in ns: the sum over its kernels.
    Returns None if ncu printed no table.

    Args:
        printed: What ncu printed. In the table, a marker kernel comes before each run.
    """
    lines = printed.splitlines()
    head = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), None)
    if head is None:
        return None
    found: dict[str, list[float]] = {"ncu": [], "ncu active": []}
    for row in csv.DictReader(io.StringIO("\n".join(lines[head:]))):
        if not row["ID"]:
            continue  # the row of units
        if MARKER in row["Kernel Name"]:
            for each in found.values():
                each.append(0.0)
        else:
            span, cycles, hertz = (float(row[metric].replace(",", "")) for metric in (SPAN, ACTIVE, CLOCK))
            found["ncu"][-1] += span
            found["ncu active"][-1] += cycles / hertz * 1e9
    return found


def naive(fn: Case) -> float:
    samples = []
    for _ in range(100):
        began = time.perf_counter_ns()
        fn()
        samples.append(time.perf_counter_ns() - began)
    return statistics.median(samples)


def around(fn: Case, torch: Any) -> float:
    """Returns the time in ns between one CUDA event before a call and one after it: the median of
    100 calls, each with a wait.
    """
    samples: list[float] = []
    for _ in range(100):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        fn()
        last.record()
        torch.cuda.synchronize()
        samples.append(first.elapsed_time(last) * 1e6)
    return statistics.median(samples)


def others(fn: Case, torch: Any) -> dict[str, float]:
    """Returns what the usual timers say of a function, in ns, by timer. Of these, only `do_bench`
    flushes the L2 cache.
    """
    from torch.utils.benchmark import Timer

    found = {"naive": naive(fn), "around": around(fn, torch)}
    torch.cuda.synchronize()
    found["Timer"] = Timer("fn()", globals={"fn": fn}).blocked_autorange(min_run_time=0.1).median * 1e9
    found["timeit"] = min(timeit.repeat(fn, number=20, repeat=3)) / 20 * 1e9
    torch.cuda.synchronize()
    try:
        testing = importlib.import_module("triton.testing")
    except ImportError:
        return found
    found["do_bench"] = testing.do_bench(fn, warmup=5, rep=30, return_mode="median") * 1e6
    try:
        with torch.cuda.stream(torch.cuda.Stream()):
            found["cudagraph"] = testing.do_bench_cudagraph(fn, rep=10, return_mode="median") * 1e6
    except Exception as error:  # what cannot be captured raises whatever it likes, and spoils the capture
        print(f"  do_bench_cudagraph: {type(error).__name__}")
        torch.cuda.synchronize()
    return found


def ours(fn: Case, cache: Any, seconds: float, torch: Any) -> dict[str, Any]:
    """Returns what the two methods of `unstall.bench` say, in ns. The methods take turns, because
    the device changes its clock rate; each figure is the median over the turns.
    """
    import unstall

    found: dict[str, Any] = {}
    turns: dict[str, list[float]] = {"cupti": [], "events": [], "span": []}
    for _ in range(TURNS):
        for method in ("cupti", "events"):
            measured = unstall.bench(fn, cache=cache, max_seconds=seconds / TURNS, method=method)
            assert measured.device is not None
            turns[method].append(measured.device.median)
            if method == "events":
                found["too short for events"] = measured.has("too short to resolve")
                found["events notes"] = list(measured.notes)
                continue
            if measured.span is not None:
                turns["span"].append(measured.span.median)
            found["ops"] = measured.device_ops
            found["host"], found["wall"] = measured.host.median, measured.wall.median
            found["verdicts"] = [f"{each.kind}: {each.text}" for each in measured.verdicts]
    found |= {which: statistics.median(each) for which, each in turns.items() if each}
    found["turns"] = turns
    return found | kernels(fn, cache, torch)


def kernels(fn: Case, cache: Any, torch: Any) -> dict[str, float]:
    """Returns what CUPTI says of a call's kernels: the sum of their times in ns, and their
    number.
    """
    import numpy as np

    from unstall.measuring.adapters import adapter_for
    from unstall.measuring.cache import Caching
    from unstall.measuring.calls.function_call import FunctionCall
    from unstall.measuring.device_time.by_cupti import ByCupti
    from unstall.timeline.columns import DeviceKind

    adapter = adapter_for([torch.empty(1, device="cuda")])
    caching = Caching(FunctionCall(fn), cache, adapter)
    seen = ByCupti().observe(caching.run, 50, adapter, caching.flushed)
    mine = seen.kind == DeviceKind.KERNEL
    sums = np.bincount(seen.call[mine], (seen.end - seen.start)[mine], seen.calls)
    return {"kernels": float(np.median(sums)), "kernels n": float(mine.sum()) / seen.calls}


def measure(chosen: dict[str, Case], torch: Any, seconds: float) -> dict[str, dict[str, dict[str, Any]]]:
    """Returns, by case and by state of the caches, all figures except those of ncu."""
    results: dict[str, dict[str, dict[str, Any]]] = {}
    for name, fn in chosen.items():
        began = time.perf_counter()
        results[name] = {cache: ours(fn, cache, seconds, torch) for cache in ("cold", "hot")}
        ended = time.perf_counter()
        usual = others(fn, torch)
        results[name]["cold"]["do_bench"] = usual.pop("do_bench", None)
        results[name]["hot"] |= usual
        took = f"{ended - began:.1f} s, and {time.perf_counter() - ended:.1f} s for the usual timers"
        print(f"  {name}: {took}", flush=True)
    return results


def take_off(results: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Adds "ncu less" to the figures: the time by ncu, less what ncu itself adds for each kernel.
    That is taken from a function that does next to nothing, with warm caches.
    """
    null = results[NULL]["hot"]
    if "ncu" in null:
        each = null["ncu"] - null["kernels"]
        for by_cache in results.values():
            for found in by_cache.values():
                found["ncu less"] = found["ncu"] - each * found["kernels n"]


def row(name: str, cache: str, found: dict[str, Any]) -> str:
    cells = [f"{found[column] / 1e3:10.2f}" if found.get(column) is not None else f"{'':10s}" for column in COLUMNS]
    return f"{name:16s} {cache:4s} {''.join(cells)}"


def judge(results: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """Returns a sentence for each case in which two figures are further apart than the
    documentation claims.
    """
    missed = []
    for name, by_cache in results.items():
        for cache, found in by_cache.items() if name != NULL else ():
            apart = name == "two streams"
            cupti, events = found["cupti"], found["events"]
            for which in ("ncu", "ncu less"):
                truth = found.get(which)
                if truth is not None and not apart and abs(found["kernels"] - truth) > max(0.02 * truth, 100):
                    missed.append(f"{name}, {cache}: CUPTI {found['kernels'] / 1e3:.2f} µs, {which} {truth / 1e3:.2f}")
            beside = found["span"] if apart else cupti
            if not found["too short for events"] and abs(events - beside) > max(0.03 * beside, 300):
                missed.append(f"{name}, {cache}: events {events / 1e3:.2f} µs, CUPTI {beside / 1e3:.2f}")
    return missed


def between(results: dict[str, dict[str, dict[str, Any]]]) -> tuple[list[str], int]:
    """Returns the cases in which CUPTI's time for the kernels is not between the two times of ncu,
    by more than 2 % or 0.1 µs; and how many cases were looked at.
    """
    outside, count = [], 0
    for name, by_cache in results.items():
        for cache, found in by_cache.items() if name != "two streams" else ():
            if "ncu" not in found:
                continue
            count += 1
            low, high, cupti = found["ncu active"], found["ncu"], found["kernels"]
            if not low - max(0.02 * low, 100) <= cupti <= high + max(0.02 * high, 100):
                outside.append(
                    f"{name}, {cache}: CUPTI {cupti / 1e3:.2f} µs is not within {low / 1e3:.2f} to {high / 1e3:.2f}"
                )
    return outside, count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], help="names of cases")
    parser.add_argument("--seconds", type=float, default=0.9, help="for one time by unstall.bench")
    parser.add_argument("--json", type=Path, help="where all figures go")
    parser.add_argument("--no-ncu", action="store_true")
    parser.add_argument("--under-ncu", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("skipped: torch is not installed")
        return 0
    if not torch.cuda.is_available():
        print("skipped: needs a CUDA device")
        return 0
    all_of = cases(torch)
    chosen = {name: fn for name, fn in all_of.items() if not options.only or name in options.only or name == NULL}
    if options.under_ncu:
        under_ncu(chosen, torch)
        return 0
    began = time.perf_counter()
    results = measure(chosen, torch, options.seconds)
    measured = time.perf_counter()
    for name, counted in ({} if options.no_ncu else oracle(list(chosen))).items():
        for cache, samples in counted.items():
            for which, each in samples.items():
                results[name][cache] |= {which: statistics.median(each), f"{which} samples": each}
    print(f"  {measured - began:.0f} s in all, and {time.perf_counter() - measured:.0f} s for ncu")
    take_off(results)
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    print(", ".join(f"{name} {value}" for name, value in about.items()), "(µs)")
    print(f"{'case':21s} {''.join(f'{column:>10s}' for column in COLUMNS)}")
    for name, by_cache in results.items():
        for cache, found in by_cache.items():
            print(row(name, cache, found))
    missed = judge(results)
    flagged = sum(found["too short for events"] for by_cache in results.values() for found in by_cache.values())
    print(f"{flagged} of {2 * len(results)} times by events were said to be too short to resolve")
    print(f"{len(missed)} other figures further apart than 2 % or 0.1 µs (CUPTI, ncu), 3 % or 0.3 µs (events, CUPTI)")
    print(*missed, sep="\n")
    outside, count = between(results)
    print(f"CUPTI is between ncu's two times, within 2 % or 0.1 µs, in {count - len(outside)} of {count} rows")
    print(*outside, sep="\n")
    if options.json:
        options.json.write_text(
            json.dumps({"about": about, "results": results, "missed": missed, "outside": outside}, indent=1) + "\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
