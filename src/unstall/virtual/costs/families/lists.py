"""Operators over lists of tensors, which torch splits into chunks, hundreds for one kernel."""

from __future__ import annotations

import re
from collections.abc import Iterable

from unstall.virtual.costs.families.family import Axis, CallShape, Family, Work
from unstall.virtual.costs.signature import Signature, TensorSpec

_CHUNK_ELEMENTS = 65_536
_MOST_BLOCKS = 320
_MOST_TENSORS = (110, 64, 48, 36, 30)
_MOST_TENSORS_WITH_SCALARS = (96, 64, 48, 36, 30)
"""The limits of one launch by the number of lists, as in torch's MultiTensorApply.cuh."""
_LISTS = re.compile(r"TensorList(ScalarList)?Metadata<(?:[a-z_: ]+, )?(\d)")


def describe(signature: Signature) -> CallShape | None:
    """The number of tensors, of their elements together, and of lists. Optimizers multiply a gradient by itself: one
    list, given twice.
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
    """How many elements each tensor of the first list has."""
    first = next(
        value for value in signature.inputs if isinstance(value, tuple) and value and isinstance(value[0], TensorSpec)
    )
    return [tensor.numel for tensor in first]


def work(variant: str, dims: tuple[int, ...]) -> Work:
    _, elements, lists, each = dims
    return 0.0, float(elements * each * (lists + 1))


def launches(kernel: str, sizes: Iterable[int]) -> list[float] | None:
    """The share of each launch in one pass over tensors of these many elements; None if `kernel` is of another kind.

    As in torch's `multi_tensor_apply`: a launch is full when its tensors or its blocks are.
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


FAMILY = Family(
    "list", (Axis("tensors"), Axis("elements"), Axis("lists", 2.0), Axis("item_bytes", 0.25)), describe, work
)
