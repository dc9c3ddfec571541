"""Elements that are kept of the tensors of a run: few of what each operator returns, many of what comes of the run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unstall.rounding.noise import base_name, is_view, real_parts, sums_of
from unstall.rounding.operators import Place

SAMPLES, ENDS = 64, 1 << 16
"""Elements that are kept of an operator's result, and of the function's own results, gradients and arguments."""
_UNSET = ("empty", "new_empty")  # their results have no values yet


@dataclass(frozen=True, slots=True)
class Seen:
    """A tensor that was seen in a run.

    Attributes:
        kind: "given" (an input, a parameter or a buffer before the run), "operator", or an end: "result", "gradient",
            or "after" (an input, a parameter or a buffer after the run).
        name: The name of the input or the parameter, the number of the result, or the operator: "weight", "mm".
        place: The line that called the operator.
        shape, dtype: Of the tensor. A complex one has one dimension more, for the real and the imaginary part.
        values: The elements that are kept, as float64: at places that depend on the shape only.
        terms: How many terms an element of an operator's result adds up. 0 if the operator adds up none.
    """

    kind: str
    name: str
    place: Place
    shape: tuple[int, ...]
    dtype: torch.dtype
    values: NDArray[np.float64]
    terms: int = 0

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
    """What was seen in a run. `ends`: results, gradients, and arguments as they are after it, by kind and name."""

    given: dict[str, Seen]
    operators: tuple[Seen, ...]
    ends: dict[tuple[str, str], Seen]

    def __len__(self) -> int:
        return len(self.given) + len(self.operators) + len(self.ends)


class Kept:
    """Elements of tensors. They stay on their device until `seen`."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, str, Place, tuple[int, ...], torch.dtype, torch.Tensor, int]] = []

    def of_operator(self, func: Any, args: tuple[Any, ...], place: Place, result: Any) -> None:
        name = base_name(func)
        if not is_view(func) and not name.startswith(_UNSET):
            terms = sums_of(name, args)
            for each in result if isinstance(result, tuple | list) else (result,):
                if isinstance(each, torch.Tensor) and (each.is_floating_point() or each.is_complex()):
                    self.keep("operator", name, place, each, SAMPLES, terms)

    def keep(self, kind: str, name: str, place: Place, tensor: torch.Tensor, most: int, terms: int = 0) -> None:
        if tensor.layout == torch.strided and not tensor.is_nested and not tensor.is_quantized:
            real = real_parts(tensor.detach())
            picked = real[positions(tuple(real.shape), real.device, most)]
            self._kept.append((kind, name, place, tuple(real.shape), tensor.dtype, picked.to(torch.float64), terms))

    def seen(self) -> list[Seen]:
        return [
            Seen(kind, name, place, shape, dtype, values.reshape(-1).cpu().numpy(), terms)
            for kind, name, place, shape, dtype, values, terms in self._kept
        ]


@lru_cache(4096)
def positions(shape: tuple[int, ...], device: torch.device, most: int) -> tuple[torch.Tensor, ...]:
    """Returns the places of the elements that are kept, at most so many, as one index for each dimension."""
    count = math.prod(shape)
    chance = np.random.default_rng(count)
    flat = np.arange(count) if count <= most else np.unique(chance.integers(0, count, most))
    return tuple(torch.from_numpy(each).to(device) for each in np.unravel_index(flat, shape)) if shape else ()
