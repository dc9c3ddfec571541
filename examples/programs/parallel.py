"""Two GPUs: collectives beside the backward pass and after it, and a model cut in two."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from programs import Cause, Run, program


def layers(count: int, device: str = "cuda") -> nn.Sequential:
    return nn.Sequential(*[nn.Linear(4096, 4096, bias=False) for _ in range(count)]).to(device, torch.bfloat16)


@program(gpus=2, ranks=2)
def ddp_overlapped() -> Run:
    """DistributedDataParallel sums each bucket of gradients while the backward pass goes on."""
    model = nn.parallel.DistributedDataParallel(layers(8), bucket_cap_mb=64)
    x = torch.randn(8192, 4096, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        model(x).square().mean().backward()
        model.zero_grad()

    return Run(step, ("device",))


@program(gpus=2, ranks=2)
def all_reduce_after() -> Run:
    """Gradients are summed only after the backward pass: while they are, nothing is computed."""
    model = layers(8)
    overlapped = nn.parallel.DistributedDataParallel(layers(8), bucket_cap_mb=64)
    x = torch.randn(8192, 4096, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        model(x).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)  # stalls
        model.zero_grad()

    def mended() -> None:
        overlapped(x).square().mean().backward()
        overlapped.zero_grad()

    cause = Cause("exposed-comm", step, "c10d::allreduce_")
    return Run(step, ("device", "comm"), (cause,), mended)


@program(gpus=2)
def model_parallel() -> Run:
    """One process, two devices: half the layers on each. One device is idle whenever the other computes."""
    first, second = layers(4, "cuda:0"), layers(4, "cuda:1")
    x = torch.randn(8192, 4096, device="cuda:0", dtype=torch.bfloat16)

    def step() -> None:
        second(first(x).to("cuda:1")).square().mean().backward()
        first.zero_grad()
        second.zero_grad()

    return Run(step, ("device",))
