"""What is kept of the tensors of a run: few elements of what each operator returns, more of what comes of the run, and
a sum of all elements.

The sum adds each element or subtracts it, at random. So errors of all elements add up to their root sum of squares, as
independent ones do, even if they are all of one kind (N. Alon, Y. Matias, M. Szegedy, "The space complexity of
approximating the frequency moments", STOC 1996). It shows differences in few elements of a large tensor, which the
elements that are kept may miss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unstall.rounding.noise import UNIT, base_name, is_view, real_parts
from unstall.rounding.operators import Place

SAMPLES, ENDS = 64, 1 << 16
"""Elements that are kept of an operator's result, and of the function's own results, gradients and arguments."""
PIECE = 1 << 20
"""Elements that are added up at once, to bound memory."""
_PENDING = 1024  # tensors whose elements stay on their devices until they are copied to the host at once
_UNSET = ("empty", "new_empty")  # their results have no values yet
SUMMED = (*UNIT, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
"""The types of tensors that are kept."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A tensor that was seen in a run.

    Attributes:
        kind: "given" (an input, a parameter or a buffer before the run), "operator", or an end: "result", "gradient",
            or "after" (an input, a parameter or a buffer after the run); in a recorded program, "value" (that it read)
            or "weight" (that it wrote).
        name: The name of the input or the parameter, the number of the result, or the operator: "weight", "mm".
        place: The line that called the operator.
        shape, dtype: Of the tensor. A complex one has one dimension more, for the real and the imaginary part.
        values: The elements that are kept, as float64: at places that depend on the shape only.
        total: The sum of all elements with random signs, which depend on the places only.
    """

    kind: str
    name: str
    place: Place
    shape: tuple[int, ...]
    dtype: torch.dtype
    values: NDArray[np.float64]
    total: float = 0.0

    @property
    def key(self) -> tuple[object, ...]:
        """What it has in common with the same tensor of another run. Lines may have moved."""
        return self.kind, self.name, self.place.backward, self.shape

    @property
    def loose_key(self) -> tuple[object, ...]:
        """As `key`, for operators with another name, as kernels of attention on the CPU and on a GPU have."""
        return self.kind, self.place.backward, self.shape


@dataclass(frozen=True, slots=True)
class Ran:
    """What was seen in a run.

    Attributes:
        given, operators: What it was given, by name, and what its operators returned.
        ends: What came of it, by kind and name: results, gradients, and arguments as they are after it. In a recorded
            program: values that it read, and weights that it wrote.
        complete: Whether it was seen to its end.
    """

    given: dict[str, Seen]
    operators: tuple[Seen, ...]
    ends: dict[tuple[str, str], Seen]
    complete: bool = True

    def __len__(self) -> int:
        return len(self.given) + len(self.operators) + len(self.ends)


class Kept:
    """Keeps elements of tensors.

    Args:
        full: Is called with each of the tensors once their elements are on the host, in order. By default they are
            kept for `seen`.
    """

    def __init__(self, full: Callable[[Seen], None] | None = None) -> None:
        self._count = 0
        self._seen: list[Seen] = []
        self._full = full or self._seen.append
        self._pending: list[tuple[str, str, Place, tuple[int, ...], torch.dtype, torch.Tensor]] = []

    def __len__(self) -> int:
        """How many tensors were kept."""
        return self._count

    def of_operator(self, func: Any, args: tuple[Any, ...], place: Place, result: Any) -> None:
        name = base_name(func)
        if not is_view(func) and not name.startswith(_UNSET):
            for each in result if isinstance(result, tuple | list) else (result,):
                if isinstance(each, torch.Tensor) and (each.is_floating_point() or each.is_complex()):
                    self.keep("operator", name, place, each, SAMPLES)

    def keep(self, kind: str, name: str, place: Place, tensor: torch.Tensor, most: int) -> None:
        if tensor.layout == torch.strided and not tensor.is_nested and tensor.dtype in SUMMED:
            real = real_parts(tensor.detach())
            picked = real.take(positions(real.numel(), real.device, most)).to(torch.float64)
            kept = torch.cat((picked, _total(real).reshape(1)))
            self._count += 1
            self._pending.append((kind, name, place, tuple(real.shape), tensor.dtype, kept))
            if len(self._pending) >= _PENDING:
                self.flush()

    def flush(self) -> None:
        """Copies the elements of all tensors to the host."""
        pending, self._pending = self._pending, []
        on_host = _on_host([kept for *_, kept in pending])
        for (kind, name, place, shape, dtype, _), kept in zip(pending, on_host, strict=True):
            self._full(Seen(kind, name, place, shape, dtype, kept[:-1], float(kept[-1])))

    def seen(self) -> list[Seen]:
        self.flush()
        return self._seen


def _on_host(tensors: Sequence[torch.Tensor]) -> list[NDArray[np.float64]]:
    """Returns flat tensors' values, with one copy from each device."""
    found: list[NDArray[np.float64]] = [np.empty(0)] * len(tensors)
    for device in {each.device for each in tensors}:
        places = [at for at, each in enumerate(tensors) if each.device == device]
        joined = torch.cat([tensors[at] for at in places]).cpu().numpy()
        ends = np.cumsum([tensors[at].numel() for at in places])
        for at, values in zip(places, np.split(joined, ends[:-1]), strict=True):
            found[at] = values
    return found


def _total(given: torch.Tensor) -> torch.Tensor:
    """Returns the sum of the elements with random signs, in float64."""
    signs = _signs(given.device)
    parts = [(piece * signs[at : at + len(piece)]).sum(dtype=torch.float64) for at, piece in _pieces(given)]
    return torch.stack(parts).sum() if len(parts) > 1 else parts[0]


def _pieces(given: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    """Yields flat pieces of a tensor, each with the place of its first sign."""
    if given.is_contiguous() or given.dim() == 1 or given.numel() <= PIECE:
        flat = given.reshape(-1)
        yield from ((0, flat[at : at + PIECE]) for at in range(0, max(1, len(flat)), PIECE))
        return
    size, start = given[0].numel(), 0
    rows = max(1, PIECE // size)
    for some in given.split(rows):  # they are copied piece by piece
        within = _pieces(some[0]) if size > PIECE else ((0, some.reshape(-1)),)
        yield from (((start + at) % PIECE, piece) for at, piece in within)
        start += some.numel()


@lru_cache(16)
def _signs(device: torch.device) -> torch.Tensor:
    """Returns 1 and -1 at random, for two pieces of a tensor one after the other."""
    drawn = np.random.default_rng(PIECE).integers(0, 2, PIECE) * 2.0 - 1.0
    return torch.from_numpy(np.tile(drawn.astype(np.float32), 2)).to(device)


@lru_cache(4096)
def positions(count: int, device: torch.device, most: int) -> torch.Tensor:
    """Returns the places of the elements that are kept of a tensor with `count` elements, at most `most`."""
    chance = np.random.default_rng(count)
    flat = np.arange(count) if count <= most else np.unique(chance.integers(0, count, most))
    return torch.from_numpy(flat).to(device)
