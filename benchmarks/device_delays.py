"""What a GPU's own delays are with no recorder running: gaps on a stream and in a CUDA graph, calls, copies.

    python benchmarks/device_delays.py [--out FILE]     (needs a CUDA device)

The period of a long row of equal ops is measured by the host's clock, without a profiler; the length of one such op
by the profiler. Their difference is the gap. `unstall.replay` and `unstall.whatif` take their defaults from here.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

ROUNDS = 7


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="FILE")
    out = parser.parse_args().out
    results: dict[str, Any] = {
        "date": date.today().isoformat(),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "gaps_us": gaps(),
        "graph_launch_us": graph_launches(),
        "calls_us": calls(),
        "copies": copies(),
    }
    text = json.dumps(results, indent=1)
    print(text)
    if out:
        out.write_text(text + "\n")


def _replays(graph: Any, count: int) -> None:
    for _ in range(count):
        graph.replay()


def timed(work: Callable[[], object]) -> float:
    """Returns how long `work` takes, in µs, up to the end of what it launches: the median of
    several calls.
    """
    import torch

    times = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begun) * 1e6)
    return statistics.median(times)


def device_us(work: Callable[[], object]) -> dict[str, float]:
    """Returns the mean length of each kind of op that `work` launches, in µs, as torch's profiler
    reports it.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        work()
        torch.cuda.synchronize()
    lengths: dict[str, list[float]] = {}
    for event in recorded.events():
        if event.device_type == torch.profiler.DeviceType.CUDA:
            kind = "memset" if "Memset" in event.name else "copy" if "Memcpy" in event.name else "kernel"
            lengths.setdefault(kind, []).append(event.time_range.elapsed_us())
    return {kind: statistics.fmean(values) for kind, values in lengths.items()}


def gaps() -> dict[str, Any]:
    import torch

    def blocker() -> None:
        torch.cuda._sleep(60_000_000)

    results: dict[str, Any] = {}
    tiny, large = torch.ones(5, device="cuda"), torch.ones(1 << 22, device="cuda")
    a = torch.randn(512, 512, device="cuda", dtype=torch.bfloat16)
    b = torch.empty_like(a)
    other = torch.empty_like(large)
    plain: dict[str, Callable[[], object]] = {
        "tiny add": lambda: tiny.add_(1),
        "large add": lambda: large.add_(1),
        "matmul": lambda: torch.mm(a, a, out=b),
        "copy": lambda: other.copy_(large),
        "tiny copy": lambda: other[:5].copy_(tiny),
    }
    mixed: dict[str, Callable[[], object]] = {
        "memset and tiny add": lambda: (tiny.zero_(), tiny.add_(1)),
        "memset and large add": lambda: (large[:1024].zero_(), large.add_(1)),
    }
    for name, op in {**plain, **mixed}.items():
        count = 900 if name in plain else 450

        def row(op: Callable[[], object] = op, count: int = count) -> None:
            for _ in range(count):
                op()

        def queued(row: Callable[[], object] = row) -> None:
            blocker()
            row()

        for _ in range(3):
            op()
        length = device_us(row)
        stream = (timed(queued) - timed(blocker)) / count
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            row()
        graph.replay()
        once = timed(graph.replay) / count
        twice = timed(partial(_replays, graph, 2)) / count - once
        results[name] = {"op_us": length, "stream_period_us": stream, "graph_period_us": twice, "graph_once_us": once}
        results[name]["in_graph_recorded_us"] = device_us(graph.replay)
    return results


def graph_launches() -> dict[str, Any]:
    import torch

    results: dict[str, Any] = {}
    x = torch.ones(5, device="cuda")
    for nodes in (1, 10, 50, 150, 500, 1000, 2000, 4000):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(nodes):
                x.add_(1)
        graph.replay()
        torch.cuda.synchronize()
        host, queued = [], []
        for _ in range(20):
            torch.cuda.synchronize()
            begun = time.perf_counter()
            graph.replay()
            host.append((time.perf_counter() - begun) * 1e6)
            begun = time.perf_counter()
            graph.replay()
            queued.append((time.perf_counter() - begun) * 1e6)
        results[str(nodes)] = {
            "host_us": statistics.median(host),
            "host_again_us": statistics.median(queued),
            "once_us": timed(graph.replay),
            "ten_times_us": timed(partial(_replays, graph, 10)) / 10,
        }
    return results


def calls() -> dict[str, float]:
    """Returns how long calls take on the host if they wait for nothing, in µs."""
    import torch

    x = torch.ones(5, device="cuda")
    event = torch.cuda.Event()
    stream = torch.cuda.current_stream()

    def added_and_waited() -> None:
        x.add_(1)
        stream.synchronize()

    def mean(work: Callable[[], object], count: int = 300) -> float:
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(count):
            work()
        took = (time.perf_counter() - begun) * 1e6 / count
        torch.cuda.synchronize()
        return took

    return {
        "add": mean(lambda: x.add_(1)),
        "stream.synchronize": mean(stream.synchronize),
        "device synchronize": mean(torch.cuda.synchronize),
        "event.record": mean(event.record),
        "event.synchronize": mean(event.synchronize),
        "wait_event": mean(lambda: stream.wait_event(event)),
        "item": mean(x[0].item),
        "add and synchronize": mean(added_and_waited),
    }


def copies() -> dict[str, Any]:
    import torch

    results: dict[str, Any] = {}
    for size in (1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26):
        device = torch.empty(size, dtype=torch.uint8, device="cuda")
        pageable, pinned = torch.ones(size, dtype=torch.uint8), torch.ones(size, dtype=torch.uint8).pin_memory()
        row: dict[str, float] = {}
        for name, host in (("pageable", pageable), ("pinned", pinned)):
            for non_blocking in (False, True):
                ending = " non_blocking" if non_blocking else ""
                row[f"upload {name}{ending} us"] = timed(partial(device.copy_, host, non_blocking=non_blocking))
                row[f"download {name}{ending} us"] = timed(partial(host.copy_, device, non_blocking=non_blocking))
            row[f"upload {name} device us"] = device_us(partial(device.copy_, host))["copy"]
            row[f"download {name} device us"] = device_us(partial(host.copy_, device))["copy"]
        results[str(size)] = row
    return results


if __name__ == "__main__":
    main()
