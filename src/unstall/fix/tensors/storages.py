"""Which memory an operator reads and writes: what its schema says, and what some schemas do not say."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# They write running_mean and running_var, and their schemas do not say so; those with `training` only if it is set.
_BATCH_NORMS = {"native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "batch_norm_update_stats"}
_RUNNING = ("running_mean", "running_var")
# It tells the allocator something and touches no memory, although its schema says that it writes.
_TOUCHES_NOTHING = {"record_stream"}
# Their schemas are kept by tests of torch itself; whose operators say less may do anything to their tensors.
_HONEST = {"aten", "prims", "torchvision"}
_NO_WORK = {"profiler", "c10_functional_nowork"}


@dataclass(frozen=True, slots=True)
class Touched:
    """Storages by their addresses. `fresh` are those that the operator made; `launches`: it put work on a stream."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    fresh: tuple[int, ...]
    launches: bool
    barrier: bool  # of another library: what it does beside its tensors is not known
    noticed: bool  # by autograd, which goes by the schema: whether it counts what is written to as changed


@dataclass(frozen=True, slots=True)
class _OperatorSchema:
    name: str
    namespace: str
    positions: tuple[int, ...]  # of arguments that are written
    keywords: frozenset[str]
    training: int | None = None  # the place of an argument without which nothing is written


def storage_of(tensor: torch.Tensor) -> int:
    """What is the same for all views of one memory, and for no other while a tensor of it lives."""
    return int(tensor.untyped_storage()._cdata)


def tensors_of(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor) and is_plain(leaf)]


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether it has one memory of its own: a sparse tensor has several, and no address."""
    return bool(tensor.layout == torch.strided)


def lies_in(tensor: torch.Tensor, storages: set[int]) -> bool:
    """Whether its memory is one of these. A sparse tensor's is none."""
    return is_plain(tensor) and storage_of(tensor) in storages


@lru_cache(maxsize=4096)
def _schema_of(operator: Any) -> _OperatorSchema:
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


def touched_by(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Touched:
    """What one call of an operator read and wrote."""
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


def decomposed(mode: TorchDispatchMode, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs the parts of a composite operator under the mode, which in inference mode gets it whole, and its schema does
    not say what the parts write. NotImplemented where it has none."""
    if not torch.is_inference_mode_enabled() or torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "CUDA"):
        return NotImplemented
    with mode:
        return operator.decompose(*args, **kwargs)


def _given(place: int, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[place] if place < len(args) else kwargs.get(name)


def _allocates(schema: _OperatorSchema) -> bool:
    """Whether it only takes memory and puts nothing into it."""
    return schema.namespace == "aten" and schema.name in {"empty", "empty_like", "empty_strided", "new_empty"}
