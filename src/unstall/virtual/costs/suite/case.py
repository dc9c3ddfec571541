"""One case to measure: an operator and a function that builds its arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import torch

MAX_ELEMENTS = 1 << 28
Arguments: TypeAlias = tuple[object, ...]
"""An operator's arguments in schema order. A dict at the end has keyword arguments."""
Build: TypeAlias = Callable[..., Arguments]


@dataclass(frozen=True)
class Case:
    """One call to measure.

    Attributes:
        operator: The operator with its overload, such as "add.Tensor".
        build: Makes the operator's arguments from a `TensorPool`.
        rank: The priority of the case. 0 is the highest.
        hot: The positions of the arguments that are read into the L2 cache before the call, as if the previous operator
            had just written them. If None, `measure` chooses the arguments.
        gflop: The floating-point operations of the call in billions, or 0 if the call has few operations.
    """

    operator: str
    build: Build
    rank: int = 0
    hot: tuple[int, ...] | None = None
    gflop: float = 0.0


class TensorPool:
    """A preallocated pool of random numbers. Cases take their tensors from the pool without running a kernel. The
    tensors of one case overlap only if together they are larger than the pool.
    """

    def __init__(self, device: str, elements: int = MAX_ELEMENTS) -> None:
        self.device = device
        self._elements = elements
        self._pools: dict[torch.dtype, torch.Tensor] = {}
        self._used = 0

    def begin(self) -> None:
        """Begins a new case, whose tensors can use the whole pool again."""
        self._used = 0

    def __call__(self, *sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Returns a contiguous tensor of normally distributed random numbers. Raises ValueError if the tensor is larger
        than the pool.
        """
        count = prod(sizes)
        if count > self._elements:
            raise ValueError(f"{sizes}: larger than the pool")
        if self._used + count > self._elements:
            self._used = 0
        cut = self._pool(dtype)[self._used : self._used + count]
        self._used += -(-count // 1024) * 1024
        return cut.view(sizes)

    def zeros(self, *sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.zeros(sizes, dtype=dtype, device=self.device)

    def integers(self, high: int, *sizes: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return torch.randint(0, high, sizes, dtype=dtype, device=self.device)

    def bools(self, *sizes: int) -> torch.Tensor:
        return torch.rand(sizes, device=self.device) < 0.9

    def _pool(self, dtype: torch.dtype) -> torch.Tensor:
        if dtype not in self._pools:
            pool = torch.empty(self._elements, dtype=dtype, device=self.device)
            if self.device != "meta":
                for part in pool.split(1 << 24):
                    part.copy_(torch.randn(part.shape, device=self.device))
            self._pools[dtype] = pool
        return self._pools[dtype]
