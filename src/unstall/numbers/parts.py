"""Finds which elements of a tensor differ, if only some of them do: rows, columns, a block, or scattered elements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_MOST = 0.75  # of the elements: if more are in a block, that alone says nothing
_DENSE = 0.25  # of the elements of a block, how many differ at least
_SPARSE = 0.5  # of all elements: if more differ here and there, that alone says nothing
_ALIKE = 0.01  # by the differences of the part, how large those of the rest may be
_ROUNDING = 0.2  # by how far rounding may move elements, the same
_NAMED = 4  # indexes that are named one by one


@dataclass(frozen=True, slots=True)
class Part:
    """The elements of a tensor that differ between two runs, if all other elements agree.

    Attributes:
        indexes: If the elements that differ form a block: the block's indexes in each dimension.
            None if they do not.
        mask: A mask of the elements that differ.
        sentence: A sentence that says which elements differ.
        data: What `sentence` says, as numbers by name.
    """

    indexes: tuple[Tensor, ...] | None
    mask: Tensor
    sentence: str
    data: Mapping[str, Any]

    @property
    def is_told(self) -> bool:
        """Whether the part is so small that it is worth reporting even if its values show no pattern."""
        return bool(self.data["share"] <= (_MOST if self.indexes is not None else _SPARSE))

    def of(self, tensor: Tensor) -> Tensor:
        """Returns the part's elements in `tensor`. If they form a block, the result has the block's
        shape. If not, it has one dimension.
        """
        if self.indexes is None:
            return tensor[self.mask]
        for dim, at in enumerate(self.indexes):
            tensor = tensor.index_select(dim, at)
        return tensor


def parts_of(one: Tensor, other: Tensor, near: Tensor) -> Part | None:
    """Returns the elements in which the tensors `one` and `other` differ by more than `near`, if
    all other elements agree. `near` has, for each element, how much rounding may change it.

    Returns None if all elements differ, or if the other elements do not agree well enough.
    """
    difference = (other - one).abs()
    mask = ~(difference <= near)  # not a number is no less
    if not one.dim() or not mask.any():
        return None
    indexes = tuple(_any_but(mask, dim).nonzero().flatten() for dim in range(one.dim()))
    block = torch.zeros_like(mask)
    block[torch.meshgrid(*indexes, indexing="ij")] = True
    for inside, of in ((block, indexes), (mask, None)):
        share = float(inside.double().mean())
        is_dense = bool(mask.sum() >= _DENSE * inside.sum())
        if share < 1 and is_dense and _agrees(difference, near, inside, mask):
            return _block(of, mask, share) if of is not None else _scattered(mask, share)
    return None


def _agrees(difference: Tensor, near: Tensor, inside: Tensor, mask: Tensor) -> bool:
    """Returns whether the elements outside of a part clearly agree. It is not enough that they
    differ a bit less than the elements in the part.
    """
    sizes = difference[mask]
    usual = sizes[sizes.isfinite()]
    typical = _rms(usual) if len(usual) else float("inf")
    return _rms(difference[~inside]) <= max(_ALIKE * typical, _ROUNDING * _rms(near))


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt()) if values.numel() else 0.0


def _any_but(mask: Tensor, dim: int) -> Tensor:
    return mask.movedim(dim, 0).reshape(mask.shape[dim], -1).any(1)


def _block(indexes: tuple[Tensor, ...], mask: Tensor, share: float) -> Part:
    shape = tuple(mask.shape)
    some = [dim for dim, at in enumerate(indexes) if len(at) < shape[dim]]
    named = " and ".join(_named(indexes[dim].tolist(), shape[dim], dim, len(shape)) for dim in some)
    dimensions = {str(dim): _figures(indexes[dim].tolist()) for dim in some}
    verb = "differs" if all(len(indexes[dim]) == 1 for dim in some) or named.startswith("every") else "differ"
    sentence = f"Only {named} {verb} ({_percent(share)} of the elements)."
    return Part(indexes, mask, sentence, {"dimensions": dimensions, "share": share})


def _scattered(mask: Tensor, share: float) -> Part:
    count = int(mask.sum())
    first = mask.nonzero()[:_NAMED].tolist()
    at = " at " + ", ".join(str(each) for each in first) if count <= _NAMED else ""
    sentence = f"Only {count:,} of {mask.numel():,} elements differ ({_percent(share)}){at or ', here and there'}."
    return Part(None, mask, sentence, {"elements": count, "share": share, "first": first})


def _named(at: list[int], size: int, dim: int, dims: int) -> str:
    """Returns a phrase for the indexes `at` of the dimension `dim`: "rows 96 to 127 of dimension
    0", "every 4th column".
    """
    one = "element" if dims == 1 else ("row", "column")[dim] if dims == 2 else "index"
    many = "indexes" if one == "index" else f"{one}s"
    of = f" of dimension {dim}" if one in ("index", "row") else ""
    step = at[1] - at[0] if len(at) > 1 else 1
    if len(at) == 1:
        return f"{one} {at[0]}{of}"
    if at == list(range(at[0], size, step)) and step > 1 and at[0] < step and len(at) > 2:
        return f"every {_ordinal(step)} {one}{of} (from {at[0]})"
    if at == list(range(at[0], at[-1] + 1)):
        if at[-1] == size - 1 and len(at) <= _NAMED:
            return f"the last {len(at)} {many}{of}"
        if at[0] == 0 and len(at) <= _NAMED:
            return f"the first {len(at)} {many}{of}"
        return f"{many} {at[0]:,} to {at[-1]:,}{of}"
    if len(at) <= _NAMED:
        return f"{many} {', '.join(map(str, at))}{of}"
    return f"{len(at):,} of {size:,} {many}{of}"


def _figures(at: list[int]) -> dict[str, int]:
    step = at[1] - at[0] if len(at) > 1 else 1
    is_regular = at == list(range(at[0], at[-1] + 1, step))
    return {"first": at[0], "last": at[-1], "count": len(at), **({"step": step} if is_regular else {})}


def _ordinal(number: int) -> str:
    tens = number % 100 // 10 == 1
    return f"{number}{'th' if tens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
