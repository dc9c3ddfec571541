"""What is measured of first calls in processes that have not used CUDA before."""

from __future__ import annotations

import statistics

import msgspec

SETTLED = 4  # after so many calls of an operator in a process, its code is in the CPU caches


class OperatorCalls(msgspec.Struct, frozen=True):
    """The first calls of one operator in one process. Each time is in ns and includes the wait for the device.

    Attributes:
        name: The operator.
        numbers: The numbers of the calls: first that of `ns`, then those of `others_ns`.
        ns: The time of its first call, of its second call and so on, with the same arguments.
        others_ns: The time of the first call with each of some other arguments, after the calls of `ns`.
        libraries: The shared libraries that these calls loaded.
    """

    name: str
    numbers: list[int]
    ns: list[int]
    others_ns: list[int] = []
    libraries: list[str] = []

    @property
    def warm_ns(self) -> float:
        """The time of a call that finds its code in the CPU caches."""
        return statistics.median(self.ns[SETTLED:] or self.ns[-1:])

    @property
    def loading_ns(self) -> float:
        """How much longer the first call took."""
        return max(self.ns[0] - self.warm_ns, 0.0)


class FirstCalls(msgspec.Struct, frozen=True):
    """The times of first uses in one process, in ns.

    Attributes:
        init: The time to initialise CUDA.
        context: The time to create a context.
        calls: The calls of each operator, in the order of the first calls.
        cached: Whether CUDA kept compiled kernels on disk. If not, a library compiles its kernels in each process.
    """

    init: int
    context: int
    calls: list[OperatorCalls]
    cached: bool = True
