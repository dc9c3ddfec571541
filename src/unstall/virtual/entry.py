"""`with unstall.virtual_gpu("h200") as gpu:` runs what is in the block on a virtual GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from unstall.errors import UsageError
from unstall.virtual.machine import Machine, WatchedSpan, machine
from unstall.virtual.options import HostClock, Numerics, parse

if TYPE_CHECKING:
    from unstall.answers.report import Report
    from unstall.timeline.columns import Timeline


class VirtualGpu:
    """A stretch of time on the virtual GPU, from `start`, or where its block begins, to `stop`, or the block's end."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._watch: WatchedSpan | None = None

    def start(self) -> Self:
        """Begin. Raises UsageError while a recording is under way, or if it was begun before."""
        if self._watch is not None:
            raise UsageError("a virtual GPU is of one stretch of time: call unstall.virtual_gpu() again for the next")
        self._watch = self._machine.watch()
        return self

    def stop(self) -> None:
        """End. What is on the virtual GPU stays there, and can be used; but the clock is the machine's own again."""
        if self._watch is not None:
            self._machine.unwatch(self._watch)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def now_ns(self) -> int:
        """How long it has lasted, by the virtual clock; after it, how long it did."""
        watch = self._begun()
        until = self._machine.now_ns() if watch.end_ns is None else watch.end_ns
        return until - watch.start_ns

    def timeline(self) -> Timeline:
        """What ran in it, until now if it has not ended. Raises UsageError where torch was not imported."""
        timeline = self._begun().timeline()
        return replace(timeline, meta=replace(timeline.meta, path="unstall.virtual_gpu()"))  # no file of ours

    def explain(self) -> Report:
        """Where the time went, which line, and why. Raises as `timeline` does."""
        from unstall.answers.explain import explain

        return explain(self.timeline())

    def save(self, path: str | Path) -> None:
        """Write a trace (.json or .json.gz), which Perfetto opens too. Raises as `timeline` does."""
        from unstall.virtual.profiler.trace_file import write_trace

        write_trace(self.timeline(), Path(path), self._machine.options.told())

    def _begun(self) -> WatchedSpan:
        if self._watch is None:
            raise UsageError("the virtual GPU has not begun: use it as `with unstall.virtual_gpu(…) as gpu:`")
        return self._watch


def virtual_gpu(gpu: str = "h200", *, numerics: Numerics = "real", host: HostClock = "modelled") -> VirtualGpu:
    """Run what a `with` block does on a virtual GPU; `gpu` is its name, or "h200:2" for two of them.

    It must begin before torch is imported. While it lasts, `time.perf_counter` and `time.time` are virtual, and the
    Python processes that are started have the virtual GPU too. A process has one such GPU, which stays until the
    process ends: a later block goes on with it, with a timeline of its own.

    Raises UsageError for a GPU that is not known, where torch was imported without one, and where this process has
    another one.
    """
    return VirtualGpu(machine(parse(gpu, numerics, host)))
