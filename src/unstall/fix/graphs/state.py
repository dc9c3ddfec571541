"""What a function changes beside its result, saved and put back, so that it can be run twice for one call."""

from __future__ import annotations

import torch

from unstall.fix.tensors.storages import storage_of


class Saved:
    """Copies of whole storages, of the states of random generators, and of which tensors `.grad` are."""

    def __init__(
        self, tensors: list[torch.Tensor], generators: list[torch.Generator], leaves: list[torch.Tensor]
    ) -> None:
        whole = {storage_of(tensor): whole_storage(tensor) for tensor in tensors}
        self._memory = [(memory, memory.clone()) for memory in whole.values()]
        self._generators = [(generator, generator.get_state()) for generator in generators]
        self._grads = [(leaf, leaf.grad) for leaf in leaves]

    def restore(self) -> None:
        with torch.no_grad():
            for memory, copy in self._memory:
                memory.copy_(copy)
        for generator, state in self._generators:
            generator.set_state(state)
        self.restore_grads()

    def restore_grads(self) -> None:
        for leaf, grad in self._grads:
            if leaf.grad is not grad:
                leaf.grad = grad

    def now(self) -> list[torch.Tensor]:
        """Copies of what the saved storages hold now."""
        return [memory.clone() for memory, _ in self._memory]

    def memory(self) -> list[torch.Tensor]:
        return [memory for memory, _ in self._memory]


def whole_storage(tensor: torch.Tensor) -> torch.Tensor:
    """All of the memory that a tensor is a view of, flat, of the tensor's dtype where that divides it."""
    storage = tensor.untyped_storage()
    size, rest = divmod(storage.nbytes(), tensor.element_size())
    dtype, size = (torch.uint8, storage.nbytes()) if rest else (tensor.dtype, size)
    with torch.no_grad():
        return torch.empty(0, dtype=dtype, device=tensor.device).set_(storage, 0, (size,), (1,))


_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool)
_COPIED_TOGETHER = frozenset((*_FLOATS, *_INTEGERS))  # torch has a kernel that copies several tensors of these


class Buffers:
    """Memory of a graph's own for its inputs, with the same strides."""

    def __init__(self, inputs: list[torch.Tensor]) -> None:
        self.tensors = [_buffer_like(tensor) for tensor in inputs]
        self._flat = [_flat(tensor) for tensor in self.tensors]
        self._overlaps = [_overlaps(tensor) for tensor in inputs]
        together = len(inputs) > 1 and not any(self._overlaps)
        self._together = together and all(tensor.dtype in _COPIED_TOGETHER for tensor in inputs)
        self._differentiable = any(tensor.requires_grad for tensor in inputs)

    def fill(self, inputs: list[torch.Tensor]) -> None:
        """Copies values in, on the current stream."""
        if not self._differentiable:
            self._fill(inputs)
            return
        with torch.no_grad():
            self._fill(inputs)

    def give_back(self, place: int, tensor: torch.Tensor) -> None:
        """What was written into one goes to the argument, on the current stream. Not for autograd."""
        buffer = self.tensors[place]
        if self._overlaps[place]:  # as an expanded one does: torch writes into no tensor that has an element twice
            buffer, tensor = _each_once(buffer), _each_once(tensor)
        tensor.copy_(buffer)

    def _fill(self, inputs: list[torch.Tensor]) -> None:
        if self._together:  # by one kernel for those of a dtype
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
    """A view of each element of an expanded tensor."""
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def copies_of(tensors: list[torch.Tensor], *, changed: bool = False) -> list[torch.Tensor]:
    """Copies with the same strides. `changed`: of other values of the same kind, floating tensors rolled by one
    element and made a little smaller. Integers stay: they may be indices or offsets, which other values would take
    out of bounds.
    """
    copies: list[torch.Tensor] = []
    with torch.no_grad():
        for tensor in tensors:
            other = _buffer_like(tensor)
            flat = _flat(tensor)
            if changed and (tensor.dtype in _FLOATS or tensor.is_complex()):
                flat = torch.roll(flat, 1) * 0.9375
            elif changed and tensor.is_floating_point():  # of eight bits, which torch does not multiply
                flat = torch.roll(flat.view(torch.uint8), 1).view(tensor.dtype)
            _flat(other).copy_(flat)
            copies.append(other)
    return copies


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """Outside of autograd, with the same strides, which `clone` changes where there are gaps or overlaps, and of
    inference mode where the tensor is."""
    if tensor.is_inference() != torch.is_inference_mode_enabled():
        with torch.inference_mode(tensor.is_inference()):
            return copy_of(tensor)
    tensor = tensor.detach()
    if _is_dense(tensor):
        return tensor.clone()
    # No view of flat memory: autograd would take it for one.
    other = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    if _overlaps(tensor):
        _flat(other).copy_(_flat(tensor))
    else:
        other.copy_(tensor)
    if tensor.is_conj():
        other = other.conj_physical_().conj()
    return torch._neg_view(other.neg_()) if tensor.is_neg() else other


def _is_dense(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_contiguous() or torch.empty_like(tensor).stride() == tensor.stride())


def same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal in each element, NaN being equal to NaN. Waits for the device."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.is_floating_point() or one.is_complex():
        return bool(((one == other) | ((one != one) & (other != other))).all())
    return bool((one == other).all())


def largest_difference(one: torch.Tensor, other: torch.Tensor) -> float:
    if one.numel() == 0:
        return 0.0
    return float((one.detach().double() - other.detach().double()).abs().max())
