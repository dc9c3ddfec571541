"""The virtual machine of this process. The machine starts when torch is imported and exists until the process ends."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING

from unstall.errors import UnstallError, UsageError
from unstall.guest import active, step_hooks
from unstall.guest.imports import around_import
from unstall.guest.instants import LateRead
from unstall.guest.step_source import FORWARD, OPTIMIZER, StepSource
from unstall.launching.children import arming_children
from unstall.virtual.allocator.settings import checked_settings_text
from unstall.virtual.options import ENVIRONMENT, MachineOptions
from unstall.virtual.program_clock import ProgramClock

if TYPE_CHECKING:
    from unstall.timeline.columns import Timeline
    from unstall.virtual.simulation.simulator import Simulator
    from unstall.virtual.torch_cuda.properties import DeviceProperties

ARMED_BY = "unstall.virtual.child"
"""The module that gives a child process its virtual GPU. It runs before the first line of the program."""

FIRST_WITH_TF32 = 8
"""The major number of the first compute capability (Ampere's) whose tensor cores have TF32."""


class WatchedSpan:
    """A span of time on the virtual GPU, such as a `with` block. `timeline` returns the timeline of the span."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.step_boundaries: list[tuple[StepSource, LateRead]] = []  # times of the machine
        self.start_ns = 0
        self.end_ns: int | None = None
        self.start_race_mark = 0
        self.end_race_mark: int | None = None

    def timeline(self) -> Timeline:
        """Returns the timeline of the span. If the span has not ended, the timeline ends at the current time. Raises
        UsageError if torch was not imported.
        """
        from unstall.virtual.timeline.steps import with_found_steps, with_iterations
        from unstall.virtual.timeline.window import cut

        until = self.machine.now_ns() if self.end_ns is None else self.end_ns
        last_race = self.machine.race_mark() if self.end_race_mark is None else self.end_race_mark
        whole = self.machine.timeline(range(self.start_race_mark, last_race))
        part = cut(whole, self.start_ns, until) if self.start_ns or self.end_ns is not None else whole
        boundaries = [(source, at.ns() - self.start_ns) for source, at in self.step_boundaries]
        return with_iterations(with_found_steps(part, boundaries))


class Machine:
    """One virtual machine and its watched spans of time.

    While a span is watched, the program's clock is virtual, child processes have a virtual machine too, and
    `unstall.step()` adds step boundaries. While no span is watched, the machine only keeps its tensors usable.
    """

    under_way = (
        "the virtual GPU sees all that this process does, so that there is nothing to record: `unstall run --gpu` "
        "explains it at the end, and around a part, `with unstall.virtual_gpu(…) as gpu:` gives gpu.explain()"
    )

    def __init__(self, options: MachineOptions) -> None:
        self.options = options
        self.simulator: Simulator | None = None
        self._clock = ProgramClock()
        self._turn = threading.RLock()  # held while a span begins or ends
        self._watches: list[WatchedSpan] = []
        self._watched = ExitStack()
        self._sees_steps = False
        self.on_step: Callable[[str, int], None] = lambda kind, who: None
        """A function that is called at each step boundary from `unstall.step()` and from the helpers of `unstall.fix`.
        It is not called at a step boundary that a hook in torch reports.
        """
        self._shim: ModuleType
        around_import("torch", self._power_on, self._torch_is_there)
        os.register_at_fork(after_in_child=self.forked)

    @property
    def is_watched(self) -> bool:
        """Whether a span is watched. The program's clock is virtual while a span is watched."""
        return bool(self._watches)

    def now_ns(self) -> int:
        """Returns the calling thread's virtual clock in ns, or 0 before torch is imported."""
        return self.simulator.now_ns() if self.simulator is not None else 0

    def read_late(self, offset_ns: int) -> LateRead:
        """Reads the calling thread's virtual clock; see `Simulator.read_late`. Call it after torch was imported."""
        assert self.simulator is not None
        return self.simulator.read_late(offset_ns)

    def advance(self, ns: int) -> None:
        """Adds a sleep of `ns` to the calling thread."""
        from unstall.virtual.log import LogCode

        self._shim.append(int(LogCode.ADVANCE), -1, 0, ns, 0, -1, 0)

    def not_charged_ns(self) -> int:
        """Returns the real time, in ns, that the main thread has worked so far without advancing its virtual
        clock.
        """
        return self.simulator.simulation.clock.not_charged_ns if self.simulator is not None else 0

    def race_mark(self) -> int:
        """Returns a number for the current point of the program. Two such numbers can select races in `timeline`."""
        return self.simulator.race_mark() if self.simulator is not None else 0

    def timeline(self, races_within: range | None = None) -> Timeline:
        """Returns the timeline of everything that ran so far. Raises UsageError if torch was not imported.

        `races_within` is a range between two numbers from `race_mark`. If it is given, the timeline includes only races
        whose later access is in this range.
        """
        if self.simulator is None:
            raise UsageError("nothing ran on the virtual GPU: torch was not imported")
        from unstall.virtual.torch_cuda import patched_torch

        timeline = self.simulator.timeline(races_within, self._clock.log)
        notes = (*timeline.meta.notes, *patched_torch.notes())
        return replace(timeline, meta=replace(timeline.meta, recorder="virtual", notes=notes))

    def watch(self) -> WatchedSpan:
        """Begins a span. Raises UsageError while a recording is active."""
        with self._turn:
            if not self._watches:
                self._begin_watching()
            watch = WatchedSpan(self)
            watch.start_ns, watch.start_race_mark = self.now_ns(), self.race_mark()
            self._watches.append(watch)
            return watch

    def unwatch(self, watch: WatchedSpan) -> None:
        """Ends a span. Does nothing if the span has already ended."""
        with self._turn:
            if watch not in self._watches:
                return
            with suppress(UnstallError):  # the timeline raises the error of a simulation that failed
                if self.simulator is not None:
                    self.advance(0)  # a record: this thread goes on after autograd's, even if that one raised an error
                watch.end_ns, watch.end_race_mark = self.now_ns(), self.race_mark()
            self._watches.remove(watch)
            if not self._watches:
                self._watched.close()

    def _begin_watching(self) -> None:
        with ExitStack() as undo:
            active.activate(self)
            undo.callback(active.deactivate, self)
            undo.enter_context(arming_children(ARMED_BY, {ENVIRONMENT: self.options.to_json()}))
            self._clock.install()
            undo.callback(self._clock.remove)
            if self.simulator is not None:
                self._clock.start(self)
            self._watched = undo.pop_all()

    # The same interface as a recording, for `unstall.step()`, the helpers of `unstall.fix`, and the end of the process.

    def step_boundary(self, kind: str, who: int = 0) -> None:
        if kind in (OPTIMIZER, FORWARD):
            with self._turn:
                if self._watches and not self._sees_steps:
                    # From now on a graph serves calls of a function. Calls that run without the graph are step
                    # boundaries, too.
                    self._sees_steps = True
                    self._watched.callback(self._stop_seeing_steps, step_hooks.install(self._note_boundary))
        self._note_boundary(kind, who)
        self.on_step(kind, who)

    def _note_boundary(self, kind: str, who: int) -> None:
        if self.simulator is None:
            return  # nothing ran yet
        now = self.read_late(0)
        for watch in tuple(self._watches):
            watch.step_boundaries.append((StepSource(kind, who), now))

    def end(self, why: str) -> None:
        for watch in list(self._watches):
            self.unwatch(watch)

    def ended_by(self, error: BaseException) -> None:
        """Stores the error that ends the program, for the timeline's faults."""
        if self.simulator is not None:
            self.simulator.ended_by(error)

    def keep_at_termination(self, keep: Callable[[], None]) -> None:
        """Calls `keep` before a signal that the program does not handle ends this process. Call this function after
        torch was imported.
        """
        self._shim.keep_at_termination(keep)

    def forked(self) -> None:
        """Called in a forked child: makes the clock real and stops watching."""
        self._turn = threading.RLock()  # another thread may have held it
        self._watches.clear()
        if self.simulator is not None:
            self._shim.set_logging(False)
            self.simulator.forked()  # first, since another thread may have held its lock
        self._clock.stop()

    def _stop_seeing_steps(self, hooks: step_hooks.StepHooks) -> None:
        hooks.remove()
        self._sees_steps = False

    def _power_on(self) -> None:
        """Starts the machine. Called right before torch is imported."""
        from unstall.virtual import blamed_faults, guarded_waits
        from unstall.virtual.shim.load import load
        from unstall.virtual.simulation.simulator import Simulator
        from unstall.virtual.torch_cuda.runtime import attach

        options = self.options
        self._shim = load(options.devices, options.numerics)
        self.simulator = Simulator(self._shim, options)
        properties = _properties(options)
        has_tf32 = properties[0].major >= FIRST_WITH_TF32 and os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"
        self._shim.configure(options.devices, options.numerics, self.simulator, has_tf32)
        attach(self.simulator, properties)
        guarded_waits.connect(self._shim, self.simulator)
        blamed_faults.connect(self.simulator)

    def _torch_is_there(self) -> None:
        from unstall.virtual.profiler import patch

        patch.install(self)
        if self.simulator is not None:
            self.simulator.measure_host()
        if self._watches:
            self._clock.start(self)


_machines: list[Machine] = []  # at most one in this process
_turn = threading.Lock()  # held while a machine is looked for or created


def current() -> Machine | None:
    """Returns the machine of this process, or None."""
    return _machines[0] if _machines else None


def machine(options: MachineOptions, *, checked: bool = False) -> Machine:
    """Returns the machine of this process. Creates a machine with `options` if there is none.

    `checked` says that the GPU of `options` is known to exist. If it is False, its file is read now, which imports
    NumPy.

    Raises UsageError in four cases: this process has a machine with options other than `options`, torch is already
    imported, the GPU is unknown, or torch would refuse the allocator's settings.
    """
    with _turn:
        found = _machines[0] if _machines else _started(options, checked=checked)
    if found.options != options:
        raise UsageError(
            f"this process has a virtual GPU already: {found.options}; ask for the same one, or for "
            f"{options} in another process"
        )
    return found


def _started(options: MachineOptions, *, checked: bool) -> Machine:
    """Returns a new machine, which is this process's machine from now on. Raises UsageError as `machine` does."""
    if "torch" in sys.modules:
        raise UsageError(
            "torch was imported before the virtual GPU was there, and would not see it: begin the virtual GPU "
            "first, or run the program by `unstall run --gpu` or `python -m unstall.virtual`"
        )
    if not checked:
        from unstall.virtual.costs.gpu_file import gpu_named

        gpu_named(options.gpu)
    checked_settings_text()
    _machines.append(Machine(options))
    active.refuse_recordings(Machine.under_way)
    return _machines[0]


def _properties(options: MachineOptions) -> list[DeviceProperties]:
    """Returns torch's properties of each device."""
    from unstall.virtual.costs.gpu_file import gpu_named
    from unstall.virtual.torch_cuda.properties import H200, DeviceProperties

    device = gpu_named(options.gpu).file.device
    described = DeviceProperties(
        name=device.name,
        major=device.capability[0],
        minor=device.capability[1],
        total_memory=device.total_bytes,
        multi_processor_count=device.multiprocessors,
        L2_cache_size=device.l2_bytes,
    )
    # More properties of a real H200 are known.
    first = H200 if device.name == H200.name else described
    return [replace(first, index=index) for index in range(options.devices)]
