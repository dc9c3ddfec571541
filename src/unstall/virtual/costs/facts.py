"""Measures facts about a GPU and its host: the length of the launch queue, gaps, latencies, copies,
and the costs of calls. Needs torch and a GPU.

Times are in ns.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch.profiler import ProfilerActivity, profile

_SIZES = tuple(1 << power for power in (9, 12, 14, 16, 18, 20, 22, 24, 26, 28))
Event: TypeAlias = tuple[int, int, str, bool]
"""An event of torch's profiler: `(start, end, name, is_on_device)`. Times are in ns."""
_HELD = 80_000_000
"""For how many cycles `torch.cuda._sleep` holds a stream while work is queued behind it. This is
about 40 ms, since some hosts take 20 µs for a launch under a profiler.
"""
_HELD_BRIEFLY = 2_000_000
_NODES = 100, 1_000


def measure_facts() -> dict[str, Any]:
    """Measures the facts in groups, and returns the figures of each group by the name of the group,
    such as "copies" or "latencies". A group that could not be measured is missing; the reason is
    printed.
    """
    found: dict[str, Any] = {}
    for name, group in {
        "device": _device,
        "peaks": _peaks,
        "calls": _calls,
        "python": _python,
        "queue": _queue,
        "latencies": _latencies,
        "graph": _graph,
        "allocation": _allocation,
        "copies": _copies,
        "memset": _memset,
    }.items():
        try:
            found[name] = group()
        except (RuntimeError, ValueError, IndexError, AttributeError) as error:
            print(f"{name}: not measured: {error}", file=sys.stderr)
        torch.cuda.synchronize()
    return found


def median_ns(call: Callable[[], object], times: int = 200, idle: bool = False) -> int:
    """Returns how long `call` takes on the host, in ns: the median of many calls.

    Args:
        call: The function to measure.
        times: How many calls are measured.
        idle: Whether the device is synchronised before each call.
    """
    for _ in range(5):
        call()
    taken = []
    torch.cuda.synchronize()
    for _ in range(times):
        if idle:
            torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        call()
        taken.append(time.perf_counter_ns() - begin)
    torch.cuda.synchronize()
    return round(statistics.median(taken))


def _device() -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info()
    return {
        "name": properties.name,
        "capability": [properties.major, properties.minor],
        "multiprocessors": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "total_bytes": total,
        "context_bytes": total - free - torch.cuda.memory_reserved(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }


def _peaks() -> dict[str, float]:
    """Returns peak rates: the FLOPs per ns of large matrix products, by data type, and the bytes
    per ns of element-wise kernels. "l2_bytes" is the rate for tensors that fit into the L2 cache,
    and "bytes" the rate for larger ones.
    """
    found = {}
    for name, dtype, tf32, size in (
        ("float32", torch.float32, False, 4096),
        ("tf32", torch.float32, True, 8192),
        ("bfloat16", torch.bfloat16, False, 8192),
        ("float64", torch.float64, False, 4096),
    ):
        before, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, tf32
        x = torch.randn(size, size, device="cuda", dtype=dtype)
        found[name] = round(2 * size**3 / _device_ns(partial(torch.mm, x, x), 5), 1)
        torch.backends.cuda.matmul.allow_tf32 = before
    for name, size in (("bytes", 1 << 30), ("l2_bytes", 8 << 20)):
        source = torch.empty(size, dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        found[name] = round(2 * size / _device_ns(partial(torch.bitwise_not, source, out=target), 20), 3)
    return found


def _device_ns(call: Callable[[], object], times: int) -> float:
    call()
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(1_000_000)
    first.record()
    for _ in range(times):
        call()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) * 1e6 / times


def _calls() -> dict[str, int]:
    x = torch.ones(16, device="cuda")
    event, other = torch.cuda.Event(), torch.cuda.Event(enable_timing=True)
    stream = torch.cuda.Stream()
    aten = torch.ops.aten
    event.record()
    found = {
        "bound_operator": median_ns(lambda: aten.alias.default(x)),
        "view": median_ns(lambda: x.view(-1)),
        "sleep_kernel": median_ns(lambda: torch.cuda._sleep(1)),
        "mul_in_place": median_ns(lambda: x.mul_(1.0)),
        "mul": median_ns(lambda: x * 1.0),
        "bound_mul_in_place": median_ns(lambda: aten.mul_.Scalar(x, 1.0)),
        "empty": median_ns(lambda: torch.empty(16, device="cuda")),
        "event_record": median_ns(event.record),
        "timing_event_record": median_ns(other.record),
        "event_wait": median_ns(lambda: stream.wait_event(event)),
        "event_query": median_ns(event.query),
        "synchronize": median_ns(torch.cuda.synchronize),
        "event_synchronize": median_ns(event.synchronize),
        "item": median_ns(lambda: x[0].item()),
        "mark": median_ns(lambda: _mark()),
        "lambda": median_ns(lambda: None),
    }
    cuda = torch.ones(1, device="cuda")
    host = torch.ones(1)
    found["copy_to_device"] = median_ns(lambda: cuda.copy_(host))
    pinned = host.pin_memory()
    found["copy_to_device_non_blocking"] = median_ns(lambda: cuda.copy_(pinned, non_blocking=True))
    return found


def _mark() -> None:
    with torch.profiler.record_function("mark"):
        pass


def _python() -> dict[str, int]:
    """Returns host times in ns: of a call of an empty function, of a round of an empty loop, and of
    a call of an empty module.
    """

    def nothing() -> None:
        return None

    def many() -> None:
        for _ in range(1000):
            nothing()

    def bare() -> None:
        for _ in range(1000):
            pass

    module = torch.nn.Identity()
    x = torch.ones(1)
    return {
        "frame": (median_ns(many, 50) - median_ns(bare, 50)) // 1000,
        "line": median_ns(bare, 50) // 1000,
        "module": median_ns(lambda: module(x)),
    }


def _queue() -> dict[str, Any]:
    x = torch.ones(5, device="cuda")
    torch.cuda.synchronize()
    clock = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    clock[0].record()
    torch.cuda._sleep(50_000_000)
    clock[1].record()
    torch.cuda.synchronize()
    cycles_per_us = 50_000_000 / (clock[0].elapsed_time(clock[1]) * 1e3)
    torch.cuda._sleep(round(cycles_per_us * 400_000))
    blocked = None
    for launch in range(3_000):
        begin = time.perf_counter_ns()
        x.mul_(1.0)
        if time.perf_counter_ns() - begin > 20_000_000:
            blocked = launch
            break
    torch.cuda.synchronize()
    return {"capacity": blocked and blocked + 1, "sleep_cycles_per_us": round(cycles_per_us, 1)}


def _events(run: Callable[[], object]) -> list[Event]:
    """Calls `run` under torch's profiler, and returns the events, sorted by their start."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        run()
        torch.cuda.synchronize()
    events = [
        (
            event.start_ns(),
            event.start_ns() + event.duration_ns(),
            event.name(),
            str(event.device_type()).endswith("CUDA"),
        )
        for event in profiler.profiler.kineto_results.events()
    ]
    return sorted(events)


def _latencies() -> dict[str, int]:
    x = torch.ones(5, device="cuda")

    def idle() -> None:
        for _ in range(40):
            torch.cuda.synchronize()
            time.sleep(0.0005)
            x.mul_(1.0)

    def queued() -> None:
        torch.cuda._sleep(_HELD)
        for _ in range(200):
            x.mul_(1.0)

    side = torch.cuda.Stream()

    def across() -> None:
        for _ in range(40):
            event = torch.cuda.Event()
            torch.cuda._sleep(_HELD_BRIEFLY)
            event.record()
            side.wait_event(event)
            with torch.cuda.stream(side):
                x.mul_(1.0)
            torch.cuda.synchronize()

    def waited() -> None:
        for _ in range(40):
            torch.cuda._sleep(_HELD_BRIEFLY)
            torch.cuda.synchronize()

    idle_events = _events(idle)
    launches = [
        event
        for event in idle_events
        if event[2].startswith("cudaLaunchKernel") or event[2].startswith("cuLaunchKernel")
    ]
    kernels = [event for event in idle_events if event[3]]
    queue = _filled(_events(queued))
    crossing = [event for event in _events(across) if event[3]]
    waits = _events(waited)
    ends = [event[1] for event in waits if event[3]]
    returns = [event[1] for event in waits if event[2] == "cudaDeviceSynchronize"][: len(ends)]
    return {
        "launch": _median([kernel[0] - launch[1] for launch, kernel in zip(launches, kernels, strict=False)]),
        "launch_call": _median([launch[1] - launch[0] for launch in launches]),
        "gap": _median([after[0] - before[1] for before, after in pairwise(queue)]),
        "tiny_kernel": _median([event[1] - event[0] for event in queue]),
        "event": _median([after[0] - before[1] for before, after in zip(crossing[::2], crossing[1::2], strict=False)]),
        "timed_event": _median([round(_device_ns(lambda: None, 1)) for _ in range(9)]),
        "wake": _median([back - end for back, end in zip(returns, ends, strict=False)]),
    }


def _filled(events: list[Event]) -> list[Event]:
    """Returns those device events that were queued while the first one held the stream. They ran
    without waiting for the host.

    Raises:
        RuntimeError: The first one ended before all others were launched.
    """
    first, *queue = (event for event in events if event[3])
    launched = max(event[1] for event in events if "LaunchKernel" in event[2])
    if launched > first[1]:
        raise RuntimeError("the host launches too slowly to fill the queue of a stream")
    return queue


def _median(values: list[int]) -> int:
    return round(statistics.median(values))


def _graph() -> dict[str, int]:
    """Returns the time in ns from the begin of a tiny kernel of a CUDA graph to the begin of the next. It is measured
    by events: under a profiler, the kernels of an H200 began 0.2 us later.
    """
    few, many = (_graph_ns(count) for count in _NODES)
    return {"period": round((many - few) / (_NODES[1] - _NODES[0]))}


def _graph_ns(nodes: int) -> float:
    x = torch.ones(5, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(nodes):
            x.mul_(1.0)
    return statistics.median(_device_ns(graph.replay, 1) for _ in range(9))


def _allocation() -> dict[str, int]:
    """Returns host times in ns: of an allocation with its free in the allocator's cache, of
    allocations and frees by the driver, and of pinning host memory.
    """
    found = {"cached": median_ns(lambda: torch.cuda.caching_allocator_delete(torch.cuda.caching_allocator_alloc(4096)))}
    for mib in (2, 20, 200, 2000):
        taken, given = [], []
        for _ in range(6):
            torch.cuda.empty_cache()
            torch.cuda.synchronize()
            begin = time.perf_counter_ns()
            held = torch.empty(mib << 20, dtype=torch.uint8, device="cuda")
            taken.append(time.perf_counter_ns() - begin)
            del held
            begin = time.perf_counter_ns()
            torch.cuda.empty_cache()
            given.append(time.perf_counter_ns() - begin)
        found[f"device_malloc_{mib}_mib"], found[f"device_free_{mib}_mib"] = _median(taken), _median(given)
    for mib in (1, 64):
        host = torch.empty(mib << 20, dtype=torch.uint8)
        begin = time.perf_counter_ns()
        host.pin_memory()
        found[f"pin_{mib}_mib"] = time.perf_counter_ns() - begin
    return found


def _copies() -> list[list[Any]]:
    """Returns `[direction, pinned, bytes, device ns, host ns]` for each direction, kind of host
    memory and size of a copy.
    """
    found: list[list[Any]] = []
    for size in _SIZES:
        plain = torch.ones(size, dtype=torch.uint8)
        pinned = plain.pin_memory()
        there, other = (
            torch.ones(size, dtype=torch.uint8, device="cuda"),
            torch.ones(size, dtype=torch.uint8, device="cuda"),
        )
        for direction, is_pinned, to, of in (
            ("HtoD", True, there, pinned),
            ("HtoD", False, there, plain),
            ("DtoH", True, pinned, there),
            ("DtoH", False, plain, there),
            ("DtoD", False, other, there),
        ):
            repeats = 3 if size > 1 << 24 else 8
            call = partial(to.copy_, of, non_blocking=True)
            call()
            torch.cuda.synchronize()
            host = median_ns(call, repeats, idle=True)
            events = [
                event
                for event in _events(partial(_repeat, call, repeats))
                if event[3] and event[2].startswith("Memcpy")
            ]
            total = sum(event[1] - event[0] for event in events) / repeats
            found.append([direction, is_pinned, size, round(total), host])
    return found


def _repeat(call: Callable[[], object], times: int) -> None:
    for _ in range(times):
        call()


def _memset() -> list[list[int]]:
    found = []
    for size in _SIZES:
        x = torch.empty(size, dtype=torch.uint8, device="cuda")
        found.append([size, round(_device_ns(x.zero_, 20))])
    return found
