"""Measures how long the host takes to call each operator, and what such a call launches and
allocates. Needs torch and a GPU.

A call is made in the way in which Python programs make it: by a function of torch such as
`torch.add`, if there is one for the operator.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from unstall.virtual.costs.facts import median_ns
from unstall.virtual.costs.gpu_file import Gpu
from unstall.virtual.costs.measure import device_events, fenced, resolve, split, tensors_in
from unstall.virtual.costs.model import HOST_WAIT, HostCosts, Limits
from unstall.virtual.costs.suite import Case, TensorPool

_POOL = 1 << 24  # elements of the largest tensor
_TIMES, _REFERENCE_TIMES = 60, 30
_MOST_NS = 60_000
"""The largest host time of an operator that is believed. If it took longer, the call waited for the
device, or loaded modules.
"""


class OperatorCall(NamedTuple):
    """What was measured of a call of an operator.

    Attributes:
        ns: The host time of the call.
        launches: How many kernels, copies and memsets the call launches.
        allocations: How many blocks of device memory the call allocates.
        is_bound: Whether the operator was called by a function of torch such as `torch.add`. If
            not, it was called through `torch.ops`.
        waits: How often the call waits for the device, such as for the copy of a value.
        waited_ns: The device time of what it waits for.
        tensors: How many tensors it takes and returns.
    """

    ns: int
    launches: int
    allocations: int
    is_bound: bool = True
    waits: int = 0
    waited_ns: int = 0
    tensors: int = 0


def measure_operator_calls(chosen: Iterable[Case], deadline: float) -> dict[str, OperatorCall]:
    """Measures a call of each operator, with the arguments of the first case that has the operator.
    Returns the calls by the name of the operator with its overload, such as "add.Tensor". Returns
    none if the profiler lost some launches. All times are of one pace of the host (`at_one_pace`).

    Args:
        chosen: The cases.
        deadline: A time of `time.monotonic()`, in seconds, after which no more calls are measured.
    """
    pool = TensorPool("cuda", _POOL)
    calls: dict[str, Callable[[], object]] = {}
    found: dict[str, OperatorCall] = {}
    references: dict[str, float] = {}
    x = torch.ones(16, device="cuda")
    reference = partial(x.add_, 1.0)
    for case in chosen:
        if case.operator in found or time.monotonic() > deadline:
            continue
        pool.begin()
        try:
            args, kwargs = split(case.build(pool))
            call, is_bound = _callable(case.operator, args, kwargs)
            pace = median_ns(reference, _REFERENCE_TIMES)
            ns = median_ns(call, _TIMES)
            references[case.operator] = (pace + median_ns(reference, _REFERENCE_TIMES)) / 2
            before = _allocations()
            result = call()
            found[case.operator] = OperatorCall(
                ns, 0, _allocations() - before, is_bound, tensors=len(tensors_in((*args, *kwargs.values(), result)))
            )
            calls[case.operator] = call
            pool.renew_after(resolve(case.operator))
        except (RuntimeError, ValueError, TypeError):
            continue
    pool.renew()
    paced = at_one_pace({name: call.ns for name, call in found.items()}, references)
    found = {name: call._replace(ns=paced[name]) for name, call in found.items()}
    writing = sorted(calls, key=lambda name: resolve(name)._schema.is_mutable)  # last: others read what they write
    launches = _launches([calls[name] for name in writing])  # once a profiler was attached, every launch takes longer
    if launches is None:
        return {}
    return {
        name: found[name]._replace(launches=sum(op != HOST_WAIT for op, _ in ops), waits=waits, waited_ns=waited)
        for name, ops in zip(writing, launches, strict=True)
        for waits, waited in (_waits(ops),)
    }


def at_one_pace(times: Mapping[str, int], references: Mapping[str, float]) -> dict[str, int]:
    """Returns times as if the host had had the same pace all the time. An H200's host changed its own by a factor of
    1.45 from second to second; at one pace, three processes differ by 6 % in the median of 334 calls.

    Args:
        times: Times in ns, by name.
        references: By name, how long a call that is the same for all took at that time, in ns. It may have more names.
    """
    if not times:
        return {}
    usual = statistics.median(references[name] for name in times)
    return {name: round(ns * usual / references[name]) for name, ns in times.items()}


def host_pace(calls: Mapping[str, OperatorCall], reference: Gpu) -> float:
    """Returns how long this machine's host takes for the calls of operators, over what the host of `reference` takes:
    the median of the operators. Calls that wait for the device, or that took another way than programs take, do not
    count. Raises RuntimeError if no call is left.

    Args:
        calls: The measured calls, by the name of the operator with its overload.
        reference: The GPU with whose host this one is compared.
    """
    own = reference.file.operators_host_ns
    ratios = []
    for operator, call in calls.items():
        known = own.get(operator.partition(".")[0])
        if known is not None and call.is_bound and call.launches and not call.waits:
            ratios.append(call.ns / (known + _around_ns(call, reference.host, 0)))
    if not ratios:
        raise RuntimeError("the pace of the host: no operator could be measured")
    return statistics.median(ratios)


def own_ns(
    calls: Mapping[str, OperatorCall], host: HostCosts, unbound_ns: int, limits: Limits | None = None, pace: float = 1.0
) -> dict[str, int]:
    """Returns the host time, in ns, of the work within each operator on a host whose pace is 1, by the name of the
    operator.

    This is the time of its call, without the costs of entering and leaving the operator, of its
    launches and allocations, and of its waits for the device. If an operator has several
    overloads, the one with the least work counts. An operator that waits for the device is left out if
    its time is not believed.

    Args:
        calls: The measured calls, by the name of the operator with its overload.
        host: The costs of a host whose pace is 1.
        unbound_ns: How much longer a call through `torch.ops` takes on it than one by a function
            such as `torch.add`.
        limits: The latencies of the device. None: the defaults.
        pace: The pace of the host that made the calls.
    """
    limits = limits or Limits()
    wait = limits.launch_latency + limits.copy_latency + limits.wake_latency - host.copy
    own: dict[str, int] = {}
    for operator, call in sorted(calls.items()):
        name = operator.partition(".")[0]
        worked = round((call.ns - call.waits * wait - call.waited_ns) / pace) - _around_ns(call, host, unbound_ns)
        if not call.waits or worked <= _MOST_NS:  # otherwise it waited for more
            own[name] = max(0, min(worked, own.get(name, worked), _MOST_NS))
    return own


def _around_ns(call: OperatorCall, host: HostCosts, unbound_ns: int) -> int:
    """Returns the host time, in ns, of a call of an operator without its own work and its waits."""
    around = host.operator + host.operator_end + (0 if call.is_bound else unbound_ns)
    around += call.launches * host.launch + call.allocations * (host.malloc + host.free)
    return around + max(call.tensors - host.few_uses, 0) * host.use


def _callable(
    operator: str, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> tuple[Callable[[], object], bool]:
    """Returns `(call, is_bound)`. `call` calls the operator with the given arguments. `is_bound` is
    whether it does so by a function of torch such as `torch.add`; if no such function takes these
    arguments, it goes through `torch.ops`.
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


def _waits(ops: Sequence[tuple[str, int]]) -> tuple[int, int]:
    """Returns how often the host waits, and about how long the device still works then: for the wait itself, if it is
    a copy, and the op before it.
    """
    places = [place for place, (name, _) in enumerate(ops) if name == HOST_WAIT or "DtoH" in name]
    return len(places), sum(ns for place in places for _, ns in ops[max(place - 1, 0) : place + 1])


def _launches(calls: Sequence[Callable[[], object]]) -> list[list[tuple[str, int]]] | None:
    """Returns the name and the ns of each device op of each call. Returns None if the profiler lost some."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for call in calls:
            torch.cuda._sleep(1)
            call()
        torch.cuda.synchronize()
    groups = [[(event.name, event.ns) for event in group] for group in fenced(device_events(profiler))]
    return groups if len(groups) == len(calls) else None
