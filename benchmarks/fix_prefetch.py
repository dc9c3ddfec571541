"""`prefetch` against a plain loop and the limit: `python benchmarks/fix_prefetch.py --out prefetch.json`.

Batches of 32 MiB and kernels that take half as long as the copy, as long, and twice as long; then small batches in a
loop that the host bounds. The limit is max(copy, compute) for all batches and one copy to begin with. Runs on the
virtual GPU too: `unstall run --gpu h200 --numerics skip benchmarks/fix_prefetch.py`.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from fix_timing import arguments, interleaved, milliseconds, needs_gpu, ratio, told, written

BATCHES = 100
LOADS = {"copy-bound": 0.5, "balanced": 1.0, "compute-bound": 2.0}


def main() -> None:
    options = arguments("prefetch")
    torch = needs_gpu()
    from unstall import prefetch

    results: dict[str, Any] = {}
    batches = [torch.empty(8 << 20).fill_(float(number)).pin_memory() for number in range(8)] * (BATCHES // 8 + 1)
    del batches[BATCHES:]
    weights = torch.randn(2048, 2048, device="cuda")

    def copies() -> None:
        for batch in batches[:8]:
            batch.to("cuda", non_blocking=True)

    copy_ms = statistics.median(milliseconds(copies) for _ in range(7)) / 8

    def kernels(count: int) -> None:
        for _ in range(count):
            torch.mm(weights, weights)

    kernels(3)
    one_ms = milliseconds(lambda: kernels(20)) / 20
    for name, factor in LOADS.items():
        count = max(1, round(factor * copy_ms / one_ms))
        compute_ms = milliseconds(lambda count=count: kernels(count * 20)) / 20

        def plain(count: int = count) -> None:
            for batch in batches:
                moved = batch.to("cuda", non_blocking=True)
                kernels(count)
                moved.add_(1)

        last: list[Any] = []

        def ahead(count: int = count, last: list[Any] = last) -> None:
            loader = prefetch(batches)
            for moved in loader:
                kernels(count)
                moved.add_(1)
            last[:] = [loader]

        took = interleaved({"plain": plain, "prefetch": ahead}, options.rounds)
        limit = BATCHES * max(copy_ms, compute_ms) + min(copy_ms, compute_ms)
        figures = {
            "copy_ms": copy_ms,
            "compute_ms": compute_ms,
            "limit_ms": limit,
            "plain_ms": statistics.median(took["plain"]),
            "prefetch_ms": statistics.median(took["prefetch"]),
            "of_the_limit": ratio([limit] * options.rounds, took["prefetch"]),
            "over_plain": ratio(took["prefetch"], took["plain"]),
            "stats": str(last[0].stats()),
        }
        results[name] = figures
        told(name, figures)
        print(last[0].stats())
    results["small"] = small(torch, prefetch, options.rounds)
    written(options.out, results)


def small(torch: Any, prefetch: Any, rounds: int) -> dict[str, Any]:
    """A loop of many launches on batches of 16 KiB: nothing to gain, and nothing may be lost."""
    net = torch.nn.Sequential(
        *[layer for _ in range(60) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
    ).cuda()
    batches = [torch.ones(64, 64) for _ in range(200)]

    def over(loader: Any, move: bool) -> None:
        for batch in loader:
            net(batch.to("cuda", non_blocking=True) if move else batch).sum().backward()

    took = interleaved(
        {"plain": lambda: over(batches, True), "prefetch": lambda: over(prefetch(batches), False)}, rounds
    )
    figures = {
        "plain_ms": statistics.median(took["plain"]),
        "over_plain": ratio(took["prefetch"], took["plain"]),
    }
    told("small", figures)
    return figures


if __name__ == "__main__":
    main()
