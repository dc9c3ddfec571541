"""Operators on lists of tensors. torch splits the tensors into chunks, and one kernel processes hundreds of chunks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from unstall.virtual.costs.families.family import Axis, CallShape, Family, Work
from unstall.virtual.costs.signature import Signature, TensorSpec

_CHUNK_ELEMENTS = 65_536
_MOST_BLOCKS = 320
_MOST_TENSORS = (110, 64, 48, 36, 30)
_MOST_TENSORS_WITH_SCALARS = (96, 64, 48, 36, 30)
"""How many tensors one launch can process at most, for operators on 1, 2, 3 … lists, as in torch's
MultiTensorApply.cuh.
"""
_LISTS = re.compile(r"TensorList(ScalarList)?Metadata<(?:[a-z_: ]+, )?(\d)")


def describe(signature: Signature) -> CallShape | None:
    """Describes a call by the number of tensors in a list, the number of all their elements, and
    the number of different lists. Returns None if no argument is a list of tensors.

    `_foreach_addcmul_` multiplies two lists. They count as one, because optimizers pass the
    gradients for both.
    """
    lists = [
        value for value in signature.inputs if isinstance(value, tuple) and value and isinstance(value[0], TensorSpec)
    ]
    if not lists:
        return None
    first = lists[0]
    elements = sum(tensor.numel for tensor in first)
    name = signature.name.removeprefix("aten::")
    dtype = first[0].dtype
    distinct = len(lists) - (name == "_foreach_addcmul_" and len(lists) == 3)
    return CallShape(
        (
            f"{dtype} {name}.{signature.overload}",
            f"{dtype} {name}.",
            f"float32 {name}.{signature.overload}",
            "float32 _foreach_add_.List",
        ),
        (len(first), max(elements, 1), distinct, first[0].item_bytes),
    )


def sizes_of(signature: Signature) -> list[int]:
    """Returns the number of elements of each tensor in the first list of a call."""
    first = next(
        value for value in signature.inputs if isinstance(value, tuple) and value and isinstance(value[0], TensorSpec)
    )
    return [tensor.numel for tensor in first]


def work(variant: str, dims: tuple[int, ...]) -> Work:
    """Returns the work of a call on lists of tensors.

    Args:
        variant: Not used.
        dims: The number of tensors in a list, the number of all their elements, the number of
            lists, and the bytes of an element.
    """
    _, elements, lists, each = dims
    return Work(0.0, float(elements * each * (lists + 1)))


def launches(kernel: str, sizes: Iterable[int]) -> list[float] | None:
    """Splits one pass over a list of tensors into launches, as torch's `multi_tensor_apply` does: a
    launch is full once it has the maximum number of tensors or of thread blocks.

    Args:
        kernel: The name of the kernel.
        sizes: The number of elements of each tensor.

    Returns:
        For each launch, its share of all elements. None if `kernel` is not a kernel on lists of
        tensors.
    """
    found = _LISTS.search(kernel)
    if "multi_tensor_apply_kernel" not in kernel or not found:
        return None
    most = (_MOST_TENSORS_WITH_SCALARS if found[1] else _MOST_TENSORS)[int(found[2]) - 1]
    shares: list[float] = []
    tensors = blocks = work_done = 0
    total = 0
    for size in sizes:
        if not size:
            continue
        total += size
        tensors += 1
        chunks = -(-size // _CHUNK_ELEMENTS)
        for chunk in range(chunks):
            blocks += 1
            work_done += min(_CHUNK_ELEMENTS, size - chunk * _CHUNK_ELEMENTS)
            last = chunk == chunks - 1
            if blocks == _MOST_BLOCKS or (last and tensors == most):
                shares.append(work_done)
                blocks = work_done = 0
                tensors = 0 if last else 1
    if blocks:
        shares.append(work_done)
    return [share / total for share in shares]


def blocks(variant: str, dims: tuple[int, ...], kernel: str) -> int:
    """Returns how many thread blocks a launch of a kernel has on average, if all tensors have the same size. Returns 0
    for other kernels: their number is unknown.

    Args:
        variant: The variant of the call (see `CallShape`).
        dims: As those of `work`.
        kernel: The name of the kernel.
    """
    count, number = _launches(variant, dims)
    return -(-count // number) if "multi_tensor_apply_kernel" in kernel else 0


def _launches(variant: str, dims: tuple[int, ...]) -> tuple[int, int]:
    """Returns the number of thread blocks of a call, if all tensors have the same size, and the number of launches."""
    tensors, elements, lists, _ = dims
    if "_fused_adam" in variant:
        lists -= 1  # the numbers of steps are no tensors of theirs
    count = tensors * max(-(-elements // (tensors * _CHUNK_ELEMENTS)), 1)
    most_of = _MOST_TENSORS_WITH_SCALARS if "ScalarList" in variant else _MOST_TENSORS
    most = most_of[min(max(lists, 1), len(most_of)) - 1]
    return count, max(-(-count // _MOST_BLOCKS), -(-tensors // most))


def geometry(variant: str, dims: tuple[int, ...], multiprocessors: int) -> tuple[float, ...]:
    """Returns how many thread blocks a launch has, how many elements a block, and how many launches there are, in
    doublings, if all tensors have the same size.

    With each measured call left out in turn, times were off by 27 % on average, and by 42 without this.

    Args:
        variant: The variant of the call (see `CallShape`).
        dims: As those of `work`.
        multiprocessors: The number of multiprocessors of the GPU.
    """
    count, number = _launches(variant, dims)
    each = max(dims[1] / count, 1.0)
    return math.log2(count / (number * multiprocessors)), math.log2(each), 1.5 * math.log2(number)


FAMILY = Family(
    "list",
    (Axis("tensors"), Axis("elements"), Axis("lists", 2.0), Axis("item_bytes", 0.25)),
    describe,
    work,
    blocks=blocks,
    geometry=geometry,
)
