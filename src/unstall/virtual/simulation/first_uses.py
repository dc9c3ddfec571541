"""Charges the host for first uses: the start of CUDA, the context of a device, and the loading of
modules with kernels.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

import numpy as np

from unstall.timeline.columns import DeviceKind
from unstall.virtual.costs.model import Startup
from unstall.virtual.log import LogCode
from unstall.virtual.simulation.actions import Actions
from unstall.virtual.simulation.log_batch import LogBatch
from unstall.virtual.simulation.recipes import RuntimeCall


@dataclass
class _Loaded:
    """What was used on a device before.

    Attributes:
        modules: The modules that were loaded: the number of a measured module, or the name of an
            operator whose kernels' modules are unknown.
        libraries: The numbers of the libraries that were set up.
        shared: The numbers of what modules share (`Startup.shared`) that were set up.
        kernels: The names of the kernels that were launched.
        calls: How often each operator was called. Calls that can cost nothing extra may not be
            counted.
        settled: For each signature of an operator, whether its next calls cost nothing extra. A
            bool array.
    """

    modules: set[int | str] = field(default_factory=set)
    libraries: set[int] = field(default_factory=set)
    shared: set[int] = field(default_factory=set)
    kernels: set[str] = field(default_factory=set)
    loading_ns: int = 0
    """How long modules, kernels and plans were loaded so far."""
    before: dict[str, int] = field(default_factory=dict)
    """By operator: `loading_ns` before its last call that may have found its code evicted from the CPU caches."""
    owed_ns: dict[str, float] = field(default_factory=dict)
    """By operator: the extra time of its next call, since its last call found its code evicted."""
    seen: set[int] = field(default_factory=set)
    """The signatures that were launched."""
    settled: np.ndarray = field(default_factory=lambda: np.zeros(0, np.bool_))
    """For each signature: True if its next calls have no extra cost, as long as nothing is loaded."""


_NEGLIGIBLE_NS = 500


class FirstUses:
    """Inserts the host time of first uses into the log: CUDA's initialisation, the context of each device, and the
    loading of each kernel module before the first launch of one of its kernels. Loading evicts code from the CPU
    caches, so it also makes the next call of each operator longer (`ColdCode`).

    If the module of an operator's kernels is not known, they are taken to be in a module of their own, which takes as
    long to load as the median of the measured modules.
    """

    def __init__(self, startup: Startup, actions: Actions) -> None:
        self._startup = startup
        self._actions = actions
        self.compiles = False
        """Whether a kernel that a library compiles at run time is not in CUDA's cache on disk, as with
        CUDA_CACHE_DISABLE=1."""
        self._devices: dict[int, _Loaded] = {}
        self._libraries_of: dict[str, set[int]] = {}
        for number, (_, names) in enumerate(startup.libraries):
            for name in names:
                self._libraries_of.setdefault(name, set()).add(number)
        self._shared_by: dict[int | str, set[int]] = {}
        for number, (_, modules) in enumerate(startup.shared):
            for module in modules:
                self._shared_by.setdefault(module, set()).add(number)
        self._usual_module = round(statistics.median(startup.modules or [0]))

    def serve(self, batch: LogBatch) -> None:
        """Inserts the host time of first uses into `batch`. If the costs have no times of first
        uses, inserts nothing.
        """
        if self._startup == Startup():
            return
        records = batch.records
        numbers, rows = np.unique(records["device"], return_index=True)
        for device, row in zip(numbers.tolist(), rows.tolist(), strict=True):
            if device >= 0 and device not in self._devices:
                if not self._devices:
                    self._insert(batch, row, RuntimeCall.INIT, self._startup.init)
                self._devices[device] = _Loaded()
                self._insert(batch, row, RuntimeCall.CONTEXT, self._startup.context)
        launches = np.flatnonzero(records["code"] == LogCode.LAUNCH)
        for device, loaded in self._devices.items():
            mine = launches[records["device"][launches] == device]
            more = len(self._actions.names) - len(loaded.settled)
            if more:
                loaded.settled = np.append(loaded.settled, np.zeros(more, np.bool_))
            self._launches(batch, mine, loaded)

    def _launches(self, batch: LogBatch, rows: np.ndarray, loaded: _Loaded) -> None:
        """Inserts the extra host time of one device's launches, which are `rows` of the batch."""
        signatures = batch.records["id"][rows]
        at = 0
        while at < len(rows):
            loading_ns = loaded.loading_ns
            for place in (at + np.flatnonzero(~loaded.settled[signatures[at:]])).tolist():
                self._launch(batch, int(rows[place]), int(signatures[place]), loaded)
                if loaded.loading_ns > loading_ns:  # now no signature is settled, which the loop does not know
                    at = place + 1
                    break
            else:
                return

    def _launch(self, batch: LogBatch, row: int, signature: int, loaded: _Loaded) -> None:
        if loaded.settled[signature]:
            return
        name = self._actions.names[signature]
        kernels = self._actions.operators[signature].kernels
        new = {
            each.name: each.module
            for each in kernels
            if each.kind is DeviceKind.KERNEL and not each.is_wait and each.name not in loaded.kernels
        }
        ns = self._loading(name, signature, new, loaded)
        loaded.kernels |= new.keys()
        loaded.seen.add(signature)
        self._insert(batch, row, RuntimeCall.LOAD, ns)
        if name in loaded.before:
            passed = loaded.loading_ns - loaded.before[name]
            extra = self._startup.cold.extra_ns(name, self._warm_ns(signature), passed)
            self._insert(batch, row, RuntimeCall.NONE, round(max(extra, loaded.owed_ns.get(name, 0.0))))
            loaded.owed_ns[name] = self._startup.cold.again * extra
        loaded.before[name] = loaded.loading_ns
        if ns:
            loaded.loading_ns += ns
            loaded.settled[:] = False
        loaded.settled[signature] = not ns and loaded.owed_ns.get(name, 0.0) < _NEGLIGIBLE_NS

    def _warm_ns(self, signature: int) -> int:
        """Returns about how long a call of this operator, and the wait for the call, take with warm CPU caches."""
        cost, host, limits = self._actions.operators[signature], self._actions.costs.host, self._actions.costs.limits
        on_host = host.operator + cost.host_ns + len(cost.kernels) * host.launch + host.synchronize_device
        on_device = sum(each.duration_ns for each in cost.kernels)
        return on_host + limits.launch_latency + on_device + limits.wake_latency

    def _loading(self, name: str, signature: int, kernels: dict[str, int], loaded: _Loaded) -> int:
        """Returns how long an operator prepares its plan and loads the modules that its new kernels need, in ns."""
        first_ns = self._startup.shapes.get(name, 0) + self._actions.operators[signature].first_ns
        ns = 0 if signature in loaded.seen else first_ns
        if kernels:
            ns += self._loading_kernels(name, kernels, loaded)
            ns += self._startup.compiled.get(name, 0) if self.compiles else 0
        return ns

    def _loading_kernels(self, name: str, kernels: dict[str, int], loaded: _Loaded) -> int:
        """Returns how long it takes to load what an operator's new kernels need, in ns, and notes
        that it is loaded.

        Args:
            name: The name of the operator, without the namespace.
            kernels: The kernels that are launched for the first time: by name, the module.
            loaded: What was used on this device before.
        """
        modules = {name if module < 0 else module for module in kernels.values()} - loaded.modules
        loaded.modules |= modules
        known = name if name in self._libraries_of else name.removesuffix("_")
        libraries = self._libraries_of.get(known, set()) - loaded.libraries
        loaded.libraries |= libraries
        shared = set[int]().union(*(self._shared_by.get(each, ()) for each in modules)) - loaded.shared
        loaded.shared |= shared
        ns = self._startup.kernel * len(kernels)
        ns += sum(self._startup.libraries[each][0] for each in libraries)
        ns += sum(self._startup.shared[each][0] for each in shared)
        before = len(loaded.modules) - len(modules)
        for nth, module in enumerate(sorted(modules, key=str), before + 1):
            usual = self._usual_module if isinstance(module, str) else self._startup.modules[module]
            ns += round(usual * (1 + self._startup.early / nth))
        return ns

    def _insert(self, batch: LogBatch, row: int, what: RuntimeCall, ns: int) -> None:
        if ns:
            device = max(int(batch.records["device"][row]), 0)
            batch.insertions.add(row, self._actions.call(what, ns), device)
