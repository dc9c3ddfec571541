"""`stream_map` against a plain loop and the limit: `python benchmarks/fix_stream_map.py --out stream_map.json`.

Items of 32 MiB in and back, with kernels shorter than a copy, as long, and longer; small items; and an offload cell:
100 pinned 4096² matrices to the device beside one 10240² product. Runs on the virtual GPU too:
`unstall run --gpu h200 --numerics skip benchmarks/fix_stream_map.py`.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from fix_timing import arguments, interleaved, milliseconds, needs_gpu, ratio, told, written

ITEMS = 100
LOADS = {"copy-bound": 0.5, "balanced": 1.0, "compute-bound": 2.0}


def main() -> None:
    options = arguments("stream_map")
    torch = needs_gpu()
    from unstall import prefetch, stream_map

    results: dict[str, Any] = {"offload": offload(torch, stream_map, prefetch, options.rounds)}
    items = [torch.empty(8 << 20).fill_(float(number)).pin_memory() for number in range(12)] * (ITEMS // 12 + 1)
    del items[ITEMS:]
    weights = torch.randn(2048, 2048, device="cuda")
    target = torch.empty(8 << 20, pin_memory=True)
    on_device = items[0].to("cuda")

    def both_ways() -> None:
        here, back = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(here):
            for item in items[:12]:
                on_device.copy_(item, non_blocking=True)
        with torch.cuda.stream(back):
            for _ in range(12):
                target.copy_(other, non_blocking=True)

    other = on_device.clone()
    copy_ms = statistics.median(milliseconds(both_ways) for _ in range(7)) / 12  # in and out at the same time

    def kernels(count: int) -> None:
        for _ in range(count):
            torch.mm(weights, weights)

    kernels(3)
    one_ms = milliseconds(lambda: kernels(20)) / 20
    for name, factor in LOADS.items():
        count = max(1, round(factor * copy_ms / one_ms))
        compute_ms = milliseconds(lambda count=count: kernels(count * 20)) / 20

        def work(item: Any, count: int = count) -> Any:
            kernels(count)
            return item

        def plain(work: Any = work) -> None:
            for item in items:
                work(item.to("cuda", non_blocking=True)).cpu()

        last: list[Any] = []

        def mapped(work: Any = work, last: list[Any] = last) -> None:
            last[:] = [stream_map(work, items)]
            for _ in last[0]:
                pass

        took = interleaved({"plain": plain, "stream_map": mapped}, min(options.rounds, 3))
        limit = ITEMS * max(copy_ms, compute_ms) + copy_ms + min(copy_ms, compute_ms)
        figures = {
            "copy_ms": copy_ms,
            "compute_ms": compute_ms,
            "limit_ms": limit,
            "plain_ms": statistics.median(took["plain"]),
            "stream_map_ms": statistics.median(took["stream_map"]),
            "of_the_limit": ratio([limit] * len(took["plain"]), took["stream_map"]),
            "over_plain": ratio(took["stream_map"], took["plain"]),
            "stats": str(last[0].stats()),
        }
        results[name] = figures
        told(name, figures)
        print(last[0].stats())
    results["small"] = small(torch, stream_map, options.rounds)
    written(options.out, results)


def offload(torch: Any, stream_map: Any, prefetch: Any, rounds: int) -> dict[str, Any]:
    big = torch.rand(10240, 10240, device="cuda")
    matrices = [torch.empty(4096, 4096, pin_memory=True).fill_(1.0) for _ in range(100)]

    def plain() -> None:
        torch.matmul(big, big)
        for matrix in matrices:
            matrix.to("cuda", non_blocking=True)

    def mapped() -> None:
        torch.matmul(big, big)
        for _ in prefetch(matrices, depth=4):
            pass

    took = interleaved({"plain": plain, "prefetch": mapped}, rounds)
    figures = {
        "plain_ms": statistics.median(took["plain"]),
        "prefetch_ms": statistics.median(took["prefetch"]),
        "over_plain": ratio(took["prefetch"], took["plain"]),
    }
    told("offload", figures)
    return figures


def small(torch: Any, stream_map: Any, rounds: int) -> dict[str, Any]:
    """Items of 4 KiB, where streams and events cost more than they gain."""
    items = [torch.ones(1024) for _ in range(2000)]

    def plain() -> None:
        for item in items:
            (item.to("cuda") * 2).cpu()

    def mapped() -> None:
        for _ in stream_map(lambda item: item * 2, items):
            pass

    took = interleaved({"plain": plain, "stream_map": mapped}, rounds)
    figures = {"plain_ms": statistics.median(took["plain"]), "over_plain": ratio(took["stream_map"], took["plain"])}
    told("small", figures)
    return figures


if __name__ == "__main__":
    main()
