"""Reductions over whole dimensions. A call is described by the dimensions that are kept and those
that are reduced, in the order in which they lie in memory.
"""

from __future__ import annotations

import math
import sys
from itertools import groupby
from math import prod
from typing import NamedTuple

from unstall.timeline.columns import DeviceKind
from unstall.virtual.costs.families.family import Axis, CallShape, Family, Found, Target, Work
from unstall.virtual.costs.families.powers import power_within
from unstall.virtual.costs.signature import Signature

NAMES = (
    "sum",
    "mean",
    "amax",
    "amin",
    "max",
    "min",
    "any",
    "all",
    "argmax",
    "argmin",
    "linalg_vector_norm",
    "norm",
    "var",
    "var_mean",
    "std",
    "prod",
    "aminmax",
    "count_nonzero",
    "nansum",
    "std_mean",
)

_MEASURED = 132
"""How many multiprocessors the GPUs have that were measured."""
_MOST_THREADS, _MOST_VALUES, _ROW_BY_FOUR, _THREADS = 512, 256, 128, 2_048
"""Limits in torch's reduction kernels.

`_MOST_THREADS` is the maximum number of threads of a block. From `_MOST_VALUES` values of a thread
on, several blocks share a result. In rows longer than `_ROW_BY_FOUR`, a thread reads four elements
at a time. `_THREADS` is how many threads fit on a multiprocessor of the GPUs that were measured.
"""


def describe(signature: Signature) -> CallShape | None:
    """Describes a reduction. Returns None if the call is none: `max` of two tensors, for example.

    The variant has a pattern such as "KR": K for dimensions that are kept, R for those that are
    reduced. The first letter is for the outermost dimension in memory. Adjacent dimensions of the
    same kind have one letter together.
    """
    x = signature.tensor(0)
    if x is None:
        return None
    name = signature.name.removeprefix("aten::")
    if name in ("max", "min") and len(signature.tensors) > 1 and len(signature.inputs) == 2:
        return None
    reduced = _reduced(signature, name, len(x.sizes))
    order = sorted(range(len(x.sizes)), key=lambda dim: -x.strides[dim])
    letters = [("R" if dim in reduced else "K", x.sizes[dim]) for dim in order if x.sizes[dim] != 1]
    groups = [(letter, prod(size for _, size in group)) for letter, group in groupby(letters, key=lambda pair: pair[0])]
    if not groups:
        groups = [("R", 1)]
    pattern = "".join(letter for letter, _ in groups)
    kept = prod(size for letter, size in groups if letter == "K")
    total = prod(size for letter, size in groups if letter == "R")
    dims = (max(kept, 1), max(total, 1), max(groups[-1][1], 1), x.item_bytes)
    short = pattern if len(pattern) <= 3 else pattern[-3:]
    head = f"{x.dtype} {name}"
    fallback = "sum" if name not in ("argmax", "argmin") else "argmax"
    variants = (
        f"{head} {short}",
        f"{x.dtype} {fallback} {short}",
        f"float32 {name} {short}",
        f"float32 {fallback} {short}",
        f"float32 sum {short[-2:]}",
        f"float32 sum {short[-1]}",
        "float32 sum R",
    )
    return CallShape(tuple(dict.fromkeys(variants)), dims)


def _reduced(signature: Signature, name: str, count: int) -> set[int]:
    position = 2 if name in ("linalg_vector_norm", "norm") else 1
    dims = signature.value(position)
    if isinstance(dims, bool) or dims is None or dims == ():
        return set(range(count))
    if isinstance(dims, int):
        dims = (dims,)
    if not isinstance(dims, tuple) or not all(isinstance(dim, int) for dim in dims):
        return set(range(count))
    return {dim % count for dim in dims} if count else set()


def across_blocks(signature: Signature, shape: CallShape, multiprocessors: int, threads: int) -> tuple[int, ...] | None:
    """Returns the temporary memory of a reduction in which several thread blocks share each result.
    Follows torch's `setReduceConfig` (Reduce.cuh), and agrees with 1,842 measured calls.

    Args:
        signature: The call.
        shape: What `describe` returned for it.
        multiprocessors: The number of multiprocessors of the GPU.
        threads: The number of threads that fit on a multiprocessor.

    Returns:
        `(partial, counters)`: the bytes of the partial results, and those of the counters, which
        are set to zero before the reduction. An empty tuple if one block computes each result. None
        if the number of blocks is unknown.
    """
    x = signature.tensor(0)
    if x is None or not x.dense:
        return None
    launch = _launch(shape.variants[0], shape.dims, multiprocessors * threads)
    if launch.parts == 1:
        return ()
    results = shape.dims[0] if launch.by_rows else shape.dims[0] * launch.width * launch.together
    return max(x.item_bytes, 4) * results * launch.parts, 4 * launch.blocks


def adapt(signature: Signature, shape: CallShape, found: Found, target: Target) -> Found:
    """Returns what a reduction launches and allocates. If several thread blocks share a result, it
    begins with a memset of counters. The memset is added or removed if only one of the two
    reductions, the predicted and the measured one, has it.
    """
    taken = across_blocks(signature, shape, target.multiprocessors, target.threads)
    bare = tuple(kernel for kernel in found.kernels if kernel.kind is not DeviceKind.MEMSET)
    if found.is_measured or taken is None or len(found.kernels) - len(bare) == bool(taken):
        return found
    if taken:
        return found._replace(kernels=(target.zeroing(taken[-1]), *bare), temporaries=taken)
    return found._replace(kernels=bare, temporaries=found.temporaries[:-2])


def blocks(variant: str, dims: tuple[int, ...], kernel: str) -> int:
    """Returns the number of thread blocks of a kernel in which one block computes each result, as
    torch's `setReduceConfig` says. Returns 0 for other kernels: their number is unknown.

    Args:
        variant: The variant of the reduction (see `CallShape`).
        dims: The number of results, the number of elements of each, the size of the innermost
            dimension, and the bytes of an element.
        kernel: The name of the kernel.
    """
    if "reduce_kernel<512, 1," not in kernel:
        return 0
    launch = _launch(variant, dims, sys.maxsize)  # so that several blocks share a result wherever they might
    return launch.blocks if launch.parts == 1 else 0


class _Launch(NamedTuple):
    """How the kernel of a reduction divides its work among threads.

    Attributes:
        width: The threads of a block in its first dimension.
        height: Those in its second dimension.
        together: How many results a thread computes at the same time.
        by_rows: Whether threads of the first dimension share a result. Then the elements of a result lie side by side.
        steps: From how many elements of each of its results a thread computes its part.
        blocks: The number of blocks, without those that share the results of another.
        parts: How many blocks share each result.
    """

    width: int
    height: int
    together: int
    by_rows: bool
    steps: int
    blocks: int
    parts: int


def _launch(variant: str, dims: tuple[int, ...], threads: int) -> _Launch:
    """Returns how the kernel of a reduction divides its work, as torch's `setReduceConfig` does (Reduce.cuh).

    Args:
        variant: The variant of the reduction (see `CallShape`).
        dims: The number of results, the number of elements of each, the size of the innermost
            dimension, and the bytes of an element.
        threads: The number of threads that fit on the GPU.
    """
    kept, total, inner, _ = dims
    pattern = variant.split()[2]
    by_rows = pattern[-1] == "R"
    together = 1
    if by_rows:
        wide, high = inner, kept
        if pattern == "R" and wide > _ROW_BY_FOUR:
            wide //= 4
    else:
        together = next(count for count in (4, 2, 1) if inner % count == 0)
        wide, high = inner // together, total
    most = _MOST_THREADS // together
    wide, high = (power_within(min(size, most)) for size in (wide, high))
    width = min(wide, 32)
    height = min(high, most // width)
    width = min(wide, most // height)
    steps, results = (-(-total // width), 1) if by_rows else (total, width)
    groups = -(-kept // together)
    if steps < min(16 * height, _MOST_VALUES):
        return _Launch(width, height, together, by_rows, steps, -(-groups // (results * height)), 1)
    steps, blocks = -(-steps // height), -(-groups // results)
    room = threads // (width * height)
    parts = 1
    if steps >= _MOST_VALUES and blocks <= room:
        parts = max(min(-(-room // blocks), -(-steps // 16)), -(-steps // _MOST_VALUES))
    return _Launch(width, height, together, by_rows, -(-steps // parts), blocks, parts)


def geometry(variant: str, dims: tuple[int, ...], multiprocessors: int) -> tuple[float, ...]:
    """Returns, in doublings, how many elements a thread adds up, how many blocks a multiprocessor has, and how many
    results a thread computes at the same time; and 1 if several blocks share a result.

    With each measured call left out in turn, times were off by 13 % on average; by 22 without this, and without the
    blocks of `work`.

    Args:
        variant: The variant of the reduction (see `CallShape`).
        dims: As those of `blocks`.
        multiprocessors: The number of multiprocessors of the GPU.
    """
    launch = _launch(variant, dims, multiprocessors * _THREADS)
    each = launch.blocks * launch.parts / multiprocessors
    return math.log2(launch.steps), math.log2(each), math.log2(launch.together), float(launch.parts > 1)


def work(variant: str, dims: tuple[int, ...]) -> Work:
    """Returns the work of a reduction. As many multiprocessors take part as it has thread blocks on an H200.

    Args:
        variant: The variant of the reduction (see `CallShape`).
        dims: The number of results, the number of elements of each, the size of the innermost
            dimension, and the bytes of an element.
    """
    kept, total, _, each = dims
    launch = _launch(variant, dims, _MEASURED * _THREADS)
    return Work(0.0, float(kept * (total + 1) * each), launch.blocks * launch.parts)


FAMILY = Family(
    "reduction",
    (Axis("kept", 0.3), Axis("reduced", 0.3), Axis("inner", 0.3), Axis("item_bytes", 0.25)),
    describe,
    work,
    blocks=blocks,
    adapt=adapt,
    geometry=geometry,
)
