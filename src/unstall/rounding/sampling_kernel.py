"""A GPU kernel that copies some elements of a tensor, and adds up all of them, each with a sign. It needs Triton."""

from __future__ import annotations

from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl

_BLOCK = 4096
_PROGRAMS = 512  # at most, so many sums come of a tensor
_TAKES_CONSTANTS = tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 3)  # so does the launch of a kernel
_HUGE = 1 << 40  # elements of a tensor for which the kernel is compiled: it counts them in int64


@triton.jit(do_not_specialize=["given", "out", "first", "count", "kept"])  # type: ignore[untyped-decorator]
def _sample(given, signs, positions, out, first, count, kept, period: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    out += first
    program, programs = tl.program_id(0), tl.num_programs(0)
    within = tl.arange(0, block)
    total = tl.zeros([block], tl.float64)
    start = program.to(tl.int64) * block
    while start < count:
        at = start + within
        value = tl.load(given + at, mask=at < count, other=0).to(tl.float64)
        total += value * tl.load(signs + at % period).to(tl.float64)
        start += programs.to(tl.int64) * block
    tl.store(out + kept + program, tl.sum(total, 0))
    if program == 0:
        start = tl.zeros([], tl.int64)
        while start < kept:
            at = start + within
            position = tl.load(positions + at, mask=at < kept, other=0)
            tl.store(out + at, tl.load(given + position).to(tl.float64), mask=at < kept)
            start += block


@lru_cache(64)
def _compiled(dtype: torch.dtype, index: int, period: int) -> Any:
    """Returns the kernel, compiled for a type and a device.

    To launch it takes half of the time that it takes to launch `_sample`.
    """
    types = dtype, torch.int8, torch.int64, torch.float64
    return _sample.warmup(*types, 0, _HUGE, 0, period=period, block=_BLOCK, grid=(1,))


def partial_sums(count: int) -> int:
    """Returns how many partial sums `sample` writes for a tensor with `count` elements."""
    return min(_PROGRAMS, -(-count // _BLOCK))


def sample(given: torch.Tensor, positions: torch.Tensor, signs: torch.Tensor, out: torch.Tensor, first: int) -> None:
    """Launches the kernel, which writes some elements of a tensor to `out`, followed by partial
    sums of all its elements.

    In the sums, each element is multiplied by its sign.

    Args:
        given: The contiguous tensor, on a GPU, of a real type.
        positions: The positions in the flat tensor of the elements to write, as int64.
        signs: The sign of each element in the sums, 1 or -1, as int8. If `given` has more elements,
            the signs repeat.
        out: A flat float64 tensor on the same GPU. It needs `len(positions) +
            partial_sums(given.numel())` elements from `first` on.
        first: The index in `out` of the first element to write.
    """
    count, index = given.numel(), given.device.index
    stream = torch._C._cuda_getCurrentRawStream(index)
    with nullcontext() if index == torch.cuda.current_device() else torch.cuda.device(index):
        launch = _compiled(given.dtype, index, signs.numel())[partial_sums(count), 1, 1]
        constants = (signs.numel(), _BLOCK) if _TAKES_CONSTANTS else ()
        launch(given, signs, positions, out, first, count, len(positions), *constants, stream=stream)
