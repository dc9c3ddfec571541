"""`with unstall.virtual_gpu("h200") as gpu:` runs its block on a virtual GPU."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from msgspec.structs import replace

from unstall.errors import UsageError
from unstall.virtual.machine import Machine, WatchedSpan, machine
from unstall.virtual.options import HostClock, Numerics, parse

if TYPE_CHECKING:
    from unstall.answers.report import Report
    from unstall.timeline.columns import Timeline


class VirtualGpu:
    """A span of a program's time on the virtual GPU: a `with` block, or the time from `start` to
    `stop`.

    `unstall.virtual_gpu` creates it.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._watch: WatchedSpan | None = None

    def start(self) -> Self:
        """Begin the span.

        Returns:
            This object.

        Raises:
            UsageError: A recording is active, or `start` was called before on this object.
        """
        if self._watch is not None:
            raise UsageError("a virtual GPU is of one stretch of time: call unstall.virtual_gpu() again for the next")
        self._watch = self._machine.watch()
        return self

    def stop(self) -> None:
        """End the span. Tensors on the virtual GPU still work afterwards. If no other span is
        active, the functions of `time` return real times again.
        """
        if self._watch is not None:
            self._machine.unwatch(self._watch)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def now_ns(self) -> int:
        """Return how long the span took. If it has not ended, return the time since its start.

        Returns:
            Nanoseconds of the virtual clock.

        Raises:
            UsageError: The span has not begun.
        """
        watch = self._begun()
        until = self._machine.now_ns() if watch.end_ns is None else watch.end_ns
        return until - watch.start_ns

    def timeline(self) -> Timeline:
        """Return everything that ran in the span. If the span has not ended, return what ran in it
        so far.

        Returns:
            A timeline with the same columns as that of a recording on a real GPU.

        Raises:
            UsageError: The span has not begun, or torch was not imported.
        """
        timeline = self._begun().timeline()
        return replace(timeline, meta=replace(timeline.meta, path="unstall.virtual_gpu()"))  # no file of ours

    def explain(self) -> Report:
        """Explain where the time of the span went: on which lines of code, and why.

        Returns:
            A report like the report of `unstall.explain`.

        Raises:
            UsageError: The span has not begun, or torch was not imported.
        """
        from unstall.answers.explain import explain

        return explain(self.timeline())

    def save(self, path: str | Path) -> None:
        """Write the span's trace to a file that `unstall.load` and Perfetto open.

        Args:
            path: A .json or .json.gz file.

        Raises:
            UsageError: The span has not begun, torch was not imported, or the file cannot be written.
        """
        from unstall.virtual.profiler.trace_file import write_trace

        write_trace(self.timeline(), Path(path), self._machine.options.metadata())

    def _begun(self) -> WatchedSpan:
        if self._watch is None:
            raise UsageError("the virtual GPU has not begun: use it as `with unstall.virtual_gpu(…) as gpu:`")
        return self._watch


def virtual_gpu(
    gpu: str = "h200", *, numerics: Numerics = "real", host: HostClock = "modelled", warm: bool = False
) -> VirtualGpu:
    """Run a `with` block on a virtual GPU.

    The first block of a process must begin before torch is imported. In a block,
    `time.perf_counter` and `time.time` return virtual times, and Python processes that the block
    starts have a virtual GPU too. A process keeps its virtual GPU until the process ends. A later
    block uses the same virtual GPU, and has its own timeline.

    Several threads may be in such blocks at the same time. The blocks share one virtual GPU. The
    timeline of each block includes what other threads ran during the block.

    Args:
        gpu: The name of a GPU, or a .json file of `unstall calibrate`; "h200:2" for two devices;
            "h200:2,1@0.8" for two devices, of which device 1 runs at 0.8 of its clock rates.
        numerics: "real" computes all values as the CPU does. "skip" computes the values of small
            tensors only; of a large tensor, it computes only the shape. "device" computes values
            that deviate from the CPU's values as a GPU's values do: it adds up sums and products in
            a different order, and rounds factors to TF32 if torch's settings allow TF32.
        host: How long the program's work on the CPU takes on the virtual clock. "modelled": as long
            as the model says for the CPU beside the modelled GPU; work that the model does not
            cover takes no time. "mixed": operators and calls that involve a device take as long as
            the model says; all other work is measured on this machine, and its time is scaled to
            the CPU beside the modelled GPU. "measured": as long as it takes on this machine.
        warm: Whether to leave out the extra cost of the first use of CUDA and of each operator.

    Returns:
        A context manager that gives the timeline, the report and the trace of its block.

    Raises:
        UsageError: The GPU is unknown, torch was imported without a virtual GPU, or this process
            already has a virtual GPU with different options.
    """
    return VirtualGpu(machine(parse(gpu, numerics, host, warm)))
