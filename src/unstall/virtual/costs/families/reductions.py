"""Reductions of whole dimensions. What is kept and what is reduced, as it lies in memory."""

from __future__ import annotations

from itertools import groupby
from math import prod

from unstall.virtual.costs.families.family import Axis, Family, Shape, Work
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


def describe(signature: Signature) -> Shape | None:
    """The pattern names the groups of dimensions from the outermost in memory to the innermost: R is reduced, K is
    kept.
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
    return Shape(tuple(dict.fromkeys(variants)), dims)


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


def work(variant: str, dims: tuple[int, ...]) -> Work:
    kept, total, _, each = dims
    return 0.0, float(kept * (total + 1) * each)


FAMILY = Family(
    "reduction", (Axis("kept"), Axis("reduced"), Axis("inner", 0.5), Axis("item_bytes", 0.25)), describe, work
)
