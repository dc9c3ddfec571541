"""Measures how long the host takes to call each operator, and what these calls launch and allocate. Needs a GPU.

A call is made as Python programs make it: through the operator's binding in torch, if the operator has a binding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from unstall.virtual.costs.facts import median_ns
from unstall.virtual.costs.measure import device_events, fenced, resolve, split
from unstall.virtual.costs.model import HostCosts, Limits
from unstall.virtual.costs.suite import Case, TensorPool

_POOL = 1 << 24  # elements of the largest tensor
_TIMES = 60
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
        is_bound: Whether the operator was called by one of torch's bindings, such as `torch.add`. If not, it was called
            through `torch.ops`.
        read_ns: If the call reads a value from the device: the device's time for the copy of the value, and for the
            kernel before this copy. Otherwise 0.
    """

    ns: int
    launches: int
    allocations: int
    is_bound: bool = True
    read_ns: int = 0


def measure_operator_calls(chosen: Iterable[Case], deadline: float) -> dict[str, OperatorCall]:
    """Returns the call of each operator, by the operator's name and overload.

    Each operator is called with the arguments of its first case. Stops measuring when `time.monotonic()` passes
    `deadline`.
    """
    pool = TensorPool("cuda", _POOL)
    calls: dict[str, Callable[[], object]] = {}
    found: dict[str, OperatorCall] = {}
    for case in chosen:
        if case.operator in found or time.monotonic() > deadline:
            continue
        pool.begin()
        try:
            args, kwargs = split(case.build(pool))
            call, is_bound = _callable(case.operator, args, kwargs)
            ns = median_ns(call, _TIMES)
            before = _allocations()
            call()
            found[case.operator] = OperatorCall(ns, 0, _allocations() - before, is_bound)
            calls[case.operator] = call
        except (RuntimeError, ValueError, TypeError):
            continue
    launches = _launches(list(calls.values()))  # last: once a profiler was attached, every launch takes longer
    if launches is None:
        return {}
    return {
        name: found[name]._replace(launches=len(ops), read_ns=_read_ns(ops))
        for name, ops in zip(calls, launches, strict=True)
    }


def own_ns(
    calls: Mapping[str, OperatorCall], host: HostCosts, unbound_ns: int, limits: Limits | None = None
) -> dict[str, int]:
    """Returns the host ns of the work inside each operator, by name.

    This is the time of the operator's call, minus the costs of the call's entry, exit, launches and allocations, and
    the wait for a value that the call reads. If an operator has several overloads, the overload with the least work
    counts. `unbound_ns` is how much longer a call through `torch.ops` takes.
    """
    limits = limits or Limits()
    wait = limits.launch_latency + limits.copy_latency + limits.wake_latency - host.copy
    own: dict[str, int] = {}
    for operator, call in sorted(calls.items()):
        name = operator.partition(".")[0]
        others = host.operator + host.operator_end
        others += 0 if call.is_bound else unbound_ns
        others += call.launches * host.launch + call.allocations * (host.malloc + host.free)
        others += wait + call.read_ns if call.read_ns else 0
        own[name] = max(0, min(call.ns - others, own.get(name, call.ns), _MOST_NS))
    return own


def _callable(
    operator: str, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> tuple[Callable[[], object], bool]:
    """Returns (a function that calls an operator, whether it calls the operator by a binding).

    A binding is a function of torch for Python, such as `torch.add`. If no binding takes the arguments, the operator is
    called through `torch.ops`.
    """
    for function in _bindings(operator.partition(".")[0]):
        call = partial(function, *args, **kwargs)
        try:
            call()
        except (RuntimeError, TypeError):  # its arguments have another order
            continue
        return call, True
    return partial(resolve(operator), *args, **kwargs), False


def _bindings(name: str) -> Iterator[Callable[..., object]]:
    for module in (torch, torch._C._nn, torch.Tensor):
        found = getattr(module, name, None)
        if found is not None:
            yield found


def _allocations() -> int:
    return int(torch.cuda.memory_stats().get("allocation.all.allocated", 0))


def _read_ns(ops: Sequence[tuple[str, int]]) -> int:
    at = next((at for at, (name, _) in enumerate(ops) if "DtoH" in name), None)
    return 0 if at is None else sum(ns for _, ns in ops[max(at - 1, 0) : at + 1])


def _launches(calls: Sequence[Callable[[], object]]) -> list[list[tuple[str, int]]] | None:
    """Returns (name, ns) of each device operation of each call; None if the profiler lost some."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for call in calls:
            torch.cuda._sleep(1)
            call()
        torch.cuda.synchronize()
    groups = fenced(device_events(profiler))
    return groups if len(groups) == len(calls) else None
