"""Records one whole block of code. The module `session` describes the entries of its journal (its file of events)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from unstall.errors import UnstallError
from unstall.guest import active, device
from unstall.guest.step_source import AT_THE_END, StepSource
from unstall.recording.boundaries import Boundaries
from unstall.recording.journal import Journal
from unstall.recording.watching import Watching
from unstall.recording.window import MakeLineClock, MakeRecorder, RecordedWindow, give_up

_MOST_BOUNDARIES = 100_000


class BlockRecording:
    """Records a whole block of code, from the call of `begin` to the call of `end`. `end` decides
    which step boundaries separate the steps.
    """

    under_way = active.RECORDING

    def __init__(
        self,
        journal: Journal,
        make_recorder: MakeRecorder,
        make_line_clock: MakeLineClock = lambda: None,
        *,
        now: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._journal = journal
        self._make_recorder = make_recorder
        self._make_line_clock = make_line_clock
        self._now = now
        self._window: RecordedWindow | None = None
        # A block of which no boundary can be watched is still recorded.
        self._watching = Watching(
            self.step_boundary, lambda: self.end("profiler"), on_loop_end=self.loop_ended, failed=lambda _: None
        )
        self._seen = Boundaries()
        self._begun_ns = 0
        self._over = False

    def begin(self) -> None:
        """Starts to record. If this fails, the journal (the recording's file of events) says why,
        and the block runs without a recording.

        Raises:
            UsageError: Another recording is active.
        """
        active.activate(self)
        try:
            window = RecordedWindow(self._journal, self._make_recorder(), self._make_line_clock())
            self._watching.begin()
            if self._watching.own_profiler_is_on:
                raise UnstallError(device.PROFILER_IS_ON)
            window.start()
            self._window = window
            self._begun_ns = self._now()
            self._journal.write("phase", phase="recording", by=None)
        except Exception as error:
            self._fail(error)

    def step_boundary(self, kind: str, who: int = 0) -> None:
        """Notes that a step begins or ends. What sets step boundaries (an optimizer, a loader, a
        model) calls this method. Never raises.

        Args:
            kind: The kind of the caller, such as an optimizer.
            who: A number that distinguishes the caller from others of the same kind.
        """
        if not self._over and len(self._seen) < _MOST_BOUNDARIES:
            self._seen.add(StepSource(kind, who), self._now())

    def loop_ended(self, kind: str, who: int) -> None:
        """Notes that a loop has ended, and its last step with it. The arguments are those of
        `step_boundary`. Never raises.
        """
        if not self._over and self._seen.loop_ends < _MOST_BOUNDARIES:
            self._seen.end_loop(StepSource(kind, who), self._now())

    def end(self, why: str) -> None:
        """Stops recording. `why` is the reason, for the journal (the recording's file of events). Never raises."""
        if self._over:
            return
        try:
            window, self._window = self._window, None
            if window is not None:
                ended_ns = self._now()
                window.stop(device.synchronize if why == "done" else device.wait_to_leave)
                self._seen.write_steps(
                    self._journal,
                    self._seen.leader(),
                    lambda kind, times, _: self._steps_among(kind, times, ended_ns),
                )
            self._leave(why)
        except Exception as error:
            self._fail(error)

    def forked(self) -> None:
        """Stops the recording in a forked child process. Only the parent process is recorded."""
        self._over = True
        if self._window is not None:
            self._window.forked()  # first, because it wrapped functions after the hooks did
        with suppress(Exception):
            self._watching.end()
        self._journal.close()

    def _steps_among(self, kind: str, times_ns: Sequence[int], ended_ns: int) -> tuple[list[int], int]:
        boundaries = step_boundaries(kind, times_ns, self._begun_ns, ended_ns)
        if len(self._seen) == _MOST_BOUNDARIES and kind not in AT_THE_END:
            boundaries.pop()  # there may be more than `steps` boundaries: when the last step ended is unknown
        return boundaries, 0

    def _fail(self, error: Exception) -> None:
        window, self._window = self._window, None
        give_up(window, self._journal, error)
        with suppress(Exception):
            self._leave("failed")

    def _leave(self, why: str) -> None:
        self._over = True
        active.deactivate(self)
        try:
            self._watching.end()
        finally:
            self._journal.write("over", why=why, phase="recording", steps=len(self._seen))
            self._journal.close()


def step_boundaries(kind: str, times_ns: Sequence[int], begun_ns: int, ended_ns: int) -> list[int]:
    """Returns the times in ns of all step boundaries of a block.

    Args:
        kind: The kind of what set the boundaries, such as an optimizer. It decides whether
            `times_ns` are ends or starts of steps. If they are ends, the first step begins at
            `begun_ns`. If they are starts, the last step ends at `ended_ns`.
        times_ns: Times of boundaries, in ns.
        begun_ns: The time when the block began.
        ended_ns: The time when the block ended.
    """
    return [begun_ns, *times_ns] if kind in AT_THE_END else [*times_ns, ended_ns]
