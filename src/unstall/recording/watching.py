"""Watches a program while it is recorded: its step boundaries, its profilers, and its first use of
CUDA. Watching begins when the program imports torch.
"""

from __future__ import annotations

from collections.abc import Callable

from unstall.guest import device, step_hooks
from unstall.guest.captured_steps import OnBoundary
from unstall.guest.imports import when_imported
from unstall.guest.own_profiler import OwnProfiler
from unstall.guest.step_source import StepSource


class Watching:
    """Watches for step boundaries, for a torch.profiler that the program starts, and for CUDA's
    initialisation.

    It watches from the call of `begin` to the call of `end`.
    """

    def __init__(
        self,
        on_boundary: OnBoundary,
        profiler_begins: Callable[[], None],
        cuda_begins: Callable[[], None] = lambda: None,
        *,
        on_loop_end: OnBoundary,
        failed: Callable[[Exception], None],
    ) -> None:
        """Prepares to watch the program.

        Args:
            on_boundary: Is called at each step boundary.
            profiler_begins: Is called when the program starts a torch.profiler.
            cuda_begins: Is called when CUDA has been initialised.
            on_loop_end: Is called when a loop over a DataLoader ends.
            failed: Is called with the error if torch cannot be watched.
        """
        self._on_boundary = on_boundary
        self._on_loop_end = on_loop_end
        self._cuda_begins = cuda_begins
        self._failed = failed
        self._hooks: step_hooks.StepHooks | None = None
        self._own_profiler = OwnProfiler(profiler_begins)
        self._forget_import: Callable[[], None] = lambda: None
        self._forget_cuda: Callable[[], None] = lambda: None

    def begin(self) -> None:
        """Starts to watch the program as soon as torch is imported; at once if it is imported already."""
        self._forget_import = when_imported("torch", self._watch)

    @property
    def own_profiler_is_on(self) -> bool:
        """Whether a torch.profiler that the program started is running."""
        return self._own_profiler.is_on or device.profiler_is_on()

    def follow(self, source: StepSource | None) -> None:
        """From now on, watches only the step boundaries that `source` sets, as cheaply as possible.
        If `source` is None, watches those of all sources, such as optimizers and loaders.
        """
        if self._hooks is not None:
            self._hooks.follow(source)

    def end(self) -> None:
        """Stops watching, and undoes all changes to torch."""
        self._forget_import()
        self._forget_cuda()
        self._own_profiler.remove()
        hooks, self._hooks = self._hooks, None
        if hooks is not None:
            hooks.remove()

    def _watch(self) -> None:
        try:
            self._hooks = step_hooks.install(self._on_boundary, self._on_loop_end)
            self._own_profiler.watch()
            self._forget_cuda = device.when_initialised(self._cuda_begins)
        except Exception as error:
            self._failed(error)
