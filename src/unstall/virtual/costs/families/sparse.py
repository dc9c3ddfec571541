"""Operators that take or return sparse tensors. A call is described by how many elements are stored, by how many values
each of them has, and by the elements of its dense tensors and of its results.

In a signature, a sparse tensor is the list of its parts: indices and values (COO), or offsets, indices and values (CSR
and the like).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unstall.virtual.costs.families.family import Axis, CallShape, Family, Work, item_bytes
from unstall.virtual.costs.signature import Signature, TensorSpec

PREFIX = "sparse::"
_COO, _COMPRESSED = 2, 3  # parts
_PLACES = frozenset(("int64", "int32"))
_INDEX_BYTES = 8
_OF_SOME_ROWS = ("add_", "sparse_mask")
"""The operators that read and write only those elements of a dense tensor that the sparse one has."""


def describe(signature: Signature) -> CallShape | None:
    """Describes a call. Returns None for a call without sparse tensors."""
    name = signature.name.removeprefix(PREFIX)
    layouts: list[str] = []
    stored, each, dense, dtype = 0, 1, 0, ""
    for value in signature.inputs:
        for layout, tensors in _given(value):
            layouts.append(layout)
            if layout == "dense":
                dense += tensors[0].numel
                dtype = dtype or tensors[0].dtype
                continue
            places, values = tensors[-2:]
            stored += places.sizes[-1]
            each = max(each, values.numel // max(places.sizes[-1], 1))
            dtype = values.dtype
    results = sum(tensor.numel for tensor in signature.results if tensor.dtype not in _PLACES)
    if not dtype:
        return None
    if not stored:  # it makes one
        stored = max((tensor.sizes[-1] for tensor in signature.results if tensor.dtype in _PLACES), default=1)
    kinds = " ".join([name, *layouts])
    variants = [f"{kind} {kinds}" for kind in dict.fromkeys((dtype, "float32"))]
    if name.endswith("_"):
        variants += [variant.replace(name, name.rstrip("_"), 1) for variant in variants]
    return CallShape(tuple(variants), (max(stored, 1), each, max(dense, 1), max(results, 1)))


def _given(value: object) -> Iterator[tuple[str, Sequence[TensorSpec]]]:
    """Yields the layout and the parts of each tensor that an argument has."""
    if isinstance(value, TensorSpec):
        yield "dense", [value]
    if not isinstance(value, tuple) or not all(isinstance(part, TensorSpec) for part in value):
        return
    tensors = [part for part in value if isinstance(part, TensorSpec)]
    while tensors:
        compressed = len(tensors) >= _COMPRESSED and {part.dtype for part in tensors[:2]} <= _PLACES
        count = _COMPRESSED if compressed and len(tensors[0].sizes) == 1 else _COO
        parts, tensors = tensors[:count], tensors[count:]
        if count == _COMPRESSED:
            yield "csr", parts
        elif len(parts) == _COO:
            yield f"coo{parts[0].sizes[0]}", parts


def work(variant: str, dims: tuple[int, ...]) -> Work:
    """Returns the work of a call: places and values are read, and so are dense tensors; results are written.

    Args:
        variant: The variant of the call (see `CallShape`).
        dims: What `FAMILY` has as axes.
    """
    stored, each, dense, results = dims
    item = item_bytes(variant)
    whole = 0 if variant.split()[1] in _OF_SOME_ROWS else dense + results
    return Work(0.0, float(stored * (_INDEX_BYTES + 2 * each * item) + whole * item))


FAMILY = Family("sparse", (Axis("stored"), Axis("each"), Axis("dense", 0.5), Axis("results", 0.5)), describe, work)
