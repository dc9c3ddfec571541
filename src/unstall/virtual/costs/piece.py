"""A piece of a call of an operator: a call that CUDA runs as a part of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides


@dataclass(frozen=True, slots=True)
class Piece:
    """A call that CUDA runs as a part of another call, such as the copy of an argument.

    Attributes:
        signature: The call.
        holds: The bytes of each allocation that this piece makes and later pieces of the same call
            use.
        ns: How long the only kernel of the piece takes. None: the piece is predicted as any other
            call with this signature.
        host_ns: How long the host works before the piece, in addition to the cost of a launch.
        between_ns: How long it works before each further kernel of the piece, in addition to that.
        takes_workspace: Whether the piece has a workspace, if it is a matrix product. Without one, it is
            one kernel.
        zeroes: The bytes that a memset sets to zero before the piece; 0 if there is no memset.
    """

    signature: Signature
    holds: tuple[int, ...] = ()
    ns: int | None = None
    host_ns: int = 0
    between_ns: int = 0
    takes_workspace: bool = True
    zeroes: int = 0


def copied(signature: Signature, instead: dict[int, TensorSpec]) -> tuple[Piece, ...]:
    """Returns the pieces of a call whose arguments are copied first: the copies, and then the call
    on these copies.

    Args:
        signature: The call.
        instead: By the position of an argument, its copy.
    """
    copies = [
        Piece(Signature("aten::copy_", "", (to, signature.inputs[at], False), (to,)), (to.numel * to.item_bytes,))
        for at, to in instead.items()
        if to.numel
    ]
    if not copies:
        return (Piece(signature),)
    inputs = tuple(instead.get(position, value) for position, value in enumerate(signature.inputs))
    return (*copies, Piece(replace(signature, inputs=inputs)))


def laid_out(x: TensorSpec) -> TensorSpec:
    """Returns a contiguous tensor of the type and sizes of `x`."""
    return TensorSpec(x.dtype, x.sizes, contiguous_strides(x.sizes))
