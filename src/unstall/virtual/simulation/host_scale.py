"""Measures how long this host takes for operators on the CPU, against what the model says of the modelled host."""

from __future__ import annotations

import time
from collections.abc import Callable

from unstall.virtual.costs.model import Costs
from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides

_ROWS, _WIDTH = 10_000, 64
_TAKES_NS = 100_000_000
_LEAST_ROUNDS = 5


def host_scale(costs: Costs) -> float:
    """Returns the time that sums of products take on the modelled host over the time that they take here, by one
    thread. The program's random numbers stay as they are. Takes about 0.1 s.

    The products are made in two ways: x.mul(x).sum(-1) goes by the speed of memory, bmm of rows by that of plain loops.
    """
    return float(f"{sum(_modelled_ns(costs)) / _fastest_ns():.3g}")


def _modelled_ns(costs: Costs) -> list[int]:
    x, sums = _tensor(_ROWS, _WIDTH), _tensor(_ROWS)
    rows, columns, products = _tensor(_ROWS, 1, _WIDTH), _tensor(_ROWS, _WIDTH, 1), _tensor(_ROWS, 1, 1)
    calls = (
        Signature("aten::mul", "Tensor", (x, x), (x,)),
        Signature("aten::sum", "dim_IntList", (x, (-1,), False, None), (sums,)),
        Signature("aten::bmm", "", (rows, columns), (products,)),
    )
    return [costs.host_work_ns(call, 1) for call in calls]


def _fastest_ns() -> int:
    """Returns the ns of the fastest of many rounds here: others are slowed down by other programs."""
    import torch

    x = torch.ones(_ROWS, _WIDTH)
    rows, columns = x.view(_ROWS, 1, _WIDTH), x.view(_ROWS, _WIDTH, 1)

    def work() -> None:
        x.mul(x).sum(-1)
        torch.bmm(rows, columns)

    threads = torch.get_num_threads()
    torch._C.set_num_threads(1)
    try:
        return min(_times(work))
    finally:
        torch._C.set_num_threads(threads)


def _times(work: Callable[[], None]) -> list[int]:
    found: list[int] = []
    ends = time.monotonic_ns() + _TAKES_NS
    while len(found) < _LEAST_ROUNDS or time.monotonic_ns() < ends:
        began = time.monotonic_ns()
        work()
        found.append(time.monotonic_ns() - began)
    return found


def _tensor(*sizes: int) -> TensorSpec:
    return TensorSpec("float32", sizes, contiguous_strides(sizes))
