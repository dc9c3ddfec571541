"""Serves calls with many input sizes by a few CUDA graphs. Inputs are padded to one of a few sizes, and results are cut
to the size that they would have without padding. All calls that are padded to the same sizes are a bucket.

With padding, a result keeps its bits only in two conditions: no element of the result depends on the padding, and the
kernels for the larger size add numbers in the same order. So padding is tested before it is used: the first calls in
each bucket run both with and without padding. If the two results differ in one bit, padding is not used.

Floating-point inputs are padded with zeros. In tests, they are padded with numbers above and below all values of the
input. Integers may be indices, and numbers above all values would be out of bounds. So an integer input is padded with
one of its own values, and in tests with its smallest or its largest value. If this padding changes the result, which
happens for a mask, zeros are tried.

Measured gain for 120 calls with 52 sizes: with padding, graphs serve 96 calls, after 7 captures. With a graph for each
size, and the default of at most eight graphs, graphs serve 50 calls, after 41 captures. To reproduce:
`test_few_graphs_serve_many_sizes` in `tests/fix/graphed/test_buckets.py`.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import torch

from unstall.fix.graphs.cache_entry import MOST_UNCERTAIN
from unstall.fix.graphs.call_arguments import CallArguments, Key, arguments_of
from unstall.fix.graphs.capture.capture_device import CaptureDevice
from unstall.fix.graphs.disabled import graphs_disabled
from unstall.fix.graphs.examine.examined_call import Examined, examined
from unstall.fix.graphs.examine.warnings_raised import silent_proof
from unstall.fix.graphs.refusals import Refusal, Refused, failure
from unstall.fix.graphs.verify import largest_difference
from unstall.fix.tensors.nesting import map_tensors, tensors_in
from unstall.fix.tensors.storages import storage_of
from unstall.rounding.agree import same_values

_MOST_FAMILIES = 64
_WHOLE = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
_PROVABLE = {*_WHOLE, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128}
_ONE_A_SHAPE = "unpadded it is, with a graph for each shape"
_PROOFS = 2  # calls of different sizes that a bucket must get right before it is used

Dim = tuple[int, int]
"""A dimension of an input or output tensor: the index of the tensor among the inputs or outputs of a call, and the
number of the dimension."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes that inputs are padded to, in ascending order. If no sizes are given, inputs are padded to powers of
    two."""

    given: tuple[int, ...] = ()

    def above(self, size: int) -> int:
        """Returns the size that `size` is padded to. Returns `size` itself if it exceeds all given sizes."""
        if self.given:
            return next((each for each in self.given if each >= size), size)
        return 1 << max(0, size - 1).bit_length()


@dataclass(slots=True)
class _Bucket:
    proved: set[tuple[int, ...]] = field(default_factory=set)  # sizes before padding


@dataclass(slots=True)
class _Family:
    """What is known about all calls of a function that differ only in the sizes of their inputs.

    Attributes:
        others: Objects whose ids are in the key of these calls. They are kept alive, so that no id is used twice.
        first: The shapes of the inputs of the first call.
        varying: The input dimensions whose sizes differ between calls.
        sources: For each output dimension that padding enlarges, the input dimensions that may have the same size.
        buckets: What is known about each combination of padded sizes.
        zeros: True: integers are padded with zeros. False: with one of the input's own values.
        off: Whether these calls are never padded.
        changed_once: Whether a call has changed Python-side state.
        uncertain_runs: How many observed calls in a row had uncertain use of a random number generator: the call or
            another thread used it.
    """

    others: list[object]
    first: list[torch.Size]
    varying: set[Dim] = field(default_factory=set)
    sources: dict[Dim, set[Dim]] = field(default_factory=dict)
    buckets: dict[tuple[int, ...], _Bucket] = field(default_factory=dict)
    zeros: bool = False
    off: bool = False
    changed_once: bool = False
    uncertain_runs: int = 0

    def enlarged(self, tensor: torch.Tensor, place: int, target: dict[Dim, int]) -> torch.Tensor:
        """Returns an input tensor padded to the sizes in `target`. Floating-point tensors are padded with zeros.
        Integer tensors are padded with one of the tensor's values, or with zeros if `zeros` is set.

        Args:
            tensor: The input tensor.
            place: The index of this tensor among the inputs.
            target: The size of each input dimension that is padded.
        """
        own = tensor.dtype in _WHOLE and tensor.numel() and not self.zeros
        return _padded(tensor, place, target, tensor[(0,) * tensor.dim()] if own else None)

    def proof(self, tensor: torch.Tensor, place: int, target: dict[Dim, int], *, largest: bool) -> torch.Tensor:
        """Returns an input tensor padded for a test whether padding changes the result. Floating-point tensors are
        padded with numbers above and below all values of the tensor. Integer tensors are padded with a value of the
        tensor, or with zeros if `zeros` is set.

        Args:
            tensor: The input tensor.
            place: The index of this tensor among the inputs.
            target: The size of each input dimension that is padded.
            largest: Whether an integer tensor is padded with its largest value. If False, with its smallest value.
        """
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
    """A call with padded inputs.

    Attributes:
        family: What is known about the calls that differ from this call only in the sizes of their inputs.
        call: The call with padded inputs.
        given: The call with its inputs before padding.
        real: The sizes of the varying input dimensions before padding.
        target: The sizes of the varying input dimensions after padding.
        padding: The number of elements in the padding of all inputs.
        elements: The number of elements in all padded inputs.
    """

    family: _Family
    call: CallArguments
    given: CallArguments
    real: dict[Dim, int]
    target: dict[Dim, int]
    padding: int
    elements: int

    @property
    def bucket(self) -> _Bucket:
        return self.family.buckets.setdefault(tuple(self.target.values()), _Bucket())

    @property
    def proved(self) -> bool:
        """Whether tests have shown that this padding does not change any bit of the result. Tests with larger sizes
        show nothing about a smaller size."""
        sizes = tuple(self.real.values())
        proved = self.bucket.proved
        if any(len({self.real[at] for at in fits}) > 1 for fits in self.family.sources.values()):
            return False  # a result may have either of two inputs' sizes, which have been equal so far
        if self.real == self.target or sizes in proved:
            return True
        return len(proved) >= _PROOFS and all(map(operator.ge, sizes, map(min, zip(*proved, strict=True))))

    def trial(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns `(args, kwargs)`: the arguments of the padded call for a test whether padding changes the result. For
        the test, the padding has other values than in a call that a graph serves."""
        largest = len(self.bucket.proved) % 2 == 0
        given = enumerate(self.given.tensors)
        tensors = [self.family.proof(tensor, place, self.target, largest=largest) for place, tensor in given]
        return self.given.exchanged(tensors)

    def may_be_zeros(self) -> bool:
        """From now on, pads integer inputs with zeros. This concerns all calls that differ from this call only in
        sizes.

        Returns True if this changes the padding of this call. Returns False if integers were already padded with zeros,
        or if the call has no integers to pad.
        """
        family = self.family
        pairs = zip(self.given.tensors, self.call.tensors, strict=True)
        grown = (own for own, larger in pairs if own.shape != larger.shape)
        if family.zeros or not any(tensor.dtype in _WHOLE for tensor in grown):
            return False
        family.zeros = True
        family.buckets.clear()
        return True

    def cut(self, result: Any) -> Any:
        """Returns `result`, the result of the padded call, with its tensors cut to the sizes that they would have
        without padding."""
        places = iter(range(len(tensors_in(result))))

        def cut(tensor: torch.Tensor) -> torch.Tensor:
            place = next(places)
            whole = tensor
            for dim in range(tensor.dim()):
                if (place, dim) in self.family.sources:
                    size = self.real[min(self.family.sources[place, dim])]
                    tensor = tensor.narrow(dim, 0, size) if size < tensor.shape[dim] else tensor
            # Nearly all results are contiguous; `_prove` refuses others.
            return tensor if tensor is whole else tensor.contiguous()

        return map_tensors(result, cut)


class Buckets:
    """Pads the inputs of the calls of one function. Keeps what is known about calls that differ only in the sizes of
    their inputs."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._families: OrderedDict[Key, _Family] = OrderedDict()

    def padded(self, call: CallArguments) -> Padded | None:
        """Returns the call with its inputs padded. Returns None in three cases: all such calls so far had inputs of the
        same sizes, padding was found to change results, or padding cannot be tested (for example because an input
        requires gradients)."""
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
        larger = arguments_of(*call.exchanged(tensors))
        elements = sum(tensor.numel() for tensor in tensors)
        padding = elements - sum(tensor.numel() for tensor in call.tensors)
        return Padded(family, larger, call, real, target, padding, elements)

    def progress(self) -> str:
        """Returns a phrase about the tests of padding: for how many input sizes the results must be the same before
        padding is used, and for how many sizes they were the same so far."""
        proved = (len(bucket.proved) for family in self._families.values() for bucket in family.buckets.values())
        most = max(proved, default=0)
        return f"before that a bucket must give the same bits for {_PROOFS} sizes, and did so for {most}"

    def _family(self, call: CallArguments) -> _Family:
        key = tuple(_without_sizes(part) for part in call.key)
        if key not in self._families:
            self._families[key] = _Family(call.others, [tensor.shape for tensor in call.tensors])
            if len(self._families) > _MOST_FAMILIES:
                self._families.popitem(last=False)
        self._families.move_to_end(key)
        return self._families[key]


def proved_run(
    device: CaptureDevice, function: Callable[..., Any], padded: Padded, call: CallArguments
) -> tuple[Any, Refusal | None]:
    """Runs a call eagerly. If the call has no effect except its result, also runs the padded call, and compares the two
    results.

    Returns `(result, refusal)`: the result of the call without padding, and the reason why padding must not be used, or
    None. If there is a reason, calls that differ from this call only in sizes are never padded.

    Args:
        device: The device.
        function: The function that is called.
        padded: The call with padded inputs.
        call: The call without padding.
    """
    result, found = examined(device, function, call)
    try:
        args, kwargs = padded.trial()
        with device.capture_stream(), graphs_disabled(), silent_proof():
            _prove(padded, result, found, lambda: function(*args, **kwargs))
    except Refused as refused:
        padded.family.off = True
        return result, refused.refusals[0]
    except Exception as error:
        padded.family.off = True
        return result, failure("padded", error)
    return result, None


def _prove(padded: Padded, exact: object, found: Examined, run: Callable[[], object]) -> None:
    """Compares `exact`, the result of the call without padding, with the result of the padded call. `run` makes the
    padded call and returns the result of this call. If all bits are equal, records that padding is proved for these
    sizes. Raises `Refused` if padding must not be used."""
    seen, family = found.seen, padded.family
    if seen.refusals:
        raise Refused(seen.refusals[0])
    family.uncertain_runs = family.uncertain_runs + 1 if seen.uncertain else 0
    if seen.uncertain:
        if family.uncertain_runs < MOST_UNCERTAIN:
            return
        raise Refused(seen.uncertain[0])
    if found.changed:
        if not family.changed_once:  # it may have filled a cache
            family.changed_once = True
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
    if len(set(storages)) < len(storages) or not set(storages).isdisjoint(map(storage_of, padded.given.tensors)):
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
    padded.bucket.proved.add(tuple(padded.real.values()))


def _larger(run: Callable[[], object]) -> object:
    try:
        return run()
    except Exception as error:  # for example, inputs must have equal sizes and only some were padded
        said = str(error).splitlines() or [type(error).__name__]
        raise Refused(Refusal(f"padded, it raises: {said[0]}", None, _ONE_A_SHAPE)) from error


def _find_sources(padded: Padded, exact: list[torch.Tensor], larger: list[torch.Tensor]) -> None:
    """For each result dimension that padding enlarges, finds the input dimensions that may determine its size.

    Raises `Refused` if a result dimension has a size that comes from no input dimension.
    """
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
    """Returns the tensor padded to the sizes in `target`. The padding has the values of `fill`, which is a scalar or a
    tensor of the padded shape. If `fill` is None, the padding is zeros. `place` is the index of the tensor among the
    inputs."""
    shape = [target.get((place, dim), size) for dim, size in enumerate(tensor.shape)]
    if shape == list(tensor.shape):
        return tensor
    larger = tensor.new_zeros(shape)
    if fill is not None:
        larger.copy_(fill)
    larger[tuple(slice(0, size) for size in tensor.shape)] = tensor
    return larger


def _without_sizes(part: Hashable) -> Hashable:
    if isinstance(part, tuple) and part and isinstance(part[0], torch.Size):
        return (len(part[0]), *part[2:])
    return part
