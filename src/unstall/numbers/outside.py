"""Refuses a function that uses weights from outside, or that changes tensors from outside. A tensor
is from outside if it is not among the function's arguments, and the function did not make it.

Such a function cannot be run several times from the same state, because only its arguments are
copied before a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from unstall.errors import UsageError
from unstall.fix.tensors.nesting import tensors_in
from unstall.rounding.facts import is_plain, written_by
from unstall.rounding.operators import Call


class Outside:
    """What is outside of a function: all memory except that of its arguments and of the tensors
    that it makes. The function must not change memory outside, nor use weights outside.
    """

    def __init__(self) -> None:
        self._known: set[int] = set()

    def refusing(self, call: Call) -> Call:
        """Returns a function that calls an operator by `call`, after it has checked what the
        operator uses.

        The returned function raises UsageError if the operator would use weights from outside of
        the compared function. It also raises UsageError if the operator would change a tensor from
        outside of the function.
        """

        def refuses(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
            used = tensors_in((args, kwargs))
            if any(each.requires_grad and each.is_leaf and self._is_outside(each) for each in used):
                raise UsageError(
                    "the function uses weights that are not among its arguments: pass the model as one, to be copied"
                )
            if any(map(self._is_outside, written_by(func, args, kwargs))):
                raise UsageError(
                    "the function changes a tensor that is not among its arguments: pass it as one, to be copied"
                )
            result = call(func, args, kwargs)
            self.note(tensors_in(result))
            return result

        return refuses

    def note(self, tensors: Iterable[torch.Tensor]) -> None:
        """Notes the memory of tensors that the function gets as arguments or makes."""
        self._known.update(_memory(each) for each in tensors if is_plain(each))

    def _is_outside(self, tensor: torch.Tensor) -> bool:
        return is_plain(tensor) and tensor.numel() > 0 and _memory(tensor) not in self._known


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
