"""Measures two things on this machine: how fast its CPU is, compared with the modelled host, and
how long torch takes to report an operator to a callback.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from unstall.virtual.costs.model import Costs
from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides

_ROWS, _WIDTH = 10_000, 64
_TAKES_NS = 100_000_000
_LEAST_ROUNDS = 5
_CALLS = 100


def host_scale(costs: Costs) -> float:
    """Returns the time of the CPU's work on the modelled host, over its time on this machine. Takes
    about 0.1 s, and uses no random number generator of the program.

    The work is two operators in one thread: x.mul(x).sum(-1), whose time depends on the memory, and
    bmm of many small rows, whose time depends on simple loops over single numbers.
    """
    return float(f"{sum(_modelled_ns(costs)) / _here_ns():.3g}")


def _modelled_ns(costs: Costs) -> list[int]:
    x, sums = _tensor(_ROWS, _WIDTH), _tensor(_ROWS)
    rows, columns, products = _tensor(_ROWS, 1, _WIDTH), _tensor(_ROWS, _WIDTH, 1), _tensor(_ROWS, 1, 1)
    calls = (
        Signature("aten::mul", "Tensor", (x, x), (x,)),
        Signature("aten::sum", "dim_IntList", (x, (-1,), False, None), (sums,)),
        Signature("aten::bmm", "", (rows, columns), (products,)),
    )
    return [costs.host_work_ns(call, 1) for call in calls]


def _here_ns() -> int:
    """Returns how long one thread of this machine takes for the operators that `host_scale` compares, in ns."""
    import torch

    x = torch.ones(_ROWS, _WIDTH)
    rows, columns = x.view(_ROWS, 1, _WIDTH), x.view(_ROWS, _WIDTH, 1)

    def work() -> None:
        x.mul(x).sum(-1)
        torch.bmm(rows, columns)

    threads = torch.get_num_threads()
    torch._C.set_num_threads(1)
    try:
        return _fastest(work, _TAKES_NS)
    finally:
        torch._C.set_num_threads(threads)


def telling_ns() -> int:
    """Returns how long torch takes to report the begin or the end of an operator to a callback, in
    ns. It is half of what both reports add to the time of the operator.
    """
    import torch

    x = torch.ones(4)

    def work() -> None:
        for _ in range(_CALLS):
            x.add(x)

    told = _fastest(work, _TAKES_NS // 4)
    torch._C._autograd._enable_record_function(False)
    try:
        untold = _fastest(work, _TAKES_NS // 4)
    finally:
        torch._C._autograd._enable_record_function(True)
    return max(told - untold, 0) // (2 * _CALLS)


def _fastest(work: Callable[[], None], takes_ns: int) -> int:
    """Calls `work` again and again for about `takes_ns`. Returns how long the fastest call took, in
    ns; the others may have been slowed down by other programs.
    """
    found: list[int] = []
    ends = time.monotonic_ns() + takes_ns
    while len(found) < _LEAST_ROUNDS or time.monotonic_ns() < ends:
        began = time.monotonic_ns()
        work()
        found.append(time.monotonic_ns() - began)
    return min(found)


def _tensor(*sizes: int) -> TensorSpec:
    return TensorSpec("float32", sizes, contiguous_strides(sizes))
