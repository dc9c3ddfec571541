"""A model, and others that differ from it in one planted place."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


def _attention(y: Tensor) -> Tensor:
    return (0.1 * y @ y.transpose(-1, -2)).softmax(-1)


class Plain(nn.Module):
    """Products, a normalization, a function by element, and a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(48, 96)
        self.down = nn.Linear(96, 48)
        self.norm = nn.LayerNorm(48)

    def hidden(self, x: Tensor) -> Tensor:
        return functional.gelu(self.up(x))

    def forward(self, x: Tensor) -> Tensor:
        h = self.down(self.hidden(x))
        y: Tensor = self.norm(x + h)
        return _attention(y)


class Scaled(Plain):
    """A factor."""

    def hidden(self, x: Tensor) -> Tensor:
        return super().hidden(x) * 1.0005  # planted


class Shifted(Plain):
    """An index that is off by one."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.down(self.hidden(x))
        y: Tensor = self.norm(x + h.roll(1, -1))  # planted
        return _attention(y)


class Halved(Plain):
    """A wrong type."""

    def hidden(self, x: Tensor) -> Tensor:
        return super().hidden(x).bfloat16().float()  # planted


class Approximate(Plain):
    """Another function by element."""

    def hidden(self, x: Tensor) -> Tensor:
        return functional.gelu(self.up(x), approximate="tanh")  # planted


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 1.01  # planted


class WrongBackward(Plain):
    """The same results, but other gradients."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.down(self.hidden(x))
        y: Tensor = self.norm(x + _Doubled.apply(h))  # type: ignore[no-untyped-call]
        return _attention(y)


class Dropped(Plain):
    """Random numbers."""

    def hidden(self, x: Tensor) -> Tensor:
        return functional.dropout(super().hidden(x), 0.1)


class DroppedElsewhere(Dropped):
    """Other random numbers."""

    def hidden(self, x: Tensor) -> Tensor:
        torch.rand(3)
        return super().hidden(x)


class Reordered(Plain):
    """The same sums in another order."""

    def hidden(self, x: Tensor) -> Tensor:
        order = torch.arange(x.shape[-1] - 1, -1, -1)
        return functional.gelu(x[..., order] @ self.up.weight[:, order].t() + self.up.bias)


PLANTED: tuple[tuple[type[Plain], str], ...] = (
    (Scaled, "factor"),
    (Shifted, "different"),
    (Halved, "type"),
    (Approximate, "different"),
    (WrongBackward, "factor"),
)
"""Each with what its difference is called."""


def made(kind: type[Plain]) -> Plain:
    """Returns a model of this kind. All have the same parameters."""
    torch.manual_seed(1)
    return kind()
