"""Calls of many sizes served by few graphs: inputs are padded to a size of a few, results cut back.

That is the same only for functions where what is in the padding reaches no other element, and where the kernels of
the larger size add up in the same order. So it is proved: the first calls in each bucket run both ways, and one that
differs in a single bit ends it.

Floating numbers are padded with zeros, and proved with numbers above and below all of the call's own. Integers may be
indices, for which such numbers would be out of bounds: they are padded with values of the call's own, as are neither
less nor more than the others. Where that changes the result, as in a mask, zeros are tried.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from unstall.fix.graphs.look.examine import Examined
from unstall.fix.graphs.refusals import Refusal, Refused
from unstall.fix.graphs.signature import Call, call_of, exchanged
from unstall.fix.graphs.state import largest_difference, same_values
from unstall.fix.tensors.nesting import map_tensors, tensors_in
from unstall.fix.tensors.storages import storage_of

_MOST_FAMILIES = 64
_WHOLE = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
_PROVABLE = {*_WHOLE, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128}
_ONE_A_SHAPE = "unpadded it is, with a graph for each shape"
LOOKS = 10  # in a row, at what may be another thread's doing
_PROOFS = 2  # calls of different sizes that a bucket must get right before it is used

Dim = tuple[int, int]
"""A tensor's place among the inputs or outputs, and a dimension of it."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes to pad to, in order; none: powers of two."""

    given: tuple[int, ...] = ()

    def above(self, size: int) -> int:
        """The size to pad to; `size` itself where none is large enough."""
        if self.given:
            return next((each for each in self.given if each >= size), size)
        return 1 << max(0, size - 1).bit_length()


@dataclass(slots=True)
class _Bucket:
    proved: set[tuple[int, ...]] = field(default_factory=set)  # real sizes


@dataclass(slots=True)
class _Family:
    """Calls that differ in nothing but sizes."""

    others: list[Any]
    first: list[torch.Size]
    varying: set[Dim] = field(default_factory=set)
    sources: dict[Dim, set[Dim]] = field(default_factory=dict)  # of an output's dimension: inputs' that it may be
    buckets: dict[tuple[int, ...], _Bucket] = field(default_factory=dict)
    zeros: bool = False  # whether integers are padded with zeros, and not with the call's own
    off: bool = False
    changed_once: bool = False
    doubts: int = 0  # looks in a row that found what may be another thread's doing

    def enlarged(self, tensor: torch.Tensor, place: int, target: dict[Dim, int]) -> torch.Tensor:
        """Padded with zeros, or with one of its own integers."""
        own = tensor.dtype in _WHOLE and tensor.numel() and not self.zeros
        return _padded(tensor, place, target, tensor[(0,) * tensor.dim()] if own else None)

    def proof(self, tensor: torch.Tensor, place: int, target: dict[Dim, int], *, largest: bool) -> torch.Tensor:
        """Padded with floating numbers some above and some below all of its own, or with the `largest` or the least of
        its own integers."""
        larger = self.enlarged(tensor, place, target)
        if larger is tensor or not tensor.numel():
            return larger
        if tensor.dtype in _WHOLE:
            return larger if self.zeros else _padded(tensor, place, target, tensor.amax() if largest else tensor.amin())
        beyond = tensor.abs().amax().nan_to_num() + 1
        spread = torch.arange(larger.numel(), device=larger.device, dtype=torch.float32) * 0.618034 % 2 - 1
        return _padded(tensor, place, target, (spread.to(tensor.dtype) * 2 * beyond).view(larger.shape))


@dataclass(frozen=True, slots=True)
class Padded:
    """One call made larger. `real` and `target` are the sizes of the dimensions that vary, in order."""

    family: _Family
    call: Call
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensors: list[torch.Tensor]  # the call's own
    real: dict[Dim, int]
    target: dict[Dim, int]
    padding: int  # elements
    elements: int

    @property
    def bucket(self) -> _Bucket:
        return self.family.buckets.setdefault(tuple(self.target.values()), _Bucket())

    @property
    def proved(self) -> bool:
        """Whether calls like it were right. None is taken for right that is smaller than all that were tried."""
        sizes = tuple(self.real.values())
        proved = self.bucket.proved
        if any(len({self.real[at] for at in fits}) > 1 for fits in self.family.sources.values()):
            return False  # which of two inputs' sizes a result has was not to be told so far
        if self.real == self.target or sizes in proved:
            return True
        return len(proved) >= _PROOFS and all(map(operator.ge, sizes, map(min, zip(*proved, strict=True))))

    def trial(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with other numbers in the padding than a graph would find there: none may matter."""
        largest = len(self.bucket.proved) % 2 == 0
        tensors = [self.family.proof(t, place, self.target, largest=largest) for place, t in enumerate(self.tensors)]
        return exchanged(self.args, self.kwargs, tensors)

    def may_be_zeros(self) -> bool:
        """Takes zeros in the place of the call's own integers from now on, where these have been tried."""
        family = self.family
        grown = (own for own, larger in zip(self.tensors, self.call.tensors, strict=True) if own.shape != larger.shape)
        if family.zeros or not any(tensor.dtype in _WHOLE for tensor in grown):
            return False
        family.zeros = True
        family.buckets.clear()
        return True

    def cut(self, result: Any) -> Any:
        """The result of the larger call, cut back to what the call asked for."""
        places = iter(range(len(tensors_in(result))))

        def cut(tensor: torch.Tensor) -> torch.Tensor:
            place = next(places)
            whole = tensor
            for dim in range(tensor.dim()):
                if (place, dim) in self.family.sources:
                    size = self.real[min(self.family.sources[place, dim])]
                    tensor = tensor.narrow(dim, 0, size) if size < tensor.shape[dim] else tensor
            # As nearly all results are; `prove` refuses others.
            return tensor if tensor is whole else tensor.contiguous()

        return map_tensors(result, cut)


class Buckets:
    """The families of calls that one function has had."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._families: OrderedDict[Any, _Family] = OrderedDict()

    def padded(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Padded | None:
        """The call in its bucket; None while nothing has varied, and where padding was found to be no way."""
        family = self._family(call)
        if family.off:
            return None
        for place, (tensor, first) in enumerate(zip(call.tensors, family.first, strict=True)):
            family.varying |= {(place, dim) for dim in range(tensor.dim()) if tensor.shape[dim] != first[dim]}
        if not family.varying or any(t.requires_grad or t.dtype not in _PROVABLE for t in call.tensors):
            return None
        order = sorted(family.varying)
        real = {(place, dim): call.tensors[place].shape[dim] for place, dim in order}
        target = {dim: self._sizes.above(size) for dim, size in real.items()}
        tensors = [family.enlarged(tensor, place, target) for place, tensor in enumerate(call.tensors)]
        others, named = exchanged(args, kwargs, tensors)
        elements = sum(tensor.numel() for tensor in tensors)
        padding = elements - sum(tensor.numel() for tensor in call.tensors)
        larger = call_of(others, named)
        return Padded(family, larger, others, named, call.tensors, real, target, padding, elements)

    def progress(self) -> str:
        """How far the bucket is that has had most proofs, in words."""
        proved = (len(bucket.proved) for family in self._families.values() for bucket in family.buckets.values())
        most = max(proved, default=0)
        return f"before that a bucket must give the same bits for {_PROOFS} sizes, and did so for {most}"

    def _family(self, call: Call) -> _Family:
        key = tuple(_without_sizes(part) for part in call.key)
        if key not in self._families:
            self._families[key] = _Family(call.others, [tensor.shape for tensor in call.tensors])
            if len(self._families) > _MOST_FAMILIES:
                self._families.popitem(last=False)
        self._families.move_to_end(key)
        return self._families[key]


def prove(padded: Padded, found: Examined, run: Callable[[], Any]) -> None:
    """Compares a call's own result with that of the larger one, which `run` gives. It is run where the call changed
    nothing else. Raises `Refused`, and the family is left alone then."""
    exact, seen = found.result, found.seen
    try:
        if seen.refusals:
            raise Refused(seen.refusals[0])
        padded.family.doubts = padded.family.doubts + 1 if seen.doubts else 0
        if seen.doubts:
            if padded.family.doubts < LOOKS:
                return
            raise Refused(seen.doubts[0])
        if found.changed:
            if not padded.family.changed_once:  # it may have filled a cache
                padded.family.changed_once = True
                return
            reason = f"it changes the program's own state at each call: {found.changed[0]}"
            raise Refused(Refusal(reason, None, "do that outside, or write into a tensor"))
        if seen.written or seen.written_inputs or seen.random:
            raise Refused(Refusal("padding would change what it does beside its result", None, _ONE_A_SHAPE))
        larger = _larger(run)
        if map_tensors(exact, _nothing) != map_tensors(larger, _nothing):
            raise Refused(Refusal("its result tells a size as a number", None, _ONE_A_SHAPE))
        results = tensors_in(exact)
        storages = [storage_of(tensor) for tensor in {id(tensor): tensor for tensor in results}.values()]
        if len(set(storages)) < len(storages) or not set(storages).isdisjoint(map(storage_of, padded.tensors)):
            raise Refused(Refusal("its result shares memory with an argument or another result", None, _ONE_A_SHAPE))
        _find_sources(padded, results, tensors_in(larger))
        for mine, theirs in zip(results, tensors_in(padded.cut(larger)), strict=True):
            if mine.stride() != theirs.stride():
                raise Refused(Refusal("its result has other strides when it is cut back", None, _ONE_A_SHAPE))
            if not same_values(mine, theirs):
                if padded.may_be_zeros():
                    return
                off = largest_difference(mine, theirs)
                raise Refused(Refusal(f"padding changes its result by up to {off:.3g}", None, _ONE_A_SHAPE))
    except Refused:
        padded.family.off = True
        raise
    padded.bucket.proved.add(tuple(padded.real.values()))


def _larger(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except Exception as error:  # inputs that must be as large as each other, and do not all grow
        said = str(error).splitlines() or [type(error).__name__]
        raise Refused(Refusal(f"padded, it raises: {said[0]}", None, _ONE_A_SHAPE)) from error


def _find_sources(padded: Padded, exact: list[torch.Tensor], larger: list[torch.Tensor]) -> None:
    """Which input's dimension each dimension of the results that has grown goes with."""
    odd = Refusal("padded, its result has a size that is no input's", None, _ONE_A_SHAPE)
    if len(exact) != len(larger):
        raise Refused(odd)
    sources = padded.family.sources
    for place, (mine, theirs) in enumerate(zip(exact, larger, strict=True)):
        if mine.dim() != theirs.dim():
            raise Refused(odd)
        for dim in range(mine.dim()):
            sizes = (mine.shape[dim], theirs.shape[dim])
            if sizes[0] == sizes[1] and (place, dim) not in sources:
                continue
            fits = {at for at in padded.real if (padded.real[at], padded.target[at]) == sizes}
            sources[place, dim] = sources.get((place, dim), fits) & fits
            if not sources[place, dim]:
                raise Refused(odd)


def _nothing(_: torch.Tensor) -> None:
    return None


def _padded(tensor: torch.Tensor, place: int, target: dict[Dim, int], fill: torch.Tensor | None = None) -> torch.Tensor:
    """`fill`: one value, or all, where it is not to be zeros. The tensor itself where it is large enough."""
    shape = [target.get((place, dim), size) for dim, size in enumerate(tensor.shape)]
    if shape == list(tensor.shape):
        return tensor
    larger = tensor.new_zeros(shape)
    if fill is not None:
        larger.copy_(fill)
    larger[tuple(slice(0, size) for size in tensor.shape)] = tensor
    return larger


def _without_sizes(part: Any) -> Any:
    if isinstance(part, tuple) and part and isinstance(part[0], torch.Size):
        return (len(part[0]), *part[2:])
    return part
