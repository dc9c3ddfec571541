"""Makes the tensors that a CUDA graph reads as its inputs (static inputs), and makes copies of tensors. Each copy has
the strides of the original."""

from __future__ import annotations

import torch

from unstall.fix.graphs.examine.observed_call import ObservedCall
from unstall.fix.tensors.storages import storage_of

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool)
_FEW = 3  # tensors; fewer are cloned as fast one by one
_COPIED_TOGETHER = frozenset((*_FLOATS, *_INTEGERS))  # torch has a kernel that copies several tensors of these


class StaticInputs:
    """The tensors that a CUDA graph reads as its inputs. They have the shapes, strides and dtypes of one call's
    inputs."""

    def __init__(self, inputs: list[torch.Tensor]) -> None:
        self.tensors = [_buffer_like(tensor) for tensor in inputs]
        self._flat = [_flat(tensor) for tensor in self.tensors]
        self._overlaps = [_overlaps(tensor) for tensor in inputs]
        together = len(inputs) > 1 and not any(self._overlaps)
        self._together = together and all(tensor.dtype in _COPIED_TOGETHER for tensor in inputs)
        self._differentiable = any(tensor.requires_grad for tensor in inputs)

    def fill(self, inputs: list[torch.Tensor]) -> None:
        """Copies the inputs of a call into the tensors that the graph reads, on the current stream."""
        if not self._differentiable:
            self._fill(inputs)
            return
        with torch.no_grad():
            self._fill(inputs)

    def give_back(self, place: int, tensor: torch.Tensor) -> None:
        """Copies the tensor that the graph reads as input number `place` to the call's argument `tensor`, on the
        current stream. It must be called with autograd off."""
        buffer = self.tensors[place]
        if self._overlaps[place]:  # expanded: torch does not write to tensors with overlapping elements
            buffer, tensor = _each_once(buffer), _each_once(tensor)
        tensor.copy_(buffer)

    def _fill(self, inputs: list[torch.Tensor]) -> None:
        if self._together:  # one kernel for each dtype
            torch._foreach_copy_(self.tensors, inputs)
            return
        for buffer, flat, overlaps, tensor in zip(self.tensors, self._flat, self._overlaps, inputs, strict=True):
            if overlaps:
                flat.copy_(_flat(tensor))
            else:
                buffer.copy_(tensor)


def _extent(tensor: torch.Tensor) -> int:
    if tensor.numel() == 0:
        return 0
    return 1 + sum(int((size - 1) * stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _buffer_like(tensor: torch.Tensor) -> torch.Tensor:
    memory = torch.empty(_extent(tensor), dtype=tensor.dtype, device=tensor.device)
    return memory.as_strided(tensor.shape, tensor.stride()).requires_grad_(tensor.requires_grad)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().as_strided((_extent(tensor),), (1,))


def _overlaps(tensor: torch.Tensor) -> bool:
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _each_once(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a view of an expanded tensor. Each element of the tensor's memory occurs exactly once in the view."""
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def copies_of(tensors: list[torch.Tensor], *, changed: bool = False) -> list[torch.Tensor]:
    """Returns copies of the tensors, with the same strides. If `changed` is true, the copies have other values:
    floating-point values are rolled by one element and multiplied by 0.9375. Values of 8-bit floats are only rolled.
    Integers are never changed: they may be indices or offsets, and a changed index could be out of bounds."""
    copies: list[torch.Tensor] = []
    with torch.no_grad():
        for tensor in tensors:
            other = _buffer_like(tensor)
            flat = _flat(tensor)
            if changed and (tensor.dtype in _FLOATS or tensor.is_complex()):
                flat = torch.roll(flat, 1) * 0.9375
            elif changed and tensor.is_floating_point():  # torch cannot multiply 8-bit floats
                flat = torch.roll(flat.view(torch.uint8), 1).view(tensor.dtype)
            _flat(other).copy_(flat)
            copies.append(other)
    return copies


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy of the tensor. The copy is detached from autograd and has the tensor's strides. (`clone` changes
    the strides of tensors with gaps or overlaps.) The copy of an inference tensor is an inference tensor."""
    if tensor.is_inference() != torch.is_inference_mode_enabled():
        with torch.inference_mode(tensor.is_inference()):
            return copy_of(tensor)
    tensor = tensor.detach()
    if _is_dense(tensor):
        return tensor.clone()
    # Not a view of flat memory: autograd would know it as one.
    other = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    if _overlaps(tensor):
        _flat(other).copy_(_flat(tensor))
    else:
        other.copy_(tensor)
    if tensor.is_conj():
        other = other.conj_physical_().conj()
    return torch._neg_view(other.neg_()) if tensor.is_neg() else other


class Clones:
    """Clones tensors that lie in the memory of a CUDA graph. One kernel clones many tensors."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self.tensors = [tensor.detach() for tensor in tensors]
        places: dict[torch.dtype, list[int]] = {}
        for place, tensor in enumerate(self.tensors):
            if tensor.dtype in _FLOATS and _is_dense(tensor):
                places.setdefault(tensor.dtype, []).append(place)
        self._together = [
            (mine, [self.tensors[place] for place in mine]) for mine in places.values() if len(mine) >= _FEW
        ]
        together = {place for mine, _ in self._together for place in mine}
        self._alone = [place for place in range(len(tensors)) if place not in together]

    def made(self) -> list[torch.Tensor]:
        """Clones all tensors on the current stream. Returns the clones, which are detached from autograd, in the order
        of the tensors."""
        clones = list(self.tensors)
        with torch.no_grad():
            for places, tensors in self._together:
                for place, clone in zip(places, torch._foreach_mul(tensors, 1), strict=True):
                    clones[place] = clone
            for place in self._alone:
                clones[place] = self.tensors[place].clone()
        return clones


def _is_dense(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_contiguous() or torch.empty_like(tensor).stride() == tensor.stride())


class Sharing:
    """Detects calls that a CUDA graph cannot reproduce because arguments share memory. A graph reads each argument from
    a separate tensor. So if two arguments share memory and the function writes to one of them, the other does not
    change in the graph.

    Args:
        seen: What an eager run of the function read and wrote.
    """

    def __init__(self, seen: ObservedCall) -> None:
        self._places = sorted(seen.written_inputs)
        self._written = set(map(storage_of, seen.written))
        self._read = set(map(storage_of, seen.externals)) if self._places else set()

    def is_safe(self, inputs: list[torch.Tensor]) -> bool:
        """Returns False if the function writes to memory that one of `inputs` shares with another one, or with a tensor
        that is not an argument. Otherwise returns True. `inputs` are the input tensors of a call."""
        if not self._places and not self._written:
            return True
        found = list(map(storage_of, inputs))
        written = [found[place] for place in self._places]
        return (
            self._written.isdisjoint(found)
            and self._read.isdisjoint(written)
            and all(found.count(storage) == 1 for storage in written)
        )
