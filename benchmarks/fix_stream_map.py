"""`stream_map` against a plain loop and the limit: `python -m benchmarks.fix_stream_map --out stream_map.json`.

100 items of 32 MiB in and back, with kernels half as long as a copy, as long, and twice as long; small items; and an
offload cell: 100 pinned 4096² matrices to the device beside one 10240² product. The limit is max(copy, compute) for
all items, where in and out are copied at the same time, and the rest of one item. The plain loop copies back to one
pinned tensor. Exits with 1 where less than 95 % of the limit is reached, where the plain loop is faster by more than
2 %, or where the offload cell takes more than 124 ms. Runs on the virtual GPU too:
`unstall run --gpu h200 --numerics skip -m benchmarks.fix_stream_map`.
"""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

from benchmarks.fix_timing import (
    LOADS,
    Kernels,
    Report,
    against_plain,
    arguments,
    each_ms,
    interleaved,
    milliseconds,
    needs_gpu,
)

ITEMS = 100


def main() -> None:
    options = arguments("stream_map")
    torch = needs_gpu()
    from unstall import prefetch, stream_map

    report = Report(options.out)
    offload(report, torch, prefetch, options.rounds)
    ring = [torch.empty(8 << 20).fill_(float(number)).pin_memory() for number in range(12)]
    items = (ring * (ITEMS // 12 + 1))[:ITEMS]
    kernels = Kernels()
    back = torch.empty(8 << 20, pin_memory=True)
    there = [items[0].to("cuda") for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in range(2)]

    def both_ways() -> None:
        for item in ring * 2:
            with torch.cuda.stream(streams[0]):
                there[0].copy_(item, non_blocking=True)
            with torch.cuda.stream(streams[1]):
                back.copy_(there[1], non_blocking=True)

    milliseconds(both_ways)
    copy_ms = each_ms(both_ways, 24, 7)
    for name, factor in LOADS.items():
        count = kernels.lasting(factor * copy_ms)
        compute_ms = each_ms(partial(kernels.run, count * 20), 20, 1)

        def work(item: Any, count: int = count) -> Any:
            kernels.run(count)
            return item

        def plain(work: Any = work) -> None:
            for item in items:
                back.copy_(work(item.to("cuda", non_blocking=True)))

        last: list[Any] = []

        def mapped(work: Any = work, last: list[Any] = last) -> None:
            last[:] = [stream_map(work, items)]
            for _ in last[0]:
                pass

        took = interleaved({"plain": plain, "stream_map": mapped}, options.rounds)
        limit = ITEMS * max(copy_ms, compute_ms) + copy_ms + min(copy_ms, compute_ms)
        figures = {"copy_ms": copy_ms, "compute_ms": compute_ms, **against_plain(took, "stream_map", last, limit)}
        report.add(name, figures, at_least={"of_the_limit": 0.95}, at_most={"over_plain": 1.02})
    small(report, torch, stream_map, options.rounds)
    report.finish()


def offload(report: Report, torch: Any, prefetch: Any, rounds: int) -> None:
    big = torch.rand(10240, 10240, device="cuda")
    matrices = [torch.empty(4096, 4096, pin_memory=True).fill_(1.0) for _ in range(100)]

    def copies() -> None:
        for matrix in matrices:
            matrix.to("cuda", non_blocking=True)

    def plain() -> None:
        torch.matmul(big, big)
        copies()

    last: list[Any] = []

    def ahead() -> None:
        torch.matmul(big, big)
        last[:] = [prefetch(matrices, depth=4)]
        for _ in last[0]:
            pass

    took = interleaved({"copies": copies, "plain": plain, "prefetch": ahead}, rounds)
    figures = {"copies_alone_ms": statistics.median(took["copies"]), **against_plain(took, "prefetch", last)}
    report.add("offload", figures, at_most={"prefetch_ms": 124.0, "over_plain": 1.02})


def small(report: Report, torch: Any, stream_map: Any, rounds: int) -> None:
    """Measures items of 4 KiB, for which streams and events cost more than they gain."""
    items = [torch.ones(1024) for _ in range(2000)]

    def plain() -> None:
        for item in items:
            (item.to("cuda") * 2).cpu()

    last: list[Any] = []

    def mapped() -> None:
        last[:] = [stream_map(lambda item: item * 2, items)]
        for _ in last[0]:
            pass

    took = interleaved({"plain": plain, "stream_map": mapped}, rounds)
    report.add("small", against_plain(took, "stream_map", last), at_most={"over_plain": 1.02})


if __name__ == "__main__":
    main()
