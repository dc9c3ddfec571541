"""A GPU kernel that copies some elements of a tensor, and sums all elements with signs. Needs Triton."""

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
    """Returns the compiled kernel for a type and a device.

    A launch of the compiled kernel takes half of the time that a launch of `_sample` takes.
    """
    types = dtype, torch.int8, torch.int64, torch.float64
    return _sample.warmup(*types, 0, _HUGE, 0, period=period, block=_BLOCK, grid=(1,))


def partial_sums(count: int) -> int:
    """Returns the number of partial sums that `sample` makes for a tensor with `count` elements."""
    return min(_PROGRAMS, -(-count // _BLOCK))


def sample(given: torch.Tensor, positions: torch.Tensor, signs: torch.Tensor, out: torch.Tensor, first: int) -> None:
    """Writes elements of a contiguous tensor to `out`, followed by partial sums.

    The partial sums add up to the sum of all elements.

    Args:
        given: The tensor, on a GPU, of a real type.
        positions: Positions of the elements to write in the flat tensor, int64.
        signs: The factors of the elements in the sums, int8. If `given` is longer than `signs`, the factors repeat.
        out: A flat float64 tensor on the same GPU. It must have len(positions) + partial_sums(given.numel()) elements
            from `first` on.
        first: The index in `out` of the first element to write.
    """
    count, index = given.numel(), given.device.index
    stream = torch._C._cuda_getCurrentRawStream(index)
    with nullcontext() if index == torch.cuda.current_device() else torch.cuda.device(index):
        launch = _compiled(given.dtype, index, signs.numel())[partial_sums(count), 1, 1]
        constants = (signs.numel(), _BLOCK) if _TAKES_CONSTANTS else ()
        launch(given, signs, positions, out, first, count, len(positions), *constants, stream=stream)
