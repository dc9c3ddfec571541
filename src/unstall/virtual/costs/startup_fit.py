"""Infers what first uses cost from the times of first calls in several processes.

If two operators share a CUDA module, then in each process only the earlier of their two first calls is slow. Which
operators load a shared library is known, since each process noted when it loaded which.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations, pairwise
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from unstall.virtual.costs.families.products import CUBLAS
from unstall.virtual.costs.model import LONG_NS, ColdCode, Startup

_LEAST_MODULE_NS = 1_000_000
_LEAST_RATIO = 3.0
_LARGEST_RATIO = 2.5  # of the times that operators of one module took to load it
_LEAST_COMPILED, _LEAST_COMPILED_NS = 2.0, 100_000_000  # of a usual first call with a cache; compilers are slow
_SETTLED = 4  # calls of an operator in a process, after which its code is in the CPU caches
_LEAST_PROCESSES = 3  # in which an operator loaded kernels, so that its own extra time is known
_BRIEF_NS = tuple(50_000 << power for power in range(8))
_SHARES = tuple(share / 10 for share in range(13))
Floats: TypeAlias = NDArray[np.float64]
Times: TypeAlias = dict[str, dict[int, int]]
"""By operator and process: ns."""
Places: TypeAlias = dict[str, dict[int, int]]
"""By operator and process: how many operators the process called before this operator."""


class OperatorCalls(msgspec.Struct, frozen=True):
    """The first calls of one operator in one process. Each time is in ns and includes the wait for the device.

    Attributes:
        name: The operator.
        ns: The time of its first call, of its second call and so on, with the same shapes.
        others_ns: The time of the first call with each of some other shapes, after the calls of `ns`.
        libraries: The shared libraries that these calls loaded.
    """

    name: str
    ns: list[int]
    others_ns: list[int] = []
    libraries: list[str] = []

    @property
    def warm_ns(self) -> float:
        """The time of a call that finds its code in the CPU caches."""
        return statistics.median(self.ns[_SETTLED:] or self.ns[-1:])

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


def fit(processes: Sequence[FirstCalls]) -> Startup:
    """Infers the costs of first uses from the times that were measured in several processes."""
    compiled = _compiled(processes)
    processes = [process for process in processes if process.cached] or processes
    shapes = _shapes(processes)
    first: Times = {}
    place: Places = {}
    for number, process in enumerate(processes):
        for at, calls in enumerate(process.calls):
            ns = calls.loading_ns - shapes.get(calls.name, 0)
            first.setdefault(calls.name, {})[number] = max(round(ns), 0)
            place.setdefault(calls.name, {})[number] = at
    libraries = _take_libraries(processes, first)
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
    modules += libraries
    return Startup(
        init=round(statistics.median(process.init for process in processes)),
        context=round(statistics.median(process.context for process in processes)),
        cold=_cold(processes),
        kernels=dict(sorted(kernels.items())),
        shapes=dict(sorted(shapes.items())),
        compiled=dict(sorted(compiled.items())),
        modules=sorted(((round(ns), sorted(names)) for ns, names in modules), key=lambda module: module[1]),
    )


def _compiled(processes: Sequence[FirstCalls]) -> dict[str, int]:
    """Returns by how much first calls are longer without CUDA's cache on disk, for operators of which each first call
    without the cache took far longer than usual ones with it. The first call on a machine does not find its kernel in
    the cache either, so some calls with the cache may be as long.
    """
    cached: dict[str, list[int]] = {}
    uncached: dict[str, list[int]] = {}
    for process in processes:
        for calls in process.calls:
            (cached if process.cached else uncached).setdefault(calls.name, []).append(calls.ns[0])
    usual = {name: statistics.median(ns) for name, ns in cached.items()}
    return {
        name: round(statistics.median(ns) - usual[name])
        for name, ns in uncached.items()
        if len(ns) > 1 and name in usual and min(ns) >= max(_LEAST_COMPILED * usual[name], _LEAST_COMPILED_NS)
    }


def _shapes(processes: Sequence[FirstCalls]) -> dict[str, int]:
    """Returns by how much the first call with new shapes is longer, for each operator for which no such call was fast:
    its library prepares an execution plan for each.
    """
    extra: dict[str, list[float]] = {}
    for process in processes:
        for calls in process.calls:
            extra.setdefault(calls.name, []).extend(ns - calls.warm_ns for ns in calls.others_ns)
    return {name: round(statistics.median(ns)) for name, ns in extra.items() if ns and min(ns) >= _LEAST_MODULE_NS}


def _take_libraries(processes: Sequence[FirstCalls], first: Times) -> list[tuple[float, list[str]]]:
    """Returns (ns, operators) for the shared libraries that are always loaded together by the first call among several
    operators. Subtracts the ns from these first calls in `first`. What one operator always loads stays in its time.
    """
    loaders: dict[str, set[tuple[str, int]]] = {}
    for number, process in enumerate(processes):
        for calls in process.calls:
            for library in calls.libraries:
                loaders.setdefault(library, set()).add((calls.name, number))
    found = []
    for together in sorted({frozenset(calls) for calls in loaders.values()}, key=sorted):
        names = sorted({name for name, _ in together})
        longer = []
        for name in names:
            with_it = [ns for number, ns in first[name].items() if (name, number) in together]
            without = [ns for number, ns in first[name].items() if (name, number) not in together]
            if without:
                longer.append(statistics.median(with_it) - statistics.median(without))
        ns = max(statistics.median(longer or [0]), 0)
        if len(names) > 1 and ns >= _LEAST_MODULE_NS:
            found.append((ns, names))
            for name, number in together:
                first[name][number] = max(round(first[name][number] - ns), 0)
    return found


def _cold(processes: Sequence[FirstCalls]) -> ColdCode:
    """Returns the `ColdCode` whose predictions of second calls have the smallest sum of relative errors."""
    calls = [calls for each in processes for calls in each.calls if len(calls.ns) > _SETTLED]
    if not calls:
        return ColdCode()
    loading, warm = (np.array(each, float) for each in zip(*((at.loading_ns, at.warm_ns) for at in calls), strict=True))
    second, third = (np.array([at.ns[nth] for at in calls], float) - warm for nth in (1, 2))
    rows: dict[str, list[int]] = {}
    for row, at in enumerate(calls):
        rows.setdefault(at.name, []).append(row)
    again = float(np.clip(_weighted_median(third / np.maximum(second, 1), np.maximum(second, 1)), 0, 1))
    found: list[tuple[float, ColdCode]] = []
    for brief_ns in _BRIEF_NS:
        evicted = np.log1p(loading / brief_ns)
        own = {
            name: max(_weighted_median(second[mine] / np.maximum(evicted[mine], 1e-9), evicted[mine]), 0.0)
            for name, mine in rows.items()
            if (loading[mine] > brief_ns).sum() >= _LEAST_PROCESSES
        }
        ns, share = _usual(second, warm, evicted)
        cold = ColdCode(brief_ns, round(ns), share, round(again, 3), {name: round(each) for name, each in own.items()})
        predicted = np.array([cold.extra_ns(at.name, at.warm_ns, at.loading_ns) for at in calls])
        found.append((float((np.abs(predicted - second) / (warm + np.maximum(second, 0))).sum()), cold))
    return min(found, key=lambda each: each[0])[1]


def _usual(second: Floats, warm: Floats, evicted: Floats) -> tuple[float, float]:
    """Returns the (ns, share) of `ColdCode` with the smallest sum of absolute errors, for operators not measured."""
    found = []
    weight = np.maximum(evicted, 1e-9)
    for share in _SHARES:
        rest = share * np.minimum(warm, LONG_NS)
        ns = max(_weighted_median(second / weight - rest, weight), 0.0)
        found.append((float(np.abs(second - evicted * (ns + rest)).sum()), ns, share))
    _, ns, share = min(found)
    return ns, share


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
