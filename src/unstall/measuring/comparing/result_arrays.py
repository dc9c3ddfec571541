"""The arrays in what a function returned: tensors of torch, and arrays of NumPy, CuPy and JAX."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

_CHUNK = 1 << 22  # values held in float64 at once


@dataclass(frozen=True, slots=True)
class ResultArray:
    """An array in a result, with the precision of its dtype."""

    value: torch.Tensor | NDArray[np.generic]
    shape: tuple[int, ...]
    dtype: str
    epsilon: float  # 0 for integer dtypes
    tiny: float

    def pieces(self) -> Iterator[NDArray[np.generic]]:
        """Yields the values of the array, in flat NumPy arrays of at most `_CHUNK` values. Floating-point values are
        converted to float64.

        A complex value becomes two values.
        """
        flat = _flat(self.value)
        size = int(np.prod(self.shape, dtype=np.int64)) * (2 if "complex" in self.dtype else 1)
        for start in range(0, size, _CHUNK):
            yield _on_host(flat[start : start + _CHUNK], floating=self.epsilon > 0)


def tensors_of(result: object) -> list[torch.Tensor]:
    """Returns all torch tensors in `result`, including those in nested lists, tuples, mappings and dataclasses."""
    leaves = (leaf for _, leaf in leaves_of("result", result))
    return [leaf.value for leaf in leaves if isinstance(leaf, ResultArray) and is_torch(leaf.value)]


def leaves_of(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Yields a pair (name, value) for each array in `value`, and for each other value that is not a
    container. Arrays are yielded as `ResultArray`. `name` is the name of `value`, with which the
    yielded names begin.
    """
    leaf = _leaf(value)
    if leaf is not None:
        yield name, leaf
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from leaves_of(f"{name}[{key!r}]", each)
    elif isinstance(value, list | tuple):
        yield f"len({name})", len(value)
        for number, each in enumerate(value):
            yield from leaves_of(f"{name}[{number}]", each)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from leaves_of(f"{name}.{field.name}", getattr(value, field.name))
    else:
        yield name, value


def _leaf(value: Any) -> ResultArray | None:
    if is_torch(value):
        torch = sys.modules["torch"]
        if value.is_sparse or value.layout is not torch.strided:
            value = value.to_dense()
        if value.is_quantized:
            value = value.dequantize()
        dtype = value.dtype
        kind = torch.finfo(dtype) if dtype.is_floating_point or dtype.is_complex else None
        epsilon, tiny = (float(kind.eps), float(kind.tiny)) if kind else (0.0, 0.0)
        return ResultArray(value.detach(), tuple(value.shape), str(dtype).removeprefix("torch."), epsilon, tiny)
    if isinstance(value, float | complex | np.ndarray | np.generic) or hasattr(value, "__array_interface__"):
        return _numpy_leaf(np.asarray(value))
    if hasattr(value, "__cuda_array_interface__") and hasattr(value, "get"):  # CuPy
        return _numpy_leaf(value.get())
    if hasattr(value, "__array__") and hasattr(value, "dtype"):  # JAX, whose bfloat16 numpy knows by ml_dtypes
        return _numpy_leaf(np.asarray(value))
    return None


def _numpy_leaf(array: NDArray[Any]) -> ResultArray | None:
    if array.dtype.kind in "fc":
        limits = np.finfo(array.dtype)
        return ResultArray(array, array.shape, str(array.dtype), float(limits.eps), float(limits.tiny))
    if array.dtype.kind in "iub":
        return ResultArray(array, array.shape, str(array.dtype), 0.0, 0.0)
    if "float" in str(array.dtype):  # an ml_dtypes type
        finfo = sys.modules["ml_dtypes"].finfo(array.dtype)
        return ResultArray(array, array.shape, str(array.dtype), float(finfo.eps), float(finfo.tiny))
    return None


def is_torch(value: object) -> TypeGuard[torch.Tensor]:
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch, "Tensor") and isinstance(value, torch.Tensor)


def _flat(value: torch.Tensor | NDArray[np.generic]) -> torch.Tensor | NDArray[np.generic]:
    if is_torch(value):
        torch = sys.modules["torch"]
        value = value.resolve_conj().resolve_neg()
        return (torch.view_as_real(value) if value.is_complex() else value).reshape(-1)
    flat = np.ascontiguousarray(value).reshape(-1)
    return flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat


def _on_host(flat: torch.Tensor | NDArray[np.generic], *, floating: bool) -> NDArray[np.generic]:
    if is_torch(flat):
        flat = flat.cpu()
        return np.asarray((flat.double() if floating else flat).numpy())
    return np.asarray(flat, np.float64) if floating else np.asarray(flat)
