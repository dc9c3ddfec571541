"""Knows the operators that run nothing on the device: views, questions about a shape, and
allocations without values.
"""

from __future__ import annotations

from unstall.virtual.costs.signature import Signature

_VIEWS = frozenset(
    "aten::" + name
    for name in (
        "empty",
        "empty_strided",
        "empty_like",
        "new_empty",
        "new_empty_strided",
        "empty_permuted",
        "view",
        "view_as",
        "as_strided",
        "as_strided_",
        "expand",
        "expand_as",
        "permute",
        "transpose",
        "transpose_",
        "t",
        "t_",
        "slice",
        "select",
        "unsqueeze",
        "unsqueeze_",
        "squeeze",
        "squeeze_",
        "detach",
        "detach_",
        "alias",
        "_reshape_alias",
        "_unsafe_view",
        "resize_",
        "resize_as_",
        "set_",
        "unfold",
        "diagonal",
        "unbind",
        "split",
        "split_with_sizes",
        "chunk",
        "movedim",
        "swapaxes",
        "view_as_real",
        "view_as_complex",
        "real",
        "imag",
        "record_stream",
        "lift_fresh",
        "lift",
        "_conj",
        "_neg_view",
        "flatten",
        "unflatten",
        "is_pinned",
        "_local_scalar_dense",
        "item",
        "is_same_size",
        "narrow",
        "numpy_T",
        "mT",
        "adjoint",
        "requires_grad_",
        "_unsafe_split",
        "to",
        "contiguous",
        "_pin_memory",
    )
)


def runs_nothing(signature: Signature) -> bool:
    """Returns whether a call launches no kernel: because of its operator, or because its results
    have no elements. If it has no results, its arguments count.
    """
    if signature.name in _VIEWS:
        return True
    results = signature.results
    if results:
        return all(result.numel == 0 for result in results)
    return bool(signature.tensors) and all(tensor.numel == 0 for tensor in signature.tensors)
