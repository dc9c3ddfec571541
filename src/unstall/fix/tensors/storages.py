"""Finds which memory an operator of torch reads and writes, by the operator's schema and by a list of known errors in
schemas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from unstall.fix.tensors.nesting import tensors_in
from unstall.guest.dispatch_mode import DispatchMode

if TYPE_CHECKING:
    from torch._ops import OpOverload

# They write running_mean and running_var, but their schemas do not say so. If they take `training`, only if it is True.
_BATCH_NORMS = {"native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "batch_norm_update_stats"}
_RUNNING = ("running_mean", "running_var")
# The schema declares a write, but the operator only tells the allocator about a stream.
_TOUCHES_NOTHING = {"record_stream"}
# torch's tests check the schemas of these libraries. Operators of other libraries may do anything to their tensors.
_HONEST = {"aten", "prims", "torchvision"}
_NO_WORK = {"profiler", "c10_functional_nowork"}


@dataclass(frozen=True, slots=True)
class Touched:
    """The storages that one call of an operator used. Each storage is given by its address (`storage_of`).

    Attributes:
        reads: The storages of all tensor arguments of the call.
        writes: The storages that the call wrote to or created.
        fresh: The storages that the call created.
        launches: Whether the call put work on a stream.
        barrier: Whether the operator comes from a library whose schemas are not checked. Such an operator may write to
            any tensor.
        noticed: Whether the operator's schema declares all tensors that the operator writes to. Autograd relies on the
            schema.
    """

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    fresh: tuple[int, ...]
    launches: bool
    barrier: bool
    noticed: bool


@dataclass(frozen=True, slots=True)
class _OperatorSchema:
    name: str
    namespace: str
    positions: tuple[int, ...]  # of arguments that are written
    keywords: frozenset[str]
    training: int | None = None  # index of the `training` argument: if False, nothing is written


def storage_of(tensor: torch.Tensor) -> int:
    """Returns the address of the tensor's storage. All views of a tensor have the same storage, and so the same
    address. While one of the views is alive, no other storage has this address."""
    return int(tensor.untyped_storage()._cdata)


def tensors_of(value: object) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor) and is_plain(leaf)]


def is_plain(tensor: torch.Tensor) -> bool:
    """Returns whether the tensor has exactly one storage. A sparse tensor has several."""
    return bool(tensor.layout == torch.strided)


def lies_in(tensor: torch.Tensor, storages: set[int]) -> bool:
    """Returns whether the storage of a tensor is in `storages`, a set of addresses as `storage_of` returns them.
    Returns False for a sparse tensor."""
    return is_plain(tensor) and storage_of(tensor) in storages


@lru_cache(maxsize=4096)
def _schema_of(operator: OpOverload) -> _OperatorSchema:
    schema = operator._schema
    namespace, _, name = schema.name.partition("::")
    written = [argument.alias_info is not None and argument.alias_info.is_write for argument in schema.arguments]
    if name in _BATCH_NORMS:
        written = [was or argument.name in _RUNNING for was, argument in zip(written, schema.arguments, strict=True)]
    if name in _TOUCHES_NOTHING:
        written = [False] * len(written)
    names = [argument.name for argument in schema.arguments]
    training = names.index("training") if name in _BATCH_NORMS and "training" in names else None
    return _OperatorSchema(
        name,
        namespace,
        tuple(place for place, is_written in enumerate(written) if is_written),
        frozenset(name for name, is_written in zip(names, written, strict=True) if is_written),
        training,
    )


def touched_by(operator: OpOverload, args: Sequence[object], kwargs: dict[str, object], result: object) -> Touched:
    """Returns which storages one call of an operator read and wrote.

    Args:
        operator: The operator that was called.
        args: The positional arguments of the call.
        kwargs: The keyword arguments of the call.
        result: The result of the call.
    """
    schema = _schema_of(operator)
    given = tensors_of((args, kwargs))
    returned = tensors_of(result)
    read = {storage_of(tensor) for tensor in given}
    barrier = schema.namespace not in _HONEST and schema.namespace not in _NO_WORK
    written: set[int] = set(read) if barrier else set()
    if not barrier and (schema.training is None or _given(schema.training, "training", args, kwargs)):
        parts = [args[place] for place in schema.positions if place < len(args)]
        parts += [kwargs[name] for name in schema.keywords if name in kwargs]
        written |= {storage_of(tensor) for tensor in tensors_of(parts)}
    made = {storage_of(tensor) for tensor in returned} - read
    only_views = bool(returned) and not written and not made
    idle = schema.namespace in _NO_WORK or schema.name in _TOUCHES_NOTHING or not (given or returned)
    return Touched(
        tuple(read),
        tuple(written | made),
        tuple(made),
        not only_views and not idle and not _allocates(schema),
        barrier,
        schema.name not in _BATCH_NORMS,
    )


class OutsideWrites(DispatchMode):
    """A dispatch mode that observes one call of a function.

    Args:
        inputs: The tensors that the function gets as its inputs.

    Attributes:
        writes: Whether the function wrote to a tensor that existed before the call and is not an input, or may have
            done so.
    """

    def __init__(self, inputs: list[torch.Tensor]) -> None:
        DispatchMode.__init__(self)
        self.writes = False
        self._own = {storage_of(tensor) for tensor in inputs}

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        result = func(*args, **(kwargs or {}))
        touched = touched_by(func, args, kwargs or {}, result)
        self._own.update(touched.fresh)
        self.writes = self.writes or touched.barrier or not self._own.issuperset(touched.writes)
        return result

    def keeps(self, result: object) -> bool:
        """Returns whether `result`, the result of the observed call, shares memory with a tensor that existed before
        the call and is not an input."""
        return any(storage_of(tensor) not in self._own for tensor in tensors_in(result))


def decomposed(
    mode: TorchDispatchMode, operator: OpOverload, args: Sequence[object], kwargs: dict[str, object]
) -> object:
    """In inference mode, runs the parts of a composite operator under `mode`, and returns the operator's result.
    Returns NotImplemented outside of inference mode, and if the operator is not composite.

    In inference mode, a dispatch mode receives a composite operator as one call. The schema of the composite operator
    does not declare what its parts write to.
    """
    if not torch.is_inference_mode_enabled() or torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "CUDA"):
        return NotImplemented
    with mode:
        return operator.decompose(*args, **kwargs)


def _given(place: int, name: str, args: Sequence[object], kwargs: dict[str, object]) -> object:
    return args[place] if place < len(args) else kwargs.get(name)


def _allocates(schema: _OperatorSchema) -> bool:
    """Returns whether the operator only allocates memory."""
    return schema.namespace == "aten" and schema.name in {"empty", "empty_like", "empty_strided", "new_empty"}
