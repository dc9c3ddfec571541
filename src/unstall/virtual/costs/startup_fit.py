"""Infers what first uses cost from the times of first calls in several processes.

Which modules a call needs is known (`kernel_modules.py`), and so is which shared libraries a process loaded when. So it
is known what each first call prepared. The time to load a module grows with its size: on an H100, by 4.0 ms a MB, and
0.8 ms more; for half of the first calls, this is less than a fifth off.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from unstall.virtual.costs.families import convolutions
from unstall.virtual.costs.families.products import CUBLAS
from unstall.virtual.costs.kernel_modules import KernelModules
from unstall.virtual.costs.model import LONG_NS, ColdCode, Startup

_LEAST_NS = 1_000_000  # what a call must take longer to count as one that set up a library or made a plan
_LEAST_COMPILED, _LEAST_COMPILED_NS = 2.0, 100_000_000  # of a usual first call with a cache; compilers are slow
_SETTLED = 4  # calls of an operator in a process, after which its code is in the CPU caches
_LEAST_PROCESSES = 3  # in which an operator loaded kernels, so that its own extra time is known
_ROUNDS = 40  # of a weighted fit, which is near its end after 20
_BRIEF_NS = tuple(50_000 << power for power in range(8))
_SHARES = tuple(share / 10 for share in range(13))
Floats: TypeAlias = NDArray[np.float64]
_CONVOLUTIONS = frozenset(convolutions.NAMES)
_Call: TypeAlias = tuple[int, str]
"""The first call of an operator in a process: the number of the process, the operator."""


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


class MeasuredStartup(NamedTuple):
    """What first uses cost, and the modules of kernels.

    Attributes:
        startup: What first uses cost.
        module_of: By the name of a kernel: the module that it is in, as a number of `startup.modules`.
    """

    startup: Startup
    module_of: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A first call of an operator with some arguments, and what it prepared.

    Attributes:
        process: The number of the process.
        operator: The name of the operator.
        ns: How much longer the call took than with code in the CPU caches.
        kernels: How many kernels it launched for the first time.
        modules: The modules that it loaded.
        libraries: The shared libraries that it loaded.
        shared: What it set up for several modules, as numbers of the groups of `_groups`.
        again: Whether the operator was called before, with other arguments.
    """

    process: int
    operator: str
    ns: float
    kernels: int
    modules: frozenset[int]
    libraries: frozenset[str]
    shared: frozenset[int]
    again: bool


def fit(processes: Sequence[FirstCalls], kernels: KernelModules) -> MeasuredStartup:
    """Infers the costs of first uses.

    Args:
        processes: The times that were measured in several processes.
        kernels: Which modules the calls need.
    """
    compiled = _compiled(processes)
    processes = [process for process in processes if process.cached] or processes
    groups = _groups(kernels)
    rows = [row for number, process in enumerate(processes) for row in _prepared(number, process, kernels, groups)]
    shapes = _shapes(rows)
    rows = [replace(row, ns=max(row.ns - shapes.get(row.operator, 0), 0.0)) for row in rows]
    kernel_ns = _median(row.ns / row.kernels for row in rows if row.kernels and not row.modules and not row.libraries)
    rows = [replace(row, ns=max(row.ns - kernel_ns * row.kernels, 0.0)) for row in rows]
    modules = _module_ns(rows, [module.size_bytes for module in kernels.modules])
    first = {row.process: row for row in reversed(rows) if any(modules[at] for at in row.modules)}
    alone = [row for row in first.values() if not row.shared]
    early = max(_median(row.ns / sum(modules[at] for at in row.modules) - 1 for row in alone), 0.0)
    rows = [replace(row, ns=max(row.ns - sum(modules[at] for at in row.modules), 0.0)) for row in rows]
    rows, shared = _shared(rows, groups)
    startup = Startup(
        init=round(statistics.median(process.init for process in processes)),
        context=round(statistics.median(process.context for process in processes)),
        cold=_cold(processes),
        early=round(early, 2),
        kernel=round(kernel_ns),
        shapes=dict(sorted(shapes.items())),
        compiled=dict(sorted(compiled.items())),
        libraries=_libraries(rows),
        modules=[round(ns) for ns in modules],
        shared=shared,
    )
    return MeasuredStartup(startup, kernels.module_of)


def _groups(kernels: KernelModules) -> list[frozenset[int]]:
    """Returns groups of modules. The first launch of a kernel of a group sets up what the kernels of the group share.

    cuBLAS sets up its kernels for each dtype of products: on an H100, float32 takes 65 ms, and bfloat16, before or
    after it, 100 ms. For the first kernel that can fail an assertion, the driver takes 6 ms.
    """
    products: dict[str, set[int]] = {}
    others: set[int] = set()
    for call, (operator, dtype) in kernels.operators.items():
        if operator in CUBLAS:
            products.setdefault(dtype, set()).update(kernels.needed(call))
        elif operator not in _CONVOLUTIONS:  # convolutions call cuBLAS
            others |= kernels.needed(call)
    times = Counter(chain.from_iterable(products.values()))
    groups = [frozenset(at for at in modules if times[at] == 1) - others for modules in products.values()]
    return [*groups, frozenset(kernels.module_of[name] for name in kernels.asserting if name in kernels.module_of)]


def _prepared(
    number: int, process: FirstCalls, kernels: KernelModules, groups: Sequence[frozenset[int]]
) -> Iterator[_Prepared]:
    """Yields the first calls of a process, in order."""
    launched: set[str] = set()
    loaded: set[int] = set()
    for calls in process.calls:
        for nth, (call, ns) in enumerate(zip(calls.numbers, (calls.ns[0], *calls.others_ns), strict=True)):
            new = set(kernels.launched.get(call, ())) - launched
            modules = frozenset(kernels.needed(call) - loaded)
            libraries = frozenset(() if nth else calls.libraries)  # nearly always, the first of the calls loads them
            extra_ns = max(ns - calls.warm_ns, 0.0)
            shared = frozenset(at for at, group in enumerate(groups) if modules & group and not loaded & group)
            yield _Prepared(number, calls.name, extra_ns, len(new), modules, libraries, shared, nth > 0)
            launched |= new
            loaded |= modules


def _shapes(rows: Iterable[_Prepared]) -> dict[str, int]:
    """Returns by how much the first call with new arguments is longer, for each operator for which no such call was
    fast: its library prepares an execution plan for each.
    """
    extra: dict[str, list[float]] = {}
    for row in rows:
        if row.again and not row.modules:
            extra.setdefault(row.operator, []).append(row.ns)
    return {name: round(statistics.median(ns)) for name, ns in extra.items() if min(ns) >= _LEAST_NS}


def _module_ns(rows: Sequence[_Prepared], sizes: Sequence[int]) -> list[float]:
    """Returns how long it takes to load each module.

    This is the median of the calls that loaded the module alone, and set up no library. If there are none, it is what
    other modules of its size take: those of torch, or those of libraries.

    Args:
        rows: The first calls.
        sizes: The size of each module, in bytes.
    """
    set_up = _first_of(rows, _CONVOLUTIONS)
    alone: dict[int, list[float]] = {}
    of_library: set[int] = set()
    for row in rows:
        if row.operator in CUBLAS | _CONVOLUTIONS:
            of_library |= row.modules
        sets_up = row.libraries or row.shared or (not row.again and (row.process, row.operator) in set_up)
        if len(row.modules) == 1 and not sets_up:
            alone.setdefault(min(row.modules), []).append(row.ns)
    known = {at: statistics.median(ns) for at, ns in alone.items()}
    lines = {}
    for library in (False, True):
        mine = [at for at in known if (at in of_library) == library]
        lines[library] = _line(np.array([sizes[at] for at in mine], float), np.array([known[at] for at in mine], float))
    usual = [lines[at in of_library] for at in range(len(sizes))]
    return [known.get(at, base + rate * sizes[at]) for at, (base, rate) in enumerate(usual)]


def _line(sizes: Floats, ns: Floats) -> tuple[float, float]:
    """Returns (base, rate) of the line `base + rate * size` with about the smallest sum of relative errors. Neither is
    negative.
    """
    if not len(sizes):
        return 0.0, 0.0
    lines = [(float(np.median(ns)), 0.0), (0.0, float(np.median(ns / sizes)))]
    base, rate = lines[1]
    for _ in range(_ROUNDS):
        line = np.maximum(base + rate * sizes, 1.0)
        weight = 1 / np.sqrt(line * np.maximum(np.abs(ns - line), 0.01 * line))
        (base, rate), *_ = np.linalg.lstsq(np.stack([weight, weight * sizes], axis=1), weight * ns, rcond=None)
    if base >= 0 and rate >= 0:
        lines.append((float(base), float(rate)))

    def error(line: tuple[float, float]) -> float:
        return float(np.abs(np.log(np.maximum(line[0] + line[1] * sizes, 1) / np.maximum(ns, 1))).sum())

    return min(lines, key=error)


def _shared(
    rows: list[_Prepared], groups: Sequence[frozenset[int]]
) -> tuple[list[_Prepared], list[tuple[int, list[int]]]]:
    """Returns the rows without the time to set up what several modules share, and the (ns, modules) of each such part:
    the median of the calls that set up nothing else.
    """
    found = []
    for at, group in enumerate(groups):
        ns = _median(row.ns for row in rows if row.shared == {at} and not row.libraries)
        if ns >= _LEAST_NS:
            found.append((round(ns), sorted(group)))
            rows = [replace(row, ns=max(row.ns - ns, 0.0)) if at in row.shared else row for row in rows]
    return rows, found


def _libraries(rows: Sequence[_Prepared]) -> list[tuple[int, list[str]]]:
    """Returns (ns, operators) for what the first call among several operators sets up: shared libraries that are always
    loaded together, what the operators of a family share, and what else the first call of each operator takes.
    """
    rest = {(row.process, row.operator): row.ns for row in rows if not row.again}
    loaders: dict[str, set[_Call]] = {}
    for row in rows:
        for library in row.libraries:
            loaders.setdefault(library, set()).add((row.process, row.operator))
    together = sorted({frozenset(calls) for calls in loaders.values()}, key=sorted)
    groups = [(names, calls) for calls in together if len(names := frozenset(name for _, name in calls)) > 1]
    groups.append((_CONVOLUTIONS, _first_of(rows, _CONVOLUTIONS)))
    groups += [(frozenset({name}), frozenset[_Call]()) for name in sorted({name for _, name in rest})]
    found = []
    for names, calls in groups:
        ns = _shared_ns(rest, calls or frozenset(call for call in rest if call[1] in names))
        if ns >= _LEAST_NS:
            found.append((round(ns), sorted(names)))
            rest |= {call: max(rest[call] - ns, 0.0) for call in calls}
    return sorted(found, key=lambda library: library[1])


def _first_of(rows: Iterable[_Prepared], operators: Set[str]) -> frozenset[_Call]:
    """Returns the first call of each process among those of some operators."""
    first: dict[int, str] = {}
    for row in rows:
        if row.operator in operators:
            first.setdefault(row.process, row.operator)
    return frozenset(first.items())


def _shared_ns(rest: Mapping[_Call, float], calls: Set[_Call]) -> float:
    """Returns the time of what these calls set up for other calls of the same operators.

    This is the smallest that one of the operators shows: by how much its calls among `calls` take longer than its other
    calls. Some of these operators may set up more at the same time.
    """
    longer = []
    for name in {name for _, name in calls}:
        mine = [ns for call, ns in rest.items() if call[1] == name and call in calls]
        others = [ns for call, ns in rest.items() if call[1] == name and call not in calls]
        longer.append(_median(mine) - _median(others))
    return min(longer, default=0.0)


def _median(values: Iterable[float]) -> float:
    """Returns the median; 0 if there are no values."""
    return statistics.median([*values] or [0.0])


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
