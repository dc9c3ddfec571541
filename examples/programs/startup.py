"""What only the first steps of a process pay for."""

from __future__ import annotations

import torch
from torch import nn

from programs import Cause, Run, program


def set_up(x: torch.Tensor, y: torch.Tensor) -> tuple[nn.Module, torch.optim.Optimizer, torch.Tensor, torch.Tensor]:
    body = (nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 128, 3, stride=2), nn.ReLU())
    model = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)).to("cuda")
    return model, torch.optim.SGD(model.parameters(), lr=1e-3), x.to("cuda"), y.to("cuda")


@program(steps=5, fresh=True, memory=True)
def first_steps() -> Run:
    """A process from its first CUDA call on: context, module loading, the search for the fastest convolution
    (`cudnn.benchmark`) and the allocator's growth, all within the first step. The later ones are the
    real ones."""
    torch.backends.cudnn.benchmark = True
    batch, labels = torch.randn(64, 3, 64, 64), torch.randint(0, 10, (64,))
    ready: list[tuple[nn.Module, torch.optim.Optimizer, torch.Tensor, torch.Tensor]] = []

    def step() -> None:
        if not ready:
            ready.append(set_up(batch, labels))  # stalls
        model, optimizer, x, y = ready[0]
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return Run(step, ("startup",), (Cause("first-use", set_up), Cause("first-use", step)))
