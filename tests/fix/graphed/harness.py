"""`graphed` on the tape instead of a GPU, with all else as users have it."""

from __future__ import annotations

from typing import Any

import torch
from fix.graphed.tape import TapeDevice

from unstall.fix.graphed import sizes_from
from unstall.fix.graphs.graphed_function import GraphedFunction
from unstall.fix.graphs.graphed_module import graphed_module


def on_tape(
    function: Any,
    *,
    lanes: tuple[int, ...] | None = None,
    shapes: Any = "exact",
    verify: bool = True,
    max_graphs: int = 8,
    strict: bool = True,
    device: TapeDevice | None = None,
) -> Any:
    made = GraphedFunction(
        function,
        lanes=lanes,
        sizes=sizes_from(shapes),
        verify=verify,
        max_graphs=max_graphs,
        strict=strict,
        device=device or TapeDevice(),
    )
    return graphed_module(function, made) if isinstance(function, torch.nn.Module) else made


def grad_of(leaf: torch.Tensor) -> torch.Tensor:
    assert leaf.grad is not None
    return leaf.grad


def mlp(*, dropout: float = 0.0) -> torch.nn.Sequential:
    torch.manual_seed(7)
    nn = torch.nn
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3))


def batches(count: int, size: int = 6) -> list[tuple[torch.Tensor, torch.Tensor]]:
    numbers = torch.Generator().manual_seed(11)
    return [
        (torch.randn(size, 4, generator=numbers), torch.randint(0, 3, (size,), generator=numbers)) for _ in range(count)
    ]


def training_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    def step(inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step
