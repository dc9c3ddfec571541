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


class ReorderedRows(Plain):
    """The same sums over halves, which are added up."""

    def hidden(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        weight = self.up.weight
        parts = x[..., :half] @ weight[:, :half].t(), x[..., half:] @ weight[:, half:].t()
        return functional.gelu(parts[0] + parts[1] + self.up.bias)


class ReorderedNorm(Plain):
    """The sums of the normalization as products with a vector."""

    def forward(self, x: Tensor) -> Tensor:
        z = x + self.down(self.hidden(x))
        share = torch.full((z.shape[-1], 1), 1 / z.shape[-1], dtype=z.dtype)
        centered = z - z @ share
        y = centered / (centered.square() @ share + self.norm.eps).sqrt() * self.norm.weight + self.norm.bias
        return _attention(y)


class Unset(Plain):
    """Elements at the end that no part of the program sets, as if it did not wait for them."""

    def hidden(self, x: Tensor) -> Tensor:
        h = super().hidden(x)
        return torch.cat([h[:-1], torch.zeros_like(h[-1:])])  # planted


class Permuted(Plain):
    """Rows in another order, which a later sum does not put right."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.down(self.hidden(x))
        y: Tensor = self.norm(x + h.flip(1))  # planted
        return _attention(y)


class _ShiftedBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.roll(1, -1)  # planted


class ShiftedBackward(Plain):
    """Gradients whose index is off by one."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.down(self.hidden(x))
        y: Tensor = self.norm(x + _ShiftedBack.apply(h))  # type: ignore[no-untyped-call]
        return _attention(y)


class HalvedInput(Plain):
    """A product in a wrong type."""

    def hidden(self, x: Tensor) -> Tensor:
        z = functional.linear(x.half(), self.up.weight.half())  # planted
        return functional.gelu(z.float() + self.up.bias)


class HalvedNorm(Plain):
    """A normalization in a wrong type."""

    def forward(self, x: Tensor) -> Tensor:
        z = x + self.down(self.hidden(x))
        y = functional.layer_norm(z.bfloat16(), (48,)).float()  # planted
        return _attention(y)


class Noisy(Plain):
    """Random numbers that are added."""

    def hidden(self, x: Tensor) -> Tensor:
        h = super().hidden(x)
        return h + 0.1 * torch.randn(h.shape)


class NoisyElsewhere(Noisy):
    """Other random numbers that are added: of another generator."""

    def hidden(self, x: Tensor) -> Tensor:
        h = Plain.hidden(self, x)
        return h + 0.1 * torch.randn(h.shape, generator=torch.Generator().manual_seed(5))


PLANTED: tuple[tuple[type[Plain], str], ...] = (
    (Scaled, "factor"),
    (Shifted, "different"),
    (Halved, "type"),
    (Approximate, "different"),
    (WrongBackward, "factor"),
    (Unset, "different"),
    (Permuted, "different"),
    (ShiftedBackward, "different"),
    (HalvedInput, "type"),
    (HalvedNorm, "type"),
)
"""What differs from `Plain`: each with its class."""
REORDERED: tuple[type[Plain], ...] = (Reordered, ReorderedRows, ReorderedNorm)
"""What computes the same as `Plain` by sums in another order."""
ANOTHER_STREAM: tuple[tuple[type[Plain], type[Plain]], ...] = ((Dropped, DroppedElsewhere), (Noisy, NoisyElsewhere))
"""What draws other random numbers than another."""
CASES: tuple[tuple[type[Plain], type[Plain], str], ...] = (
    *((Plain, kind, named) for kind, named in PLANTED),
    *((Plain, kind, "rounding") for kind in REORDERED),
    *((one, other, "random") for one, other in ANOTHER_STREAM),
)
"""All of them: what is run, what it is compared with, and of which class the difference is."""


def made(kind: type[Plain]) -> Plain:
    """Returns a model of this kind. All have the same parameters."""
    torch.manual_seed(1)
    return kind()
