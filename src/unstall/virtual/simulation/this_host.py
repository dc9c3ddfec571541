"""Measures two numbers on this machine: its speed relative to the modelled host, and the time that torch takes to
report an operator to a callback.
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
    """Returns the time of some CPU operators on the modelled host, divided by their time on this machine. Both times
    are for one thread. Takes about 0.1 s. Does not draw random numbers.

    The operators are x.mul(x).sum(-1) and bmm of rows. The memory limits the speed of x.mul(x).sum(-1). Simple loops
    over single numbers limit the speed of bmm.
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
    """Returns the time in ns that one thread of this machine takes for the operators of `host_scale`."""
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
    """Returns how long torch takes to report the begin or the end of an operator to a callback, in ns. This is half of
    the time that the reports add to a call of an operator.
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
    """Calls `work` many times, for about `takes_ns` in total. Returns the time of the fastest call in ns, because other
    programs may slow down some of the calls.
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
