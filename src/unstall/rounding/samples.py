"""Samples of the tensors of a run: some elements of each tensor, and a sum of all its elements.

Few elements are stored of an operator's result; more of the results, gradients and arguments of the
run.

Each element of the sum has a random sign. So errors of the elements do not cancel and do not pile
up: the sum's error is about the root of the sum of their squares, like that of independent errors,
even if all errors have one sign (N. Alon, Y. Matias, M. Szegedy, "The space complexity of
approximating the frequency moments", STOC 1996). So the sum shows a difference in a few elements of
a large tensor, even if these elements are not stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from unstall.guest.device import capturing
from unstall.guest.graph_capture import nvidia_driver
from unstall.rounding.facts import UNIT, facts_of, is_plain, may_be_on_its_way, real_parts, sums_of, tensors_of
from unstall.rounding.operators import Place

SAMPLES, ENDS = 64, 1 << 16
"""The largest number of elements that are stored: `SAMPLES` of an operator's result, `ENDS` of a
result, gradient or argument of the run.
"""
PIECE = 1 << 22
"""The largest number of elements that are added up at once, which limits the memory that this takes."""
_SMALL = 4096  # up to that many elements, all are copied to the host, and added up there
_PENDING = 1024  # tensors whose elements stay on their devices until they are copied to the host at once
_OUTPUT = 1 << 18  # numbers that kernels write to one tensor
SUMMED = (*UNIT, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
"""The types of tensors of which samples are stored."""

Floats = NDArray[np.float64]


class Seen(msgspec.Struct, frozen=True, gc=False):
    """The sample of one tensor of a run.

    Attributes:
        kind: What the tensor is. "given": an input, parameter or buffer before the run. "after":
            one after the run. "operator": a result of an operator. "result" and "gradient": those
            of the run. In a recorded program also "value": a value that the program read, and
            "weight": a weight that it wrote.
        name: The name of the input, parameter or operator, such as "weight" or "mm"; or the number
            of the run's result.
        place: The source line that called the operator.
        shape: The shape. A complex tensor has one dimension more, for the real and the imaginary
            part.
        dtype: The type.
        values: The stored elements, as float64. Which elements are stored depends only on the
            shape.
        total: The sum of all elements, each with a random sign. The sign of an element depends only
            on its position.
        terms: How many terms the operator adds up for each element; 0 if it adds nothing up.
    """

    kind: str
    name: str
    place: Place
    shape: tuple[int, ...]
    dtype: torch.dtype
    values: Floats
    total: float = 0.0
    terms: int = 0

    @property
    def key(self) -> tuple[object, ...]:
        """A key that is equal for the same tensor of another run. The line number is not part of
        it, because the line may have moved.
        """
        return self.kind, self.name, self.place.backward, self.shape

    @property
    def loose_key(self) -> tuple[object, ...]:
        """`key` without the name: the operator may have another name in another run. Attention, for
        example, is another operator on the CPU than on a GPU.
        """
        return self.kind, self.place.backward, self.shape


@dataclass(frozen=True, slots=True)
class Ran:
    """The samples of all tensors of a run.

    Attributes:
        given: The arguments before the run, by name.
        operators: The results of operators, in the order of the calls.
        ends: The outputs of the run, by kind and name: results, gradients, and arguments after the
            run. In a recorded program: values that it read, and weights that it wrote.
        complete: Whether the run was recorded to its end.
    """

    given: dict[str, Seen]
    operators: tuple[Seen, ...]
    ends: dict[tuple[str, str], Seen]
    complete: bool = True

    def __len__(self) -> int:
        return len(self.given) + len(self.operators) + len(self.ends)


class _Pending(msgspec.Struct, frozen=True, gc=False):
    """The sample of a tensor while it is still on the tensor's device.

    The attributes `kind` to `terms` are those of `Seen`.

    Attributes:
        most: The largest number of elements to store.
        numbers: A flat tensor. From index `start` on, it has `kept` elements of the sampled tensor,
            and then `sums` partial sums of all its elements.
        sums: Number of partial sums; 0 if `numbers` has all elements of the sampled tensor.
    """

    kind: str
    name: str
    place: Place
    shape: tuple[int, ...]
    dtype: torch.dtype
    terms: int
    most: int
    numbers: torch.Tensor
    start: int
    kept: int
    sums: int


@dataclass(slots=True)
class _Output:
    """A tensor on a GPU that the kernels of one stream fill one after the other.

    Attributes:
        numbers: The flat tensor.
        used: How many of its elements are filled.
    """

    numbers: torch.Tensor
    used: int = 0


class Kept:
    """Takes samples of tensors. They stay on the tensors' devices until there are many, or until
    `flush`.

    Args:
        full: A function that is called with samples, in order, each time they have been copied to
            the host. If None, `seen` returns them.
    """

    def __init__(self, full: Callable[[list[Seen]], None] | None = None) -> None:
        self._count = 0
        self._seen: list[Seen] = []
        self._full = full or self._seen.extend
        self._pending: list[_Pending] = []
        self._outputs: dict[tuple[int, int], _Output] = {}  # by the index of the device and the stream

    def __len__(self) -> int:
        """The number of samples that have been taken."""
        return self._count

    def of_operator(self, func: Any, args: tuple[Any, ...], place: Place, result: Any) -> None:
        """Takes samples of the floating-point tensors in `result`, which the operator `func`
        returned for `args`. `place` is the line that called it.

        Results that share memory with an argument, or that may have no values yet, are left out. To wait for the values
        would hide that the program reads them too early.
        """
        facts = facts_of(func)
        if facts.is_view or facts.is_unset:
            return
        floats = [
            each
            for each in tensors_of(result)
            if (each.is_floating_point() or each.is_complex())
            and is_kept(each)
            and not may_be_on_its_way(func, args, each)
        ]
        if floats:
            self.keep_all("operator", facts.name, place, floats, SAMPLES, sums_of(facts.name, args))

    def keep(self, kind: str, name: str, place: Place, tensor: torch.Tensor, most: int) -> None:
        """Takes a sample of at most `most` elements of `tensor`, unless `is_kept` is false for it.
        The other arguments are attributes of `Seen`.
        """
        if is_kept(tensor):
            self.keep_all(kind, name, place, (tensor,), most)

    def keep_all(
        self, kind: str, name: str, place: Place, tensors: Sequence[torch.Tensor], most: int, terms: int = 0
    ) -> None:
        """Takes a sample of each tensor, of at most `most` elements. `is_kept` must be true for
        each of them.

        `kind`, `name`, `place` and `terms` are attributes of `Seen`. Only the sample of the first
        tensor has `terms`.
        """
        reals = [real_parts(each.detach()) for each in tensors]
        small = [each for each in reals if each.numel() <= max(most, _SMALL)]
        joined = _joined(small)
        for each, real in zip(tensors, reals, strict=True):
            count = real.numel()
            if count > max(most, _SMALL):
                numbers, start, kept, sums = self._sampled(real, most)
            else:
                numbers, start = next(joined)
                kept, sums = count, 0
            shape = tuple(real.shape)
            self._pending.append(
                _Pending(kind, name, place, shape, each.dtype, terms, most, numbers, start, kept, sums)
            )
            terms = 0
        self._count += len(reals)
        if len(self._pending) >= _PENDING and not capturing():
            self.flush()

    def _sampled(self, given: torch.Tensor, most: int) -> tuple[torch.Tensor, int, int, int]:
        """Takes a sample of a tensor with more than `most` elements. Returns `numbers`, `start`,
        `kept` and `sums` of `_Pending`.
        """
        places, signs = positions(given.numel(), given.device, most), _signs(given.device)
        kept = len(places)
        if given.is_cuda and (given.is_contiguous() or given.numel() <= PIECE):
            kernel = _kernel(given.dtype, given.device)
            if kernel is not None:
                sums = kernel.partial_sums(given.numel())
                numbers, start = self._room(given.device, kept + sums)
                kernel.sample(given.contiguous(), places, signs, numbers, start)
                return numbers, start, kept, sums
        exact = given.dtype if given.is_floating_point() else torch.float64  # the least integer has no negative
        sums = [
            (piece.to(exact) * signs[at : at + piece.numel()]).sum(dtype=torch.float64) for at, piece in _pieces(given)
        ]
        return torch.cat((given.take(places).double(), torch.stack(sums))), 0, kept, len(sums)

    def _room(self, device: torch.device, count: int) -> tuple[torch.Tensor, int]:
        """Returns `(tensor, index)`: a flat float64 tensor, in which `count` elements from `index`
        on are free for the current stream.

        The tensor was allocated on this stream. So whatever used its memory before ends before the
        stream writes to it.
        """
        key = device.index, torch._C._cuda_getCurrentRawStream(device.index)
        output = self._outputs.get(key)
        if output is None or output.used + count > output.numbers.numel():
            numbers = torch.empty(max(_OUTPUT, count), dtype=torch.float64, device=device)
            output = self._outputs[key] = _Output(numbers)
        start = output.used
        output.used += count
        return output.numbers, start

    def flush(self) -> None:
        """Copies all samples that are still on a device to the host, and hands them to the function `full`."""
        pending, self._pending = self._pending, []
        made = {id(each.numbers): each.numbers for each in pending}
        on_host = dict(zip(made, _on_host(list(made.values())), strict=True))
        for output in self._outputs.values():
            output.used = 0
        signs, seen = _few_signs(), list[Seen]()
        with np.errstate(invalid="ignore", over="ignore"):
            for each in pending:
                numbers, end = on_host[id(each.numbers)], each.start + each.kept
                values = numbers[each.start : end]
                if each.sums:
                    total = float(np.add.reduce(numbers[end : end + each.sums]))
                else:
                    total = float(np.add.reduce(values * signs[: each.kept]))
                    values = values[_places(each.kept, each.most)] if each.kept > each.most else values
                seen.append(
                    Seen(each.kind, each.name, each.place, each.shape, each.dtype, values.copy(), total, each.terms)
                )
        self._full(seen)

    def seen(self) -> list[Seen]:
        """Returns all samples in order, if no function `full` was given."""
        self.flush()
        return self._seen


def is_kept(tensor: torch.Tensor) -> bool:
    """Returns whether a sample of the tensor can be taken: its type is one of `SUMMED`, and its
    elements have values.

    A tensor on a GPU has no values while a CUDA graph is captured: operators do not run then.
    """
    if tensor.dtype not in SUMMED or not is_plain(tensor):
        return False
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def _joined(tensors: Sequence[torch.Tensor]) -> Iterator[tuple[torch.Tensor, int]]:
    """Joins all tensors of the same device and type into one flat copy. Yields, for each tensor,
    `(copy, start in the copy)`.
    """
    groups: dict[Hashable, list[torch.Tensor]] = {}
    for each in tensors:
        groups.setdefault((each.device, each.dtype), []).append(each.reshape(-1))
    copies = {key: torch.cat(group) for key, group in groups.items()}
    starts: Counter[Hashable] = Counter()
    for each in tensors:
        key = each.device, each.dtype
        yield copies[key], starts[key]
        starts[key] += each.numel()


def _on_host(tensors: Sequence[torch.Tensor]) -> Iterator[Floats]:
    """Yields the elements of each of the flat tensors. There is one copy to the host for each device and type."""
    for device in {each.device for each in tensors if each.is_cuda}:
        torch.cuda.synchronize(device)  # the tensors may have been made on several streams
    copies: dict[int, Floats] = {}
    for each, (joined, start) in zip(tensors, _joined(tensors), strict=True):
        if id(joined) not in copies:
            copies[id(joined)] = joined.cpu().to(torch.float64).numpy()
        yield copies[id(joined)][start : start + each.numel()]


@lru_cache(256)
def _kernel(dtype: torch.dtype, device: torch.device) -> Any:
    """Returns the module `sampling_kernel`, or None if its kernel does not run for this type and
    device.

    The kernel takes a third of the time of torch's own operators. It does not run on a virtual GPU,
    without Triton, or without the C compiler that Triton calls.
    """
    if nvidia_driver() is None:
        return None
    try:
        from unstall.rounding import sampling_kernel

        one, out = torch.ones(1, dtype=dtype, device=device), torch.empty(2, dtype=torch.float64, device=device)
        sampling_kernel.sample(one, torch.zeros(1, dtype=torch.int64, device=device), _signs(device), out, 0)
        found = out.tolist()
    except Exception:  # Triton raises what its compilers and its libraries do
        return None
    return sampling_kernel if found == [1.0, float(_signs_on_host()[0])] else None


def _pieces(given: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    """Yields `(index of the first sign, flat chunk)` for each chunk of a tensor. A chunk has at
    most `PIECE` elements.
    """
    if given.numel() <= PIECE:
        yield 0, given.reshape(-1)
        return
    if given.is_contiguous() or given.dim() == 1:
        flat = given.reshape(-1)
        yield from ((0, flat[at : at + PIECE]) for at in range(0, len(flat), PIECE))
        return
    size, start = given[0].numel(), 0
    rows = max(1, PIECE // size)
    for some in given.split(rows):  # they are copied piece by piece
        within = _pieces(some[0]) if size > PIECE else ((0, some.reshape(-1)),)
        for at, piece in within:
            place = (start + at) % PIECE
            yield place, piece[: PIECE - place]
            if place + len(piece) > PIECE:
                yield 0, piece[PIECE - place :]
        start += some.numel()


@lru_cache(64)
def _signs(device: torch.device) -> torch.Tensor:
    """Returns a random sign, 1 or -1, for each of `PIECE` elements, on the device. They are the same in every run."""
    return torch.from_numpy(_signs_on_host()).to(device)


@lru_cache(1)
def _few_signs() -> Floats:
    return _signs_on_host()[:ENDS].astype(np.float64)


@lru_cache(1)
def _signs_on_host() -> NDArray[np.int8]:
    return np.random.default_rng(PIECE).choice(np.array([-1, 1], np.int8), PIECE)


@lru_cache(4096)
def positions(count: int, device: torch.device, most: int) -> torch.Tensor:
    """Returns which elements of a flat tensor with `count` elements to store, as at most `most`
    positions. They are the same in every run.
    """
    return torch.from_numpy(_places(count, most)).to(device)


@lru_cache(4096)
def _places(count: int, most: int) -> NDArray[np.int64]:
    if count <= most:
        return np.arange(count)
    return np.unique(np.random.default_rng(count).integers(0, count, most))
