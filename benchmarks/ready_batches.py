"""What does it take the host to fetch a batch, made by itself or ready from workers?

    python -m benchmarks.ready_batches [--out FILE]     (needs a CUDA device)

Between two batches the host is busy with Python for 6 ms, as a launch-bound step is, or it waits. Figures are quartiles
of 120 requests, in µs. `unstall.what_if.edits.load_ahead` takes from here what a batch from workers costs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from benchmarks.on_device import tell

STEP_S, SETTLING, REQUESTS = 0.006, 30, 120
BATCH = 16


def main() -> None:
    tell(__doc__, lambda: {"batch": BATCH, "rows": _rows()})


def _rows() -> list[dict[str, object]]:
    return [
        {
            "tensors": tensors,
            "elements": elements,
            "workers": workers,
            "pinned": pinned,
            "busy_us": _quartiles(tensors, elements, workers, pinned, _compute),
            "waiting_us": _quartiles(tensors, elements, workers, pinned, time.sleep),
        }
        for tensors, elements in ((1, 40), (4, 40), (2, 50_000))
        for workers, pinned in ((0, False), (4, False), (4, True), (2, True))
    ]


def _quartiles(
    tensors: int, elements: int, workers: int, pinned: bool, between: Callable[[float], object]
) -> list[int]:
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Items(Dataset[dict[int, torch.Tensor]]):
        def __len__(self) -> int:
            return BATCH * (SETTLING + REQUESTS)

        def __getitem__(self, index: int) -> dict[int, torch.Tensor]:
            return {key: torch.zeros(elements, dtype=torch.long) for key in range(tensors)}

    ahead = {"persistent_workers": True, "prefetch_factor": 4} if workers else {}
    loader = DataLoader(Items(), batch_size=BATCH, num_workers=workers, pin_memory=pinned, **ahead)  # type: ignore[arg-type]
    batches, took = iter(loader), []
    for _ in range(SETTLING + REQUESTS):
        begun = time.perf_counter()
        next(batches)
        took.append(time.perf_counter() - begun)
        between(STEP_S)
    return [round(each * 1e6) for each in statistics.quantiles(took[SETTLING:], n=4)]


def _compute(seconds: float) -> None:
    """Runs Python for so many seconds without a pause, as launching kernels does."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        sum(range(50))


if __name__ == "__main__":
    main()
