"""Measures how long the host takes to call each operator, and what these calls launch and allocate. Needs a GPU.

A call is made as Python programs make it: through the operator's binding in torch, if the operator has a binding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from unstall.virtual.costs.facts import median_ns
from unstall.virtual.costs.measure import resolve, split
from unstall.virtual.costs.model import HostCosts
from unstall.virtual.costs.suite import Case, TensorPool

_POOL = 1 << 24  # elements of the largest tensor
_TIMES = 60
_FENCE = "spin_kernel"  # of torch.cuda._sleep
_MOST_NS = 60_000
"""An upper limit for an operator's host time. An operator takes longer if it has many tensors, or if its first call
loads modules.
"""


class OperatorCall(NamedTuple):
    """The call of an operator.

    Attributes:
        ns: The host time of the call.
        launches: How many kernels, copies and memsets the call launches.
        allocations: How many blocks the call allocates.
    """

    ns: int
    launches: int
    allocations: int


def measure_operator_calls(chosen: Iterable[Case], deadline: float) -> dict[str, OperatorCall]:
    """Returns the call of each operator, by the operator's name and overload.

    Each operator is called with the arguments of its first case. Stops measuring when `time.monotonic()` passes
    `deadline`.
    """
    pool = TensorPool("cuda", _POOL)
    calls: dict[str, Callable[[], object]] = {}
    ns: dict[str, int] = {}
    allocations: dict[str, int] = {}
    for case in chosen:
        if case.operator in ns or time.monotonic() > deadline:
            continue
        pool.begin()
        try:
            args, kwargs = split(case.build(pool))
            call = _callable(case.operator, args, kwargs)
            ns[case.operator] = median_ns(call, _TIMES)
            before = _allocations()
            call()
            allocations[case.operator] = _allocations() - before
            calls[case.operator] = call
        except (RuntimeError, ValueError, TypeError):
            ns.pop(case.operator, None)
    launches = _launches(calls)  # last: once a profiler was attached, every launch takes longer
    return {name: OperatorCall(ns[name], launches[name], allocations[name]) for name in calls}


def own_ns(calls: Mapping[str, OperatorCall], host: HostCosts) -> dict[str, int]:
    """Returns the host ns of the work inside each operator, by name.

    This is the time of the operator's call, minus the costs of the call's entry, exit, launches and allocations. If an
    operator has several overloads, the overload with the least work counts.
    """
    own: dict[str, int] = {}
    for operator, call in sorted(calls.items()):
        name = operator.partition(".")[0]
        others = host.operator + host.operator_end
        others += call.launches * host.launch + call.allocations * (host.malloc + host.free)
        own[name] = max(0, min(call.ns - others, own.get(name, call.ns), _MOST_NS))
    return own


def _callable(operator: str, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Callable[[], object]:
    for function in _bindings(operator.partition(".")[0]):
        call = partial(function, *args, **kwargs)
        try:
            call()
        except (RuntimeError, TypeError):  # its arguments have another order
            continue
        return call
    return partial(resolve(operator), *args, **kwargs)


def _bindings(name: str) -> Iterator[Callable[..., object]]:
    for module in (torch, torch._C._nn, torch.Tensor):
        found = getattr(module, name, None)
        if found is not None:
            yield found


def _allocations() -> int:
    return int(torch.cuda.memory_stats().get("allocation.all.allocated", 0))


def _launches(calls: Mapping[str, Callable[[], object]]) -> dict[str, int]:
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for call in calls.values():
            torch.cuda._sleep(1)
            call()
        torch.cuda.synchronize()
    counts: list[int] = []
    for event in sorted(profiler.events(), key=lambda event: event.time_range.start):
        if event.device_type != DeviceType.CUDA:
            continue
        if _FENCE in event.name:
            counts.append(0)
        elif counts:
            counts[-1] += 1
    return dict(zip(calls, counts, strict=True))
