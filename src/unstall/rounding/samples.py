"""What is kept of the tensors of a run: few elements of what each operator returns, more of what comes of the run, and
a sum of all elements.

The sum adds each element or subtracts it, at random. So errors of all elements add up to their root sum of squares, as
independent ones do, even if they are all of one kind (N. Alon, Y. Matias, M. Szegedy, "The space complexity of
approximating the frequency moments", STOC 1996). It shows differences in few elements of a large tensor, which the
elements that are kept may miss.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unstall.rounding.noise import UNIT, base_name, is_plain, is_view, real_parts, sums_of
from unstall.rounding.operators import Place

SAMPLES, ENDS = 64, 1 << 16
"""Elements that are kept of an operator's result, and of the function's own results, gradients and arguments."""
PIECE = 1 << 22
"""Elements that are added up at once, to bound memory."""
_SMALL = 4096  # up to that many elements, all are copied to the host, and added up there
_PENDING = 1024  # tensors whose elements stay on their devices until they are copied to the host at once
_UNSET = ("empty", "new_empty")  # their results have no values yet
SUMMED = (*UNIT, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
"""The types of tensors that are kept."""
_HALVES = (torch.float16, torch.bfloat16)
_MULTIPLIED = (torch.float64, torch.float32, *_HALVES)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Seen:
    """A tensor of a run, by some of its elements.

    Attributes:
        kind: "given" (an input, a parameter or a buffer before the run), "operator", "result", "gradient", or "after"
            (an input, a parameter or a buffer after the run). In a recorded program also "value" (that it read) or
            "weight" (that it wrote).
        name: The name of the input, parameter or operator ("weight", "mm"), or the number of the result.
        place: The line that called the operator.
        shape: The shape. A complex tensor has one dimension more, for the real and the imaginary part.
        dtype: The type.
        values: The kept elements, as float64. Their positions depend only on the shape.
        total: The sum of all elements with random signs, which depend only on the positions.
        terms: How many terms each element of an operator's result sums up; 0 if the operator has no sums.
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
        """Equal for the same tensor of two runs. It has no line number, since lines may have moved."""
        return self.kind, self.name, self.place.backward, self.shape

    @property
    def loose_key(self) -> tuple[object, ...]:
        """`key` without the name, because an operator may have another name in another run.

        For example, attention on the CPU and attention on a GPU are different operators.
        """
        return self.kind, self.place.backward, self.shape


@dataclass(frozen=True, slots=True)
class Ran:
    """The tensors of a run, by some of their elements.

    Attributes:
        given: The arguments before the run, by name.
        operators: The results of operators, in order.
        ends: What comes out of the run, by (kind, name): results, gradients, and arguments after the run. In a recorded
            program: values that it read, and weights that it wrote.
        complete: Whether the run was recorded to its end.
    """

    given: dict[str, Seen]
    operators: tuple[Seen, ...]
    ends: dict[tuple[str, str], Seen]
    complete: bool = True

    def __len__(self) -> int:
        return len(self.given) + len(self.operators) + len(self.ends)


@dataclass(slots=True)
class _Pending:
    """A tensor whose elements are still on its device: all of them, or `most` of them and sums over all."""

    kind: str
    name: str
    place: Place
    shape: tuple[int, ...]
    dtype: torch.dtype
    terms: int
    most: int
    elements: torch.Tensor
    sums: tuple[torch.Tensor, ...]


class Kept:
    """Keeps elements of tensors.

    Args:
        full: Is called with each tensor, in order, once its elements are on the host. If None, the tensors are
            collected for `seen`.
    """

    def __init__(self, full: Callable[[Seen], None] | None = None) -> None:
        self._count = 0
        self._seen: list[Seen] = []
        self._full = full or self._seen.append
        self._pending: list[_Pending] = []

    def __len__(self) -> int:
        """How many tensors were kept."""
        return self._count

    def of_operator(self, func: Any, args: tuple[Any, ...], place: Place, result: Any) -> None:
        name = base_name(func)
        if not is_view(func) and not name.startswith(_UNSET):
            terms = sums_of(name, args)
            for each in result if isinstance(result, tuple | list) else (result,):
                if isinstance(each, torch.Tensor) and (each.is_floating_point() or each.is_complex()):
                    self.keep("operator", name, place, each, SAMPLES, terms)
                    terms = 0  # they are told once for a call

    def keep(self, kind: str, name: str, place: Place, tensor: torch.Tensor, most: int, terms: int = 0) -> None:
        if tensor.dtype in SUMMED and is_plain(tensor):
            real = real_parts(tensor.detach())
            count = real.numel()
            if count <= max(most, _SMALL):
                sums: tuple[torch.Tensor, ...] = ()
                elements = real.clone(memory_format=torch.contiguous_format).view(-1)
            else:
                elements, sums = real.take(positions(count, real.device, most)), tuple(_sums(real))
            self._pending.append(
                _Pending(kind, name, place, tuple(real.shape), tensor.dtype, terms, most, elements, sums)
            )
            self._count += 1
            if len(self._pending) >= _PENDING:
                self.flush()

    def flush(self) -> None:
        """Copies the elements of all tensors to the host."""
        pending, self._pending = self._pending, []
        elements = _on_host([each.elements for each in pending])
        sums = iter(_on_host([part for each in pending for part in each.sums]))
        with np.errstate(invalid="ignore", over="ignore"):
            for each, values in zip(pending, elements, strict=True):
                if each.sums:
                    total = sum(sum(next(sums).tolist()) for _ in each.sums)
                else:
                    total = float(np.add.reduce(values * _few_signs()[: len(values)]))
                    values = values[_places(len(values), each.most)] if len(values) > each.most else values.copy()
                self._full(Seen(each.kind, each.name, each.place, each.shape, each.dtype, values, total, each.terms))

    def seen(self) -> list[Seen]:
        self.flush()
        return self._seen


def _on_host(tensors: Sequence[torch.Tensor]) -> list[Floats]:
    """Returns the values of flat tensors. Makes one copy for each device and type."""
    groups: dict[Hashable, list[int]] = {}
    for at, each in enumerate(tensors):
        groups.setdefault((each.device, each.dtype), []).append(at)
    found: list[Floats] = [np.empty(0)] * len(tensors)
    for places in groups.values():
        joined = torch.cat([tensors[at] for at in places]).cpu().to(torch.float64).numpy()
        start = 0
        for at in places:
            end = start + tensors[at].numel()
            found[at], start = joined[start:end], end
    return found


def _sums(given: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yields a sum, with random signs, over each chunk of `PIECE` elements of a tensor, as flat tensors.

    On a GPU, they are computed as products in the tensor's type. These round less than the computation of the tensor
    did. On the CPU, such a product would depend on the position of the values in memory, so it is not used.
    """
    by_product = given.is_cuda and given.dtype in _MULTIPLIED
    dtype = given.dtype if by_product else torch.int8
    pieces, rest = divmod(given.numel(), PIECE)
    if by_product and given.dtype not in _HALVES and pieces and given.is_contiguous():
        flat = given.view(-1)
        yield flat[: pieces * PIECE].view(pieces, PIECE) @ _signs(given.device, dtype)  # in one kernel, without TF32
        if rest:
            yield torch.dot(flat[pieces * PIECE :], _signs(given.device, dtype, 0, rest)).view(1)
        return
    for at, piece in _pieces(given):
        its = _signs(given.device, dtype, at, at + piece.numel())
        yield (torch.dot(piece, its) if by_product else (piece * its).sum(dtype=torch.float64)).view(1)


def _pieces(given: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    """Yields (index of the first sign, flat chunk) for each chunk of a tensor. A chunk has at most `PIECE` elements."""
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


@lru_cache(1024)
def _signs(device: torch.device, dtype: torch.dtype, start: int = 0, end: int = PIECE) -> torch.Tensor:
    """Returns the random signs, 1 or -1, for the elements from `start` to `end` of a chunk."""
    if (start, end) != (0, PIECE):
        return _signs(device, dtype)[start:end]
    return torch.from_numpy(_signs_on_host()).to(device, dtype)


@lru_cache(1)
def _few_signs() -> Floats:
    return _signs_on_host()[:ENDS].astype(np.float64)


@lru_cache(1)
def _signs_on_host() -> NDArray[np.int8]:
    return np.random.default_rng(PIECE).choice(np.array([-1, 1], np.int8), PIECE)


@lru_cache(4096)
def positions(count: int, device: torch.device, most: int) -> torch.Tensor:
    """Returns the positions of the elements that are kept of a tensor with `count` elements, `most` or fewer."""
    return torch.from_numpy(_places(count, most)).to(device)


@lru_cache(4096)
def _places(count: int, most: int) -> NDArray[np.int64]:
    if count <= most:
        return np.arange(count)
    return np.unique(np.random.default_rng(count).integers(0, count, most))
