"""The virtual machine of this process: its virtual GPUs and the host beside them. It starts when
torch is imported, and exists until the process ends.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from types import ModuleType
from typing import TYPE_CHECKING

from unstall.errors import UnstallError, UsageError
from unstall.guest import active, step_hooks, steps
from unstall.guest.imports import around_import
from unstall.guest.instants import LateRead
from unstall.guest.patching import wrap_after
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
"""The module that gives a child process its virtual GPU, before the first line of the child's program runs."""

FIRST_WITH_TF32 = 8
"""The major number of the first compute capability (Ampere's) whose tensor cores have TF32."""


class WatchedSpan:
    """A span of time on the virtual GPU, such as a `with` block. It has its own timeline.

    Attributes:
        machine: The virtual machine of this process.
        step_boundaries: For each step boundary in the span, what reported it, and its time on the
            virtual clock.
        loop_ends: For each end of a loop whose items set step boundaries, what set them, and the
            time.
        start_ns: When the span began, in ns of the virtual clock.
        end_ns: When the span ended; None if it has not ended.
        start_race_mark: What `Machine.race_mark` returned when the span began.
        end_race_mark: What `Machine.race_mark` returned when the span ended; None if it has not
            ended.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.step_boundaries: list[tuple[StepSource, LateRead]] = []
        self.loop_ends: list[tuple[StepSource, LateRead]] = []
        self.start_ns = 0
        self.end_ns: int | None = None
        self.start_race_mark = 0
        self.end_race_mark: int | None = None

    def timeline(self) -> Timeline:
        """Returns the timeline of the span. If the span has not ended, the timeline ends at the
        current time. Raises UsageError if torch was not imported.
        """
        from unstall.virtual.timeline.free_work import with_free_work
        from unstall.virtual.timeline.steps import with_found_steps, with_iterations
        from unstall.virtual.timeline.window import cut

        until = self.machine.now_ns() if self.end_ns is None else self.end_ns
        last_race = self.machine.race_mark() if self.end_race_mark is None else self.end_race_mark
        whole = self.machine.timeline(range(self.start_race_mark, last_race))
        part = cut(whole, self.start_ns, until) if self.start_ns or self.end_ns is not None else whole
        boundaries, ends = (
            [(source, at.ns() - self.start_ns) for source, at in noted]
            for noted in (self.step_boundaries, self.loop_ends)
        )
        found = with_iterations(with_found_steps(part, boundaries, ends))
        return with_free_work(found, self.machine.simulator, found.meta.zero_ns) if self.machine.simulator else found


class Machine:
    """The virtual machine of a process, with the spans of time in which it is watched (see
    `WatchedSpan`).

    During a span, the functions of `time` return virtual times, child processes get a virtual
    machine too, and `unstall.step()` adds step boundaries. Outside of all spans, the machine only
    keeps its tensors usable.

    Attributes:
        under_way: The message for a user who tries to record on this machine.
        options: The options with which the machine was created.
        simulator: The simulator; None until torch is imported.
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
        """A function `on_step(kind, who)` that is called at each step boundary from
        `unstall.step()` and from the helpers of `unstall.fix`. It is not called at a step boundary
        that a hook in torch reports. Its arguments are the fields of `StepSource`.
        """
        self._shim: ModuleType
        around_import("torch", self._power_on, self._torch_is_there)
        os.register_at_fork(after_in_child=self.forked)

    @property
    def is_watched(self) -> bool:
        """Whether a span (`WatchedSpan`) is active. While one is, the functions of `time` return virtual times."""
        return bool(self._watches)

    def now_ns(self) -> int:
        """Returns the virtual time of the calling thread in ns, or 0 before torch is imported."""
        return self.simulator.now_ns() if self.simulator is not None else 0

    def read_late(self, offset_ns: int) -> LateRead:
        """Reads the virtual clock of the calling thread without waiting for the simulation. Call it
        only after torch was imported.

        Returns:
            The read. It finds out its time, plus `offset_ns`, only when it is asked for the time.
        """
        assert self.simulator is not None
        return self.simulator.read_late(offset_ns)

    def advance(self, ns: int) -> None:
        """Advances the virtual clock of the calling thread by `ns`, as a sleep does."""
        from unstall.virtual.log import LogCode

        self._shim.append(int(LogCode.ADVANCE), -1, 0, ns, 0, -1, 0)

    def not_charged_ns(self) -> int:
        """Returns for how long, in ns of real time, the main thread has worked so far without
        advancing its virtual clock.
        """
        return self.simulator.simulation.clock.free.total_ns if self.simulator is not None else 0

    def own_work(self) -> AbstractContextManager[None]:
        """Returns a context manager: what the calling thread does in its block is no work of the program."""
        return self.simulator.own_work() if self.simulator is not None else nullcontext()

    def race_mark(self) -> int:
        """Returns a number for the current point of the program. A range of two such numbers, given
        to `timeline`, selects the races between the two points.
        """
        return self.simulator.race_mark() if self.simulator is not None else 0

    def timeline(self, races_within: range | None = None) -> Timeline:
        """Returns the timeline of everything that ran so far. Raises UsageError if torch was not
        imported.

        Args:
            races_within: A range between two numbers from `race_mark`: the timeline has only the
                races whose later access lies in it. None: the timeline has all races.
        """
        if self.simulator is None:
            raise UsageError("nothing ran on the virtual GPU: torch was not imported")
        from unstall.virtual.torch_cuda import patched_torch

        timeline = self.simulator.timeline(races_within)
        notes = (*timeline.meta.notes, *patched_torch.notes())
        return timeline.with_meta(recorder="virtual", notes=notes)

    def watch(self) -> WatchedSpan:
        """Begins a span of time with its own timeline, and returns it. Raises UsageError while a
        recording is active.
        """
        with self._turn:
            if not self._watches:
                self._begin_watching()
            watch = WatchedSpan(self)
            watch.start_ns, watch.start_race_mark = self.now_ns(), self.race_mark()
            self._watches.append(watch)
            return watch

    def unwatch(self, watch: WatchedSpan) -> None:
        """Ends the span `watch`. Does nothing if it has ended before."""
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
        """Notes a step boundary in all active spans. `unstall.step()` and the helpers of
        `unstall.fix` call this.

        Args:
            kind: What reports the boundary, as in `StepSource`.
            who: Which one of its kind reports it, as in `StepSource`.
        """
        if kind in (OPTIMIZER, FORWARD):  # from now on a graph serves calls of a function
            self._see_steps()
        self._note_boundary(kind, who)
        self.on_step(kind, who)

    def loop_ended(self, kind: str, who: int) -> None:
        """Notes in all active spans that a loop has ended whose items set step boundaries. The arguments are those of
        `step_boundary`.
        """
        if self.simulator is None:
            return
        now = self.read_late(0)
        for watch in tuple(self._watches):
            watch.loop_ends.append((StepSource(kind, who), now))

    def _capture_begins(self) -> None:
        if not steps.steps_are_ignored():  # unstall.graphed captures for itself, and shows its steps itself
            self._see_steps()

    def _see_steps(self) -> None:
        """From now on, notes boundaries of steps that torch itself shows. Before the program captures a graph, the
        timeline shows them.
        """
        with self._turn:
            if self._watches and not self._sees_steps:
                self._sees_steps = True
                self._watched.callback(
                    self._stop_seeing_steps, step_hooks.install(self._note_boundary, self.loop_ended)
                )

    def _note_boundary(self, kind: str, who: int) -> None:
        if self.simulator is None:
            return  # nothing ran yet
        now = self.read_late(0)
        for watch in tuple(self._watches):
            watch.step_boundaries.append((StepSource(kind, who), now))

    def end(self, why: str) -> None:
        """Ends all active spans. Called when the process ends. `why` is not used; recordings have the same method."""
        for watch in list(self._watches):
            self.unwatch(watch)

    def ended_by(self, error: BaseException) -> None:
        """Stores the error that ends the program. The timeline's faults then say which fault led to it."""
        if self.simulator is not None:
            self.simulator.ended_by(error)

    def keep_at_termination(self, keep: Callable[[], None]) -> None:
        """Has `keep` called right before this process dies of a signal that the program does not
        handle. Call this only after torch was imported.
        """
        self._shim.keep_at_termination(keep)

    def forked(self) -> None:
        """Ends the virtual clock and all spans in a forked child process. Python calls this in the
        child, right after the fork.
        """
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
        """Starts the virtual machine. Called right before torch is imported."""
        from unstall.virtual import blamed_faults, guarded_waits
        from unstall.virtual.shim.load import load
        from unstall.virtual.simulation.simulator import Simulator
        from unstall.virtual.torch_cuda.runtime import attach

        visible = visible_devices(self.options.devices, os.environ.get("CUDA_VISIBLE_DEVICES"))
        options = dataclasses.replace(self.options, devices=max(visible, 1))
        self._shim = load(options.devices, options.numerics)
        self.simulator = Simulator(self._shim, options, clock_log=self._clock.log)
        properties = _properties(options)
        major = properties[0].major
        has_tf32 = major >= FIRST_WITH_TF32 and os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"
        self._shim.configure(options.devices, options.numerics, self.simulator, major, has_tf32)
        attach(self.simulator, properties, hidden=not visible)
        guarded_waits.connect(self._shim, self.simulator)
        blamed_faults.connect(self.simulator)

    def _torch_is_there(self) -> None:
        from unstall.virtual.profiler import patch

        patch.install(self)
        wrap_after(sys.modules["torch.cuda"].CUDAGraph, "capture_begin", lambda *_, **__: self._capture_begins())
        if self.simulator is not None:
            self.simulator.measure_host()
        if self._watches:
            self._clock.start(self)


def visible_devices(count: int, setting: str | None) -> int:
    """Returns how many of `count` devices a program sees if this is the value of CUDA_VISIBLE_DEVICES: those before the
    first one that does not exist. If one is named twice, CUDA shows none.
    """
    if setting is None:
        return count
    names = [name.strip() for name in setting.split(",")]
    seen = list(itertools.takewhile(lambda name: name.startswith("GPU-") or name in map(str, range(count)), names))
    return 0 if len(set(seen)) < len(seen) else min(len(seen), count)


_machines: list[Machine] = []  # at most one in this process
_turn = threading.Lock()  # held while a machine is looked for or created


def current() -> Machine | None:
    """Returns the virtual machine of this process, or None if it has none."""
    return _machines[0] if _machines else None


def machine(options: MachineOptions, *, checked: bool = False) -> Machine:
    """Returns the virtual machine of this process. If there is none, creates one with `options`.

    Args:
        options: The options of the machine.
        checked: Whether the GPU of `options` is known to exist. If False, its file is read now,
            which imports NumPy.

    Raises:
        UsageError: This process has a machine with other options; or torch was imported before the
            machine was created; or the GPU is unknown; or torch would refuse the allocator's
            settings in the environment.
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
    """Creates the virtual machine of this process, and returns it. Raises UsageError as `machine` does."""
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
    """Returns what `torch.cuda.get_device_properties` returns for each device of the machine."""
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
    return [dataclasses.replace(first, index=index) for index in range(options.devices)]
