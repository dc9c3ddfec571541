"""Counts what a test launches and how much memory it takes, on the virtual GPU of this process or on a real GPU."""

from __future__ import annotations

import gc
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from unstall.errors import UnstallError
from unstall.guarding.regions import has_source

if TYPE_CHECKING:
    from unstall.blaming.races.watch import RaceWatch
    from unstall.blaming.result import Race
    from unstall.recording.in_process import Recording
    from unstall.timeline.columns import Timeline
    from unstall.virtual.machine import Machine, WatchedSpan


@dataclass(frozen=True, slots=True)
class Seen:
    """What was counted while a test ran.

    Attributes:
        gpu: The GPU and the version of torch; "" if the test did not initialize CUDA, None if there
            is no GPU.
        launches: How many kernels, graphs, copies and memsets the test launched; None if they could
            not be counted.
        reserved_bytes: The peak of reserved device memory; None if it could not be measured.
        sees_waits: Whether waits of the CPU for the GPU can be counted.
    """

    gpu: str | None
    launches: int | None = 0
    reserved_bytes: int | None = 0
    sees_waits: bool = True


class Source(Protocol):
    """Counts what one test does on the GPU, from the creation of the object until `end`."""

    def end(self) -> Seen: ...

    def timeline(self) -> Timeline | None:
        """Returns the timeline of the test, with its races. Returns None on a real GPU, or if
        neither idle time nor races were asked for. Call this after `end`.
        """

    def races(self) -> tuple[Race, ...] | None:
        """Returns the races of the test on a real GPU. Returns None on a virtual GPU, where
        `timeline` has them, or if races could not be looked for. Call this after `end`.
        """


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to find out about a test. Each item takes extra time.

    Attributes:
        launches: Whether to count launches. On a virtual GPU they are always counted.
        memory: Whether to measure the peak of reserved memory. If True, torch's cached memory is
            freed before the test, so that earlier tests do not affect the peak.
        idle: Whether to predict idle time, which is possible only on a virtual GPU.
        races: Whether to look for races.
    """

    launches: bool = False
    memory: bool = False
    idle: bool = False
    races: bool = False


def source(wanted: Wanted) -> Source:
    """Starts to count what a test does, and returns the object that counts.

    It counts on the virtual GPU of this process, or on a real GPU if the process has no virtual
    one.
    """
    machines = sys.modules.get("unstall.virtual.machine")
    machine = machines.current() if machines is not None else None
    if wanted.memory:
        forget_caches()
    return OfVirtualGpu(machine, wanted) if machine is not None else OfRealGpu(wanted)


class OfVirtualGpu:
    """Counts what a test does on the virtual GPU of this process."""

    def __init__(self, machine: Machine, wanted: Wanted) -> None:
        from unstall.virtual.simulation.counts import Mark

        self._machine = machine
        self._mark = machine.simulator.mark() if machine.simulator is not None else Mark()
        self._span: WatchedSpan | None = machine.watch() if wanted.idle or wanted.races else None

    def end(self) -> Seen:
        if self._span is not None:
            self._machine.unwatch(self._span)
        if self._machine.simulator is None:
            return Seen("")
        counts = self._machine.simulator.counts_since(self._mark)
        name = f"virtual {self._machine.options.gpu}, torch {_torch_version()}"
        return Seen(name, counts.launches, counts.reserved_peak_bytes)

    def timeline(self) -> Timeline | None:
        return self._span.timeline() if self._span is not None and self._machine.simulator is not None else None

    def races(self) -> tuple[Race, ...] | None:
        return None


class OfRealGpu:
    """Counts what a test does on a real GPU. Without a GPU, nothing is counted."""

    def __init__(self, wanted: Wanted) -> None:
        self._memory = wanted.memory
        torch = _torch_with_gpu()
        if torch is not None and wanted.memory and torch.cuda.is_initialized():  # before, all peaks are 0
            for device in range(torch.cuda.device_count()):
                torch.cuda.reset_peak_memory_stats(device)
        self._recording: Recording | None = _begin_recording() if wanted.launches else None
        self._watch: RaceWatch | None = _begin_race_watch() if wanted.races and torch is not None else None

    def end(self) -> Seen:
        if self._watch is not None:
            self._watch.stop()
        if self._recording is None:
            return self._seen()
        self._recording.__exit__(None, None, None)
        try:
            return self._seen()
        finally:
            self._recording.close()

    def _seen(self) -> Seen:
        if "torch" not in sys.modules:
            return Seen("")
        torch = _torch_with_gpu()
        if torch is None:
            return Seen(None)
        if not torch.cuda.is_initialized():
            return Seen("")
        name = f"{torch.cuda.get_device_name()}, torch {_torch_version()}"
        peaks = [torch.cuda.max_memory_reserved(device) for device in range(torch.cuda.device_count())]
        return Seen(name, self._launches(), max(peaks) if self._memory else None, sees_waits=has_source())

    def timeline(self) -> Timeline | None:
        return None

    def races(self) -> tuple[Race, ...] | None:
        watch = self._watch
        return None if watch is None or (watch.failed and not watch.noted.races()) else watch.noted.races()

    def _launches(self) -> int | None:
        if self._recording is None:
            return None
        try:
            return launches_of(self._recording.timeline())
        except UnstallError:  # nothing was recorded, or there is no recorder here
            return None


def launches_of(timeline: Timeline) -> int:
    """Returns how many calls of the host launched work on a GPU."""
    launch = timeline.device.launch
    return len(set(launch[launch >= 0].tolist()))


def _begin_recording() -> Recording | None:
    from unstall.recording.in_process import record

    recording = record(lines="none")
    try:
        return recording.__enter__()
    except UnstallError:  # the program is being recorded already
        return None


def _begin_race_watch() -> RaceWatch | None:
    from unstall.blaming.races.watch import RaceWatch

    try:
        return RaceWatch()
    except UnstallError:  # this torch has not what it needs
        return None


def _torch_with_gpu() -> ModuleType | None:
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_available() else None


def _torch_version() -> str:
    return str(sys.modules["torch"].__version__)


def forget_caches() -> None:
    """Frees the device memory that earlier tests left in torch's caches, so that it does not count
    towards the next test's peak.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return
    if any(torch.cuda.memory_allocated(device) for device in range(torch.cuda.device_count())):
        gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
