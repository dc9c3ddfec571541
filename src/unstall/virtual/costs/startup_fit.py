"""Infers what first uses cost from the times of first calls in several processes.

Which modules a call needs is known (`kernel_modules.py`), and so is which shared libraries a process loaded when. So it
is known what each first call prepared. The time to load a module grows with its size: on an H100, by 4.0 ms a MB, and
0.8 ms more; for half of the first calls, this is less than a fifth off.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from unstall.virtual.costs.cold_code_fit import fit_cold_code
from unstall.virtual.costs.families import convolutions
from unstall.virtual.costs.families.products import CUBLAS
from unstall.virtual.costs.first_calls import FirstCalls
from unstall.virtual.costs.kernel_modules import KernelModules
from unstall.virtual.costs.model import Startup

_LEAST_NS = 1_000_000  # what a call must take longer to count as one that set up a library or made a plan
_LEAST_COMPILED, _LEAST_COMPILED_NS = 2.0, 100_000_000  # of a usual first call with a cache; compilers are slow
_LEAST_CALLS = 3  # that set up nothing else, so that the time of what modules share is known
_ROUNDS = 40  # of a weighted fit, which is near its end after 20
_OF_CUBLAS = re.compile(r"\bcutlass::|_xmma_gemm_|cublas")
"""Is in the names of kernels of cuBLAS that cuDNN calls, and not in those of cuDNN's own: these have a namespace of
CUTLASS of their own, and xmma kernels named after convolutions, such as `_fprop_implicit_gemm_`.
"""
Floats: TypeAlias = NDArray[np.float64]
_CONVOLUTIONS = frozenset(convolutions.NAMES)
_Call: TypeAlias = tuple[int, str]
"""The first call of an operator in a process: the number of the process, the operator."""


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
        convolves: Whether it was the first convolution of the process.
        again: Whether the operator was called before, with other arguments.
    """

    process: int
    operator: str
    ns: float
    kernels: int
    modules: frozenset[int]
    libraries: frozenset[str]
    shared: frozenset[int]
    convolves: bool
    again: bool

    @property
    def sets_up_library(self) -> bool:
        """Whether it loaded shared libraries, or set up cuDNN."""
        return bool(self.libraries) or self.convolves

    @property
    def only_loads(self) -> bool:
        """Whether it prepared nothing but modules and kernels."""
        return not self.sets_up_library and not self.shared


def fit(processes: Sequence[FirstCalls], kernels: KernelModules) -> MeasuredStartup:
    """Infers the costs of first uses.

    Args:
        processes: The times that were measured in one or more processes.
        kernels: Which modules the calls need.
    """
    compiled = _compiled(processes)
    processes = [process for process in processes if process.cached] or processes
    groups = _groups(kernels)
    rows = [row for number, process in enumerate(processes) for row in _prepared(number, process, kernels, groups)]
    shapes = _shapes(rows)
    rows = [replace(row, ns=max(row.ns - shapes.get(row.operator, 0), 0.0)) for row in rows]
    kernel_ns = _median(row.ns / row.kernels for row in rows if row.kernels and not row.modules and row.only_loads)
    rows = [replace(row, ns=max(row.ns - kernel_ns * row.kernels, 0.0)) for row in rows]
    modules = _module_ns(rows, [module.size_bytes for module in kernels.modules])
    loading = [sum(modules[at] for at in row.modules) for row in rows]
    early = max(_median(row.ns / ns - 1 for row, ns in _first_loads(rows, loading) if row.only_loads), 0.0)
    rows = [replace(row, ns=max(row.ns - ns, 0.0)) for row, ns in zip(rows, loading, strict=True)]
    rows, shared = _shared(rows, groups)
    startup = Startup(
        init=round(statistics.median(process.init for process in processes)),
        context=round(statistics.median(process.context for process in processes)),
        cold=fit_cold_code(processes),
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
    after it, 92 to 107 ms. When the first module with a kernel that can fail an assertion is loaded, the driver takes
    6 ms.
    """
    of_cublas = [any(map(_OF_CUBLAS.search, module.kernels)) for module in kernels.modules]
    products: dict[str, set[int]] = {}
    of_torch: set[int] = set()
    for call, (operator, dtype) in kernels.operators.items():
        if operator in CUBLAS:
            products.setdefault(dtype, set()).update(kernels.needed(call))
        elif operator in _CONVOLUTIONS:  # cuDNN calls cuBLAS
            products.setdefault(dtype, set()).update(at for at in kernels.needed(call) if of_cublas[at])
        else:
            of_torch |= kernels.needed(call)
    dtypes = Counter(chain.from_iterable(products.values()))
    groups = [frozenset(at for at in modules if dtypes[at] == 1) - of_torch for modules in products.values()]
    return [*groups, frozenset(at for at, module in enumerate(kernels.modules) if module.asserts)]


def _prepared(
    number: int, process: FirstCalls, kernels: KernelModules, groups: Sequence[frozenset[int]]
) -> Iterator[_Prepared]:
    """Yields the first calls of a process, in order."""
    launched: set[str] = set()
    loaded: set[int] = set()
    convolved = False
    for calls in process.calls:
        for nth, (call, ns) in enumerate(zip(calls.numbers, (calls.ns[0], *calls.others_ns), strict=True)):
            new = set(kernels.launched.get(call, ())) - launched
            modules = frozenset(kernels.needed(call) - loaded)
            libraries = frozenset(() if nth else calls.libraries)  # nearly always, the first of the calls loads them
            extra_ns = max(ns - calls.warm_ns, 0.0)
            shared = frozenset(at for at, group in enumerate(groups) if modules & group and not loaded & group)
            convolves = calls.name in _CONVOLUTIONS and not convolved
            yield _Prepared(number, calls.name, extra_ns, len(new), modules, libraries, shared, convolves, nth > 0)
            launched |= new
            loaded |= modules
            convolved |= convolves


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

    This is the median of the calls that prepared nothing but this module. If there are none, it is what other modules
    of its size take: those of torch, or those of libraries, or if none of these is known, either.

    Args:
        rows: The first calls.
        sizes: The size of each module, in bytes.
    """
    alone: dict[int, list[float]] = {}
    of_library: set[int] = set()
    for row in rows:
        if row.operator in CUBLAS | _CONVOLUTIONS:
            of_library |= row.modules
        if len(row.modules) == 1 and row.only_loads:
            alone.setdefault(min(row.modules), []).append(row.ns)
    known = {at: statistics.median(ns) for at, ns in alone.items()}
    if not known:
        return [0.0] * len(sizes)
    lines = {}
    for library in (False, True):
        like = [at for at in known if (at in of_library) == library] or list(known)
        lines[library] = _line(np.array([sizes[at] for at in like], float), np.array([known[at] for at in like], float))
    usual = [lines[at in of_library] for at in range(len(sizes))]
    return [known.get(at, base + rate * sizes[at]) for at, (base, rate) in enumerate(usual)]


def _line(sizes: Floats, ns: Floats) -> tuple[float, float]:
    """Returns (base, rate) of the line `base + rate * size` that fits best. Neither is negative.

    It is a constant, a line through 0, or the line with about the smallest sum of relative errors: the one with the
    smallest sum of logarithms of ratios, so that half counts as much as twice.
    """
    lines = [(float(np.median(ns)), 0.0), (0.0, float(np.median(ns / np.maximum(sizes, 1))))]
    base, rate = lines[1]
    for _ in range(_ROUNDS):
        line = np.maximum(base + rate * sizes, 1.0)
        weight = 1 / np.sqrt(line * np.maximum(np.abs(ns - line), 0.01 * line))
        (base, rate), *_ = np.linalg.lstsq(np.stack([weight, weight * sizes], axis=1), weight * ns, rcond=None)
    if base >= 0 and rate >= 0:
        lines.append((float(base), float(rate)))

    def misfit(line: tuple[float, float]) -> float:
        return float(np.abs(np.log(np.maximum(line[0] + line[1] * sizes, 1) / np.maximum(ns, 1))).sum())

    return min(lines, key=misfit)


def _first_loads(rows: Sequence[_Prepared], loading: Sequence[float]) -> list[tuple[_Prepared, float]]:
    """Returns the first call of each process that loaded modules of known time, with this time."""
    first = {row.process: (row, ns) for row, ns in reversed([*zip(rows, loading, strict=True)]) if ns}
    return list(first.values())


def _shared(
    rows: list[_Prepared], groups: Sequence[frozenset[int]]
) -> tuple[list[_Prepared], list[tuple[int, list[int]]]]:
    """Returns the rows without the time to set up what several modules share, and the (ns, modules) of each such part:
    the median of the calls that set up nothing else. It is not known from fewer than three calls.
    """
    found = []
    for at, group in enumerate(groups):
        alone = [row.ns for row in rows if row.shared == {at} and not row.sets_up_library]
        ns = _median(alone)
        if len(alone) >= _LEAST_CALLS and ns >= _LEAST_NS:
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
    groups.append((_CONVOLUTIONS, frozenset((row.process, row.operator) for row in rows if row.convolves)))
    groups += [(frozenset({name}), frozenset[_Call]()) for name in sorted({name for _, name in rest})]
    found = []
    for names, calls in groups:
        ns = _shared_ns(rest, calls or frozenset(call for call in rest if call[1] in names))
        if ns >= _LEAST_NS:
            found.append((round(ns), sorted(names)))
            rest |= {call: max(rest[call] - ns, 0.0) for call in calls}
    return sorted(found, key=lambda library: library[1])


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
