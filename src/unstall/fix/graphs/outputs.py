"""Copies a graph's results for the caller, because each replay overwrites the results in the graph's memory."""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch

from unstall.fix.graphs.autograd.nodes import node_of
from unstall.fix.graphs.static_inputs import copy_of
from unstall.fix.tensors.nesting import map_tensors, tensors_in
from unstall.fix.tensors.storages import storage_of


class Outputs:
    """Makes the result that a caller gets from the result in a graph's memory.

    Tensors in the graph's memory are copied. Arguments, and tensors from outside the function, are returned without a
    copy. If results share memory with each other, their copies also share memory. Containers are new objects, with one
    exception: a container that has no tensors and that existed before the call is returned itself.

    Args:
        result: The result of the function in the capture.
        inputs: The tensors that the graph reads as inputs.
        externals: The tensors that the function uses, but neither receives as arguments nor makes.
        known: The objects that existed before the call, by id.
    """

    def __init__(
        self, result: Any, inputs: list[torch.Tensor], externals: list[torch.Tensor], known: dict[int, object]
    ) -> None:
        self._inputs = {storage_of(tensor): place for place, tensor in enumerate(inputs)}
        self._places = {id(tensor): place for place, tensor in enumerate(inputs)}
        self._externals = {storage_of(tensor) for tensor in externals}
        self._themselves = {*map(id, externals), *known}
        apart: dict[int, torch.Tensor] = {}
        self.result = result = map_tensors(result, lambda tensor: self._apart(tensor, apart))
        """The graph's result, without the capture's autograd graph."""
        counts = Counter(map(storage_of, _unique(tensors_in(result))))
        self._shared = {storage for storage, count in counts.items() if count > 1}
        self._kept: dict[int, object] = {}
        self._has_others = _has_others(result, known, self._kept)
        self._single = (
            result
            if isinstance(result, torch.Tensor) and storage_of(result) not in self._externals | set(self._inputs)
            else None
        )

    def copies(self, inputs: list[torch.Tensor], through: dict[int, torch.Tensor] | None = None) -> Any:
        """Returns the result for the caller of a call that was replayed.

        Args:
            inputs: The input tensors of the call.
            through: Tensors to return in place of copies. Each key is the id of the tensor in the graph's result that
                is replaced.
        """
        if self._single is not None and not through:
            return copy_of(self._single)
        made: dict[int, torch.Tensor] = {}
        bases: dict[int, torch.Tensor] = {}

        for tensor in tensors_in(self.result) if through else ():
            if through and id(tensor) in through and not self._is_the_programs(tensor):
                made[id(tensor)] = bases[storage_of(tensor)] = through[id(tensor)]

        def copied(tensor: torch.Tensor) -> torch.Tensor:
            if id(tensor) not in made:
                made[id(tensor)] = self._copied(tensor, inputs, bases)
            return made[id(tensor)]

        if not self._has_others:
            return map_tensors(self.result, copied)
        memo: dict[int, Any] = {id(tensor): copied(tensor) for tensor in tensors_in(self.result)}
        return copy.deepcopy(self.result, memo | self._kept)

    def _apart(self, tensor: torch.Tensor, known: dict[int, torch.Tensor]) -> torch.Tensor:
        """Returns a detached tensor that still requires gradients. The program's own tensors, and tensors without an
        autograd node, are returned unchanged."""
        if node_of(tensor) is None or self._is_the_programs(tensor):
            return tensor
        if id(tensor) not in known:
            known[id(tensor)] = tensor.detach().requires_grad_()
        return known[id(tensor)]

    def _is_the_programs(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self._places or id(tensor) in self._themselves

    def _copied(self, tensor: torch.Tensor, inputs: list[torch.Tensor], bases: dict[int, torch.Tensor]) -> torch.Tensor:
        storage = storage_of(tensor)
        if storage in self._externals:
            return tensor if id(tensor) in self._themselves else _another_view(tensor)
        if storage in self._inputs:
            return self._of_argument(tensor, inputs[self._places.get(id(tensor), self._inputs[storage])])
        if storage not in self._shared:
            return copy_of(tensor)
        with torch.inference_mode(tensor.is_inference()):
            return self._view_of_shared(tensor, storage, bases)

    def _view_of_shared(self, tensor: torch.Tensor, storage: int, bases: dict[int, torch.Tensor]) -> torch.Tensor:
        if storage not in bases:
            bases[storage] = _bytes_of(tensor).clone()
        base = bases[storage]
        if base.dtype == tensor.dtype and not (tensor.is_conj() or tensor.is_neg()):
            return base.detach().as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        return _view_like(tensor, base.untyped_storage())

    def _of_argument(self, tensor: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        """Returns the tensor that the caller gets for a result tensor in the memory of a static input.

        If `tensor` is a static input, returns the argument `given`. If `tensor` is a view of a static input, returns a
        view of `given`. The function made the view with autograd off. The view may have its conjugate or negative bit
        set. Static inputs never have these bits set, because their values were resolved.
        """
        if id(tensor) in self._places:
            return given
        base = given if tensor.requires_grad else given.detach()
        with torch.no_grad():
            view = base.as_strided(tensor.shape, tensor.stride(), given.storage_offset() + tensor.storage_offset())
            return _read_like(tensor, view)

    def copy_for_autograd(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a copy of one result tensor, for an autograd function to return. Autograd makes an output tensor of
        the copy. The caller then passes the output tensor to `copies`, in the argument `through`."""
        if storage_of(tensor) in self._shared:
            return _view_like(tensor, _bytes_of(tensor).clone().untyped_storage())
        return copy_of(tensor)


def _another_view(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a new tensor on the same memory. If the caller transposes or reshapes the new tensor in place, `tensor`
    does not change."""
    with torch.no_grad():
        alias: torch.Tensor = torch.ops.aten.alias(tensor)
        return alias


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (storage.nbytes(),), (1,))


def _view_like(tensor: torch.Tensor, storage: torch.UntypedStorage) -> torch.Tensor:
    view = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    view.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
    return _read_like(tensor, view)


def _read_like(tensor: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    """Returns `view`. If the conjugate bit of `tensor` is set, the result has its conjugate bit set. If the negative
    bit of `tensor` is set, the result has its negative bit set."""
    view = view.conj() if tensor.is_conj() else view
    return torch._neg_view(view) if tensor.is_neg() else view


def _unique(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return list({id(tensor): tensor for tensor in tensors}.values())


def _has_others(value: object, known: dict[int, object], kept: dict[int, object]) -> bool:
    """Returns whether a result has mutable containers without tensors. `map_tensors` does not copy such containers.

    Containers in `known` (id → object) must remain the same objects. So if a container in `known` has no tensors, it is
    added to `kept`, and is ignored in the answer.
    """
    if isinstance(value, torch.Tensor):
        return False
    items: list[object] = []
    if isinstance(value, Mapping):
        items = list(value.values())
    elif isinstance(value, (tuple, list, set)):
        items = list(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = [getattr(value, each.name) for each in dataclasses.fields(value)]
    if id(value) in known and not tensors_in(value):
        kept[id(value)] = value
        return False
    inside = [_has_others(item, known, kept) for item in items]
    return any(inside) or (_may_change(value) and not tensors_in(value))


def _may_change(value: object) -> bool:
    return isinstance(value, (Mapping, list, set)) or (dataclasses.is_dataclass(value) and not isinstance(value, type))
