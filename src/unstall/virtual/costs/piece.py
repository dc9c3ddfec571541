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
        ns: The time of the call's one kernel; None if it is that of any such call.
        host_ns: The extra host time of the call.
    """

    signature: Signature
    holds: tuple[int, ...] = ()
    ns: int | None = None
    host_ns: int = 0
