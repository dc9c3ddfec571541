"""The dense tensors that a tensor consists of. A sparse tensor or a wrapper subclass consists of several inner tensors.
A dense tensor consists of itself."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
_STRIDED = torch.strided


def is_simple(tensor: torch.Tensor) -> bool:
    """Returns whether the tensor is a strided `torch.Tensor` or `Parameter`. Returns False for other subclasses, and
    for sparse, quantized and nested tensors."""
    return type(tensor) in _PLAIN and tensor.layout is _STRIDED and not (tensor.is_quantized or tensor.is_nested)


def bytes_of(tensor: torch.Tensor) -> int:
    """Returns the size of all elements of a tensor in bytes."""
    if is_simple(tensor):
        return int(tensor.nbytes)
    return sum(int(part.numel() * part.element_size()) for part in parts_of(tensor))


def record(tensors: list[torch.Tensor], stream: torch.Stream) -> None:
    """Prevents torch's caching allocator from reusing the memory of `tensors` before the device has finished the work
    that is on `stream` now."""
    for tensor in tensors:
        for part in parts_of(tensor):
            if part.device == tensor.device:
                part.record_stream(stream)


def parts_of(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Returns the dense tensors that the tensor consists of, such as the indices and values of a sparse tensor.
    Together, the dense tensors cover all storages of the tensor."""
    if is_simple(tensor):
        return [tensor]
    if is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()
        return [part for name in names for part in parts_of(getattr(tensor, name))]
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    if tensor.layout != torch.strided:
        return []
    with torch.no_grad():  # quantized or nested: take the whole storage as bytes
        return [torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())]
