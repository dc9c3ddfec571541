"""A part of a call of an operator."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.virtual.costs.signature import Signature


@dataclass(frozen=True, slots=True)
class Piece:
    """A call that CUDA runs as part of another call, such as the copy of an argument.

    Attributes:
        signature: The call.
        holds: The bytes of each allocation that this call makes. Later pieces of the same split call use these
            allocations.
        ns: The time of the call's only kernel. If None, the call is predicted like any other call with this signature.
        host_ns: The extra host time of the call.
        takes_workspace: Whether torch gives the call a workspace, if it is a matrix product.
    """

    signature: Signature
    holds: tuple[int, ...] = ()
    ns: int | None = None
    host_ns: int = 0
    takes_workspace: bool = True
