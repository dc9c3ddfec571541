"""A piece of a call of an operator: a call that CUDA runs as a part of it."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.virtual.costs.signature import Signature


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
