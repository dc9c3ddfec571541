"""Memory taken from the driver in every step, where PyTorch's caching allocators would have kept it."""

from __future__ import annotations

import torch

from programs import Cause, Run, program

MIB = 1 << 20


@program(memory=True)
def empty_cache() -> Run:
    """The cache is emptied after every step: `cudaFree` waits for the device, and `cudaMalloc` follows."""
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) / 64

    def compute() -> None:
        y = x
        for _ in range(8):
            y = (y @ x).relu()

    def step() -> None:
        compute()
        torch.cuda.empty_cache()  # stalls

    return Run(step, ("allocator", "device"), (Cause("allocator-churn", step),), compute)


def longer(size: int) -> torch.Tensor:
    return torch.empty(size, device="cuda", dtype=torch.uint8)  # stalls


@program(steps=4, memory=True)
def growing() -> Run:
    """Every step needs a little more than the last, so no cached block fits and `cudaMalloc` is called each
    time."""
    x = torch.randn(1024, 1024, device="cuda")
    size = [12 * MIB]

    def mended() -> list[torch.Tensor]:
        x @ x
        return [longer(size[0]) for _ in range(8)]

    def step() -> list[torch.Tensor]:
        size[0] += 2 * MIB
        return mended()

    cause = Cause("allocator-churn", longer, "aten::empty")
    return Run(step, ("allocator",), (cause,), mended)


def pin(batch: torch.Tensor) -> torch.Tensor:
    return batch.pin_memory()  # stalls


@program(memory=True)
def pin_each_step() -> Run:
    """Each step pins a new 16 MiB batch and keeps it, so that `cudaHostAlloc` is called every time. It takes
    milliseconds, in which nothing is launched."""
    batch = torch.randn(4 * MIB)
    pinned = batch.pin_memory()
    kept: list[torch.Tensor] = []

    def step() -> None:
        kept.append(pin(batch))
        kept[-1].to("cuda", non_blocking=True).square().sum()

    def mended() -> None:
        pinned.to("cuda", non_blocking=True).square().sum()

    return Run(step, ("allocator",), (Cause("pinned-allocation", pin, "aten::pin_memory"),), mended)
