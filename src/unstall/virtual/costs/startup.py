"""Measures how long the host takes for the first use of CUDA, and for the first use of each
operator. Needs torch and a GPU.

CUDA loads kernels when they are first used, in modules that have the kernels of a few operators. To
load one takes milliseconds. The first matrix product also sets up cuBLAS, and the first convolution
cuDNN.

To find out which operators share a module, this starts several processes that have not used CUDA.
All of them call the same operators, each in another order. If two operators share a module, only
the first of them is slow in each process.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import combinations, pairwise
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from unstall.decoding import from_json
from unstall.virtual.costs.families.products import CUBLAS
from unstall.virtual.costs.model import LONG_NS, SecondCall, Startup

_LEAST_ORDERS = 6
_LEAST_MODULE_NS = 1_000_000
_LEAST_RATIO = 3.0
_LARGEST_RATIO = 2.5  # of the times that operators of one module took to load it
_ELEMENTS = 1 << 20
_OPERATORS = (1e6, 320.0, 160.0, 80.0, 40.0, 20.0)
_SHARES = tuple(share / 4 for share in range(13))
Floats: TypeAlias = NDArray[np.float64]
Times: TypeAlias = dict[str, dict[int, int]]
"""A time in ns, by operator and by the number of a process."""
Places: TypeAlias = dict[str, dict[int, int]]
"""How many operators a process had called before an operator, by operator and by the number of the
process.
"""
Call: TypeAlias = tuple[str, tuple[object, ...], dict[str, object]]
"""A call of an operator: `(operator, args, kwargs)`. `operator` is its name with the overload."""


class FirstCalls(msgspec.Struct, frozen=True):
    """How long first uses took in one process, in ns.

    Attributes:
        init: The start of CUDA.
        context: The creation of the context of a device.
        calls: A tuple `(operator, first, second, later)` for each operator, in the order of the
            first calls: the times of its first, its second and a later call. Each time includes the
            wait for the device.
    """

    init: int
    context: int
    calls: list[tuple[str, int, int, int]]


def measure_startup(orders: int, seconds: float) -> Startup:
    """Measures what first uses cost. Starts processes, one after the other. Each calls the
    operators in another order.

    Args:
        orders: The number of processes.
        seconds: After this time, no more processes are started. At least six are, however long they
            take.

    Raises:
        RuntimeError: No process could use CUDA.
    """
    ran = subprocess.run(
        [sys.executable, "-m", __name__, str(orders), str(seconds)],
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ),
    )
    if ran.returncode:
        raise RuntimeError(ran.stderr.strip().rpartition("\n")[2] or f"exit code {ran.returncode}")
    return fit(from_json(ran.stdout, list[FirstCalls]))


def fit(processes: Sequence[FirstCalls]) -> Startup:
    """Returns what first uses cost, as it follows from the times in several processes."""
    first: Times = {}
    place: Places = {}
    for number, process in enumerate(processes):
        for at, (name, ns, _, later) in enumerate(process.calls):
            first.setdefault(name, {})[number] = max(ns - later, 0)
            place.setdefault(name, {})[number] = at
    of_cublas = CUBLAS & first.keys()
    cublas = _first_of(of_cublas, first, place)
    slow = {
        name: _slow({process: ns for process, ns in taken.items() if (name, process) not in cublas})
        for name, taken in first.items()
    }
    usual = {
        name: {
            process: ns for process, ns in taken.items() if (name, process) not in cublas and process not in slow[name]
        }
        for name, taken in first.items()
    }
    known = {name: statistics.median(taken.values()) for name, taken in usual.items() if taken}
    typical = statistics.median(known.values() or [0])  # of an operator that is alone in its module, nobody knows it
    kernels = {name: round(known.get(name, typical)) for name in first}
    loading = {name: {number: ns - kernels[name] for number, ns in first[name].items()} for name in first}
    modules = [
        (statistics.median(loading[name][process] for name in names for process in slow[name]), names)
        for names in _together(slow, place, loading)
    ]
    if cublas:
        taken = [
            loading[name][process]
            - sum(ns for ns, names in modules if (name, process) in _first_of(names, first, place))
            for name, process in cublas
        ]
        modules.append((statistics.median(taken), sorted(CUBLAS)))
    return Startup(
        init=round(statistics.median(process.init for process in processes)),
        context=round(statistics.median(process.context for process in processes)),
        second=_second(processes),
        kernels=dict(sorted(kernels.items())),
        modules=sorted(((round(ns), sorted(names)) for ns, names in modules), key=lambda module: module[1]),
    )


def _second(processes: Sequence[FirstCalls]) -> SecondCall:
    """Returns how much longer second calls take than later ones: the `SecondCall` whose predictions
    have the smallest sum of absolute errors.
    """
    calls = [(at, again - later, later) for each in processes for at, (_, _, again, later) in enumerate(each.calls)]
    if not calls:
        return SecondCall()
    known, extra, later = np.array(calls, float).T
    found: list[tuple[float, SecondCall]] = []
    for operators in _OPERATORS:
        weight = np.exp(-known / operators)
        for share in _SHARES:
            ns = max(_weighted_median(extra / weight - share * np.minimum(later, LONG_NS), weight), 0.0)
            error = np.abs(extra - weight * (ns + share * np.minimum(later, LONG_NS))).sum()
            found.append((float(error), SecondCall(round(ns), share, operators)))
    return min(found, key=lambda each: each[0])[1]


def _weighted_median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])


def _first_of(names: Collection[str], times: Times, place: Places) -> set[tuple[str, int]]:
    """Returns a pair `(operator, process)` for each process: which of the operators `names` it
    called first.

    Args:
        names: The operators.
        times: The times of first calls. Only its processes matter.
        place: How many operators each process had called before each operator.
    """
    processes = {process for name in names for process in times[name]}
    among = {process: [name for name in names if process in place[name]] for process in processes}
    return {(min(some, key=lambda name: place[name][process]), process) for process, some in among.items()}


def _slow(taken: Mapping[int, int]) -> set[int]:
    """Returns the processes in which the first call of an operator loaded its module.

    If the call took far longer in some processes than in the others, these are the ones. If it took
    long in all processes, all are.

    Args:
        taken: By process, how long the first call took, in ns.
    """
    if not taken:
        return set()
    times = sorted(taken.values())
    gaps = [(after / max(before, 1), at) for at, (before, after) in enumerate(pairwise(times[:-1]), 1)]
    ratio, at = max(gaps, default=(1.0, 0))
    if ratio < _LEAST_RATIO or times[at] - times[at - 1] < _LEAST_MODULE_NS:
        at = 0
    if times[at] < _LEAST_MODULE_NS:
        return set()
    return {number for number, ns in taken.items() if ns >= times[at]}


def _together(slow: Mapping[str, set[int]], place: Places, loading: Times) -> list[list[str]]:
    """Groups operators by the module that their first calls load. Returns the operators of each
    module.

    Two groups are joined if two things hold. In each process, only the earliest call among all
    their operators was slow. And the slow calls of all these operators took about as long. The
    groups with the most slow calls are joined first, because it is the least likely that these
    things hold for them by chance.

    Args:
        slow: By operator, the processes in which its first call loaded a module.
        place: How many operators each process had called before each operator.
        loading: How long each first call took to load modules.
    """
    groups = [[name] for name in slow if slow[name]]
    ns = {name: statistics.median(loading[name][process] for process in slow[name]) for (name,) in groups}

    def fit_together(one: str, other: str) -> bool:
        both = place[one].keys() & place[other].keys()
        after = {number for number in both if place[one][number] < place[other][number]}
        near = max(ns[one], ns[other]) <= _LARGEST_RATIO * min(ns[one], ns[other])
        return near and not (after & slow[other]) and not ((both - after) & slow[one])

    def often(group: list[str]) -> int:
        return sum(len(slow[name]) for name in group)

    while True:
        pairs = [
            (often(one) + often(other), one, other)
            for one, other in combinations(groups, 2)
            if all(fit_together(a, b) for a in one for b in other)
        ]
        if not pairs:
            return groups
        _, one, other = max(pairs, key=lambda pair: pair[0])
        one += other
        groups.remove(other)


def _calls_of_suite() -> dict[str, Call]:
    """Returns a call of each operator of the suite, by the name of the operator without its
    overload. The tensors are on the CPU.
    """
    from unstall.virtual.costs.measure import split
    from unstall.virtual.costs.suite import TensorPool, cases

    pool = TensorPool("cpu", _ELEMENTS)
    known: dict[str, Call] = {}
    for case in cases():
        name = case.operator.partition(".")[0]
        if name not in known:
            pool.begin()
            try:
                known[name] = case.operator, *split(case.build(pool))
            except (RuntimeError, ValueError):  # too large, or its arguments are made by an operator of GPUs
                continue
    return known


def _in_a_process(order: int, known: Mapping[str, Call]) -> FirstCalls:
    """Calls all operators, in an order that the seed `order` determines, and returns how long that
    took. The process must not have used CUDA before.

    Args:
        order: The seed.
        known: A call of each operator.
    """
    import torch

    from unstall.virtual.costs.measure import resolve

    names = sorted(known)
    random.Random(order).shuffle(names)
    init = _taken(torch.cuda.init)
    context = _taken(lambda: torch.empty(1, device="cuda"))
    calls = []
    for name in names:
        operator, args, kwargs = known[name]
        try:
            on_gpu = partial(resolve(operator), *map(_on_gpu, args), **{key: _on_gpu(at) for key, at in kwargs.items()})
            times = []
            for _ in range(5):
                begin = time.perf_counter_ns()
                on_gpu()
                torch.cuda.synchronize()
                times.append(time.perf_counter_ns() - begin)
            calls.append((name, times[0], times[1], min(times[2:])))
        except (RuntimeError, ValueError, TypeError):
            continue
    return FirstCalls(init, context, calls)


def _on_gpu(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="cuda").copy_(value)
    if isinstance(value, list | tuple):
        return type(value)(map(_on_gpu, value))
    return torch.device("cuda") if isinstance(value, torch.device) else value


def _taken(call: Any) -> int:
    begin = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - begin


def main() -> None:
    """Prints what was measured in each process, as JSON: a list of `FirstCalls`. The processes are
    forked from this one, which has imported torch and not used CUDA.
    """
    begin = time.monotonic()
    orders, seconds = int(sys.argv[1]), float(sys.argv[2])
    known = _calls_of_suite()
    found = []
    for order in range(orders):
        if order >= _LEAST_ORDERS and time.monotonic() - begin > seconds:
            break
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            with os.fdopen(writing, "wb") as file:
                file.write(msgspec.json.encode(_in_a_process(order, known)))
                file.flush()
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as file:
            data = file.read()
        os.waitpid(child, 0)
        if data:
            found.append(json.loads(data))
    if not found:
        sys.exit("no process could use CUDA")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
