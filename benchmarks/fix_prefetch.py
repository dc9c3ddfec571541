"""`prefetch` against a plain loop and the limit: `python -m benchmarks.fix_prefetch --out prefetch.json`.

100 batches of 32 MiB and kernels that take half as long as the copy, as long, and twice as long, from a list of pinned
tensors. Then from other sources: pageable tensors, which have to be staged; a generator that yields a few pinned
buffers again and again, each copy of which must have ended before the next batch is asked for; a DataLoader with
workers and pin_memory. Then small batches in a loop that the host bounds. The limit is the longest of copying,
computing and what the source itself takes, for all batches, and once more the shorter of copying and computing. The
last two go on until the ratio to the plain loop is known to half a percent, or for minutes. Exits with 1 where less
than 95 % of the limit is reached, or where the plain loop is faster by more than 2 %. Runs on the virtual GPU too:
`unstall run --gpu h200 --numerics skip -m benchmarks.fix_prefetch`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
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

BATCHES = 100
ELEMENTS = 8 << 20
ERROR = 0.005  # of a ratio, where the host, or a loader's workers, are not punctual


def main() -> None:
    options = arguments("prefetch")
    torch = needs_gpu()
    from unstall import prefetch

    report = Report(options.out)
    loader = data_loader(torch)
    if loader is not None:
        sum(1 for _ in loader)  # its workers are forked here
    pinned = [torch.empty(ELEMENTS).fill_(float(number)).pin_memory() for number in range(8)]
    batches = (pinned * (BATCHES // 8 + 1))[:BATCHES]
    kernels = Kernels()

    def copies() -> None:
        for batch in pinned * 2:
            batch.to("cuda", non_blocking=True)

    milliseconds(copies)
    copy_ms = each_ms(copies, 16, 7)
    on_device = pinned[0].to("cuda")

    def compute(batch: Any, count: int) -> None:
        kernels.run(count)
        batch.add_(1)

    compute(on_device, 3)

    def compare(
        name: str,
        source: Callable[[], Iterable[Any]],
        factor: float,
        source_ms: float = 0.0,
        rounds: int = options.rounds,
        asked: float | None = 0.95,
        most: int | None = None,
    ) -> None:
        """`source_ms`: what the source takes for a batch, while nothing else is done for it. `asked`: of the limit."""
        count = kernels.lasting(factor * copy_ms)

        def computing() -> None:
            for _ in range(20):
                compute(on_device, count)

        compute_ms = each_ms(computing, 20, 3)
        last: list[Any] = []

        def plain() -> None:
            for batch in source():
                moved = tensor_of(batch).to("cuda", non_blocking=True)
                compute(moved, count)

        def ahead() -> None:
            loader = prefetch(source())
            for moved in loader:
                compute(tensor_of(moved), count)
            last[:] = [loader]

        took = interleaved({"plain": plain, "prefetch": ahead}, rounds, most, ERROR)
        limit = BATCHES * max(copy_ms, compute_ms, source_ms) + min(copy_ms, compute_ms)
        figures = {"copy_ms": copy_ms, "compute_ms": compute_ms, "source_ms": source_ms}
        figures |= against_plain(took, "prefetch", last, limit)
        at_least = {"of_the_limit": asked} if asked is not None else {}
        report.add(name, figures, at_least=at_least, at_most={"over_plain": 1.02})

    for name, factor in LOADS.items():
        compare(name, lambda: batches, factor)

    def ring() -> Iterator[Any]:
        for number in range(BATCHES):
            yield pinned[number % 3]

    def one_by_one() -> None:
        for batch in pinned:
            batch.to("cuda", non_blocking=True)
            torch.cuda.synchronize()

    alone_ms = each_ms(one_by_one, 8, 7)
    compare("a generator that fills pinned buffers again", ring, 1.0, alone_ms)

    pageable = [torch.empty(ELEMENTS).fill_(float(number)) for number in range(8)]

    def staged() -> None:
        for source, slot in zip(pageable, pinned, strict=True):
            on_device.copy_(slot.copy_(source), non_blocking=True)

    stage_ms = each_ms(staged, 8, 7)
    compare("pageable", lambda: (pageable * (BATCHES // 8 + 1))[:BATCHES], 1.0, stage_ms, min(options.rounds, 3), None)

    small(report, torch, prefetch, 8 * options.rounds, 60 * options.rounds)
    if loader is not None:
        drained_ms = each_ms(lambda: sum(1 for _ in loader), BATCHES, 2)
        compare("DataLoader", lambda: loader, 1.0, drained_ms, 8 * options.rounds, None, 60 * options.rounds)
    report.finish()


def tensor_of(batch: Any) -> Any:
    return batch[0] if isinstance(batch, list) else batch


def data_loader(torch: Any) -> Any:
    """Returns a DataLoader with workers and pinned memory. Returns None on the virtual GPU, from
    whose process no workers can be forked.
    """
    if "unstall.virtual.entry" in sys.modules:
        return None
    from torch.utils.data import DataLoader, TensorDataset

    rows = TensorDataset(torch.ones(BATCHES * 16, 1 << 15))
    return DataLoader(rows, batch_size=16, num_workers=6, pin_memory=True, persistent_workers=True)


def small(report: Report, torch: Any, prefetch: Any, rounds: int, most: int) -> None:
    """Measures a loop of many launches on batches of 16 KiB. `prefetch` has nothing to gain there,
    and must not lose anything.
    """
    net = torch.nn.Sequential(
        *[layer for _ in range(20) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
    ).cuda()
    batches = [torch.ones(64, 64) for _ in range(50)]
    last: list[Any] = []

    def plain() -> None:
        for batch in batches:
            net(batch.to("cuda", non_blocking=True)).sum().backward()

    def ahead() -> None:
        last[:] = [prefetch(batches)]
        for batch in last[0]:
            net(batch).sum().backward()

    took = interleaved({"plain": plain, "prefetch": ahead}, rounds, most, ERROR)
    report.add("small", against_plain(took, "prefetch", last), at_most={"over_plain": 1.02})


if __name__ == "__main__":
    main()
