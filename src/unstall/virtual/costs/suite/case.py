"""A case that `unstall calibrate` measures: an operator, and a function that makes its arguments."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import exp, log, prod
from typing import TypeAlias

import torch
from torch._ops import OpOverload

MAX_ELEMENTS = 1 << 28
Arguments: TypeAlias = tuple[object, ...]
"""The arguments of an operator, in the order of its schema. Keyword arguments are a dict at the end."""
Build: TypeAlias = Callable[..., Arguments]
Make: TypeAlias = Callable[..., torch.Tensor]
"""A function of a `TensorPool` that returns one argument."""
Calls: TypeAlias = Iterator[tuple[str, Build]]
"""For each call, the operator with its overload, and the function that makes its arguments."""


@dataclass(frozen=True)
class Case:
    """A call to measure.

    Attributes:
        operator: The operator with its overload, such as "add.Tensor".
        build: A function of a `TensorPool` that returns the arguments.
        rank: How important the case is. 0 is the most important.
        hot: The positions of the arguments that are read into the L2 cache before the call, as if
            the operator before had just written them. None: `measure` chooses them.
        gflop: The floating-point operations of the call, in billions; 0 if there are few.
        precision: How cuDNN and cuBLAS multiply in float32 (see `Signature`): "tf32", "ieee", or ""
            for what they do by default.
        on_meta: Whether torch's meta device has a kernel for the call. It has none for sparse tensors.
    """

    operator: str
    build: Build
    rank: int = 0
    hot: tuple[int, ...] | None = None
    gflop: float = 0.0
    precision: str = ""
    on_meta: bool = True


def cases_of(*groups: Callable[[], Calls], rank: int) -> Iterator[Case]:
    """Yields the cases of groups of calls, all of one rank."""
    for group in groups:
        for operator, build in group():
            yield Case(operator, build, rank)


def spread(count: int, *ranges: tuple[int, int], most: int = 1 << 24, seed: str | None = None) -> list[tuple[int, ...]]:
    """Returns sizes at random, with a fixed seed: each doubling of a size is as likely as any other.

    Args:
        count: How many to return.
        ranges: The least and the largest size of each dimension.
        most: The largest product of all sizes.
        seed: The seed; None for one that follows from `count`.
    """
    rng = random.Random(count if seed is None else seed)
    found: list[tuple[int, ...]] = []
    while len(found) < count:
        sizes = tuple(log_uniform(rng, least, largest) for least, largest in ranges)
        if prod(sizes) <= most:
            found.append(sizes)
    return found


def log_uniform(draw: random.Random, least: int, largest: int) -> int:
    """Returns a random size: each doubling from the least to the largest is as likely as any other."""
    return round(exp(draw.uniform(log(least), log(largest))))


class TensorPool:
    """Makes tensors for cases without running a kernel: they are parts of one large tensor of
    random numbers for each data type. The tensors of a case do not overlap: kernels would read the same memory once.

    Attributes:
        device: The device of the tensors.
    """

    def __init__(self, device: str, elements: int = MAX_ELEMENTS) -> None:
        self.device = device
        self._elements = elements
        self._pools: dict[torch.dtype, torch.Tensor] = {}
        self._used = self._most = 0

    def begin(self) -> None:
        """Begins a case. Its tensors may use the memory of those of the cases before."""
        self._used = 0

    def renew_after(self, operator: OpOverload) -> None:
        """Renews the random numbers (see `renew`) if a call of the operator writes to its arguments."""
        if operator._schema.is_mutable:
            self.renew()

    def renew(self) -> None:
        """Makes all random numbers anew, after a case that wrote to its arguments.

        Otherwise they would become zeros, denormal and infinite numbers with time, of which products need less power,
        and quotients more time: a softmax of 2,048 rows of 2,048 denormal numbers takes twice as long.
        """
        for pool in self._pools.values():
            self._fill(pool[: self._most])

    def __call__(self, *sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Returns a contiguous tensor of normally distributed random numbers. Raises ValueError if
        it and the tensors before it of its case are larger than the pool.
        """
        count = prod(sizes)
        if self._used + count > self._elements:
            raise ValueError(f"{sizes}: larger than what is left of the pool")
        cut = self._pool(dtype)[self._used : self._used + count]
        self._used += -(-count // 1024) * 1024
        self._most = max(self._most, self._used)
        return cut.view(sizes)

    def zeros(self, *sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Returns a new tensor of zeros. It is not a part of the pool."""
        return torch.zeros(sizes, dtype=dtype, device=self.device)

    def integers(self, high: int, *sizes: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """Returns a new tensor of random integers from 0 to `high` - 1. It is not a part of the pool."""
        return torch.randint(0, high, sizes, dtype=dtype, device=self.device)

    def bools(self, *sizes: int) -> torch.Tensor:
        """Returns a new tensor of random bools, of which nine in ten are True. It is not a part of the pool."""
        return torch.rand(sizes, device=self.device) < 0.9

    def _pool(self, dtype: torch.dtype) -> torch.Tensor:
        if dtype not in self._pools:
            self._pools[dtype] = torch.empty(self._elements, dtype=dtype, device=self.device)
            self._fill(self._pools[dtype])
        return self._pools[dtype]

    def _fill(self, pool: torch.Tensor) -> None:
        if self.device == "meta":
            return
        for part in pool.split(1 << 24):
            dtype = part.dtype if part.is_complex() else torch.float32
            part.copy_(torch.randn(part.shape, dtype=dtype, device=self.device))


def image_of(dtype: torch.dtype, last: bool, shape: tuple[int, ...], pool: TensorPool) -> torch.Tensor:
    """Returns images, or rows: [batch, channels, sides...]. If `last`, their channels are the last in memory."""
    batch, channels, *sides = shape
    return pool(batch, *sides, channels, dtype=dtype).movedim(-1, 1) if last and sides else pool(*shape, dtype=dtype)
