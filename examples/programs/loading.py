"""Steps that wait for data."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, Dataset

from programs import Cause, Run, program


class Slow(Dataset[torch.Tensor]):
    """Samples that take `seconds` each to read."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.full((64, 1024), float(index))


def compute(batch: torch.Tensor, weight: torch.Tensor) -> None:
    (batch.to("cuda", non_blocking=True) @ weight).relu().sum()


def next_batch(batches: Iterator[torch.Tensor]) -> torch.Tensor:
    return next(batches)  # stalls


def run(loader: DataLoader[torch.Tensor], *causes: Cause) -> Run:
    """The batches are endless, and workers start here: no process is forked while recording."""
    weight = torch.randn(1024, 8192, device="cuda")
    ready = torch.ones(8, 64, 1024).pin_memory()
    batches = iter(loader)

    def step() -> None:
        compute(next_batch(batches), weight)

    return Run(step, ("input",), (Cause("data-loading", next_batch), *causes), lambda: compute(ready, weight))


@program()
def loader_in_process() -> Run:
    """`num_workers=0`: eight samples of 1 ms each are read by the training process itself, between steps."""
    return run(DataLoader(Slow(1e-3), batch_size=8), Cause("pageable-copy", compute, "aten::to", costs=None))


@program(steps=6)
def loader_starved() -> Run:
    """Two workers that need 16 ms a batch feed a step of under 1 ms: the step waits for the queue."""
    return run(DataLoader(Slow(2e-3), batch_size=8, num_workers=2, prefetch_factor=1, pin_memory=True))
