"""Records a program's first steps. The report uses this recording if the program ends before the
main recording begins.

This recording begins when CUDA is initialised. It has as many steps as the main recording, and a
few more for warm-up. When it has ended, the session (the main recording) continues. This recording
has its own folder, within the session's folder. The modules `session` and `window` describe its
journal (its file of events).

The recorder `torch` can begin only at a step boundary. Until the first step boundary, the recorder
`cupti` records instead. What it records is called the stand-in, and has its own folder.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from unstall.cupti.trial import BEFORE_STEPS, FIRST_STEPS
from unstall.guest import device
from unstall.guest.ranks import is_one_of_several
from unstall.guest.step_source import AT_THE_END, StepSource, StepSources
from unstall.recording.boundaries import Boundaries
from unstall.recording.journal import Journal, read
from unstall.recording.settings import Settings
from unstall.recording.window import MakeLineClock, MakeRecorder, RecordedWindow, give_up

_MOST_WARMUP = 3  # of a larger --warmup, since only a program that ends within it needs these steps
_MOST_BOUNDARIES = 2_000  # boundaries of all sources; some may come far more often than steps
_LONG_NS = 60_000_000_000  # ns; few steps of a program with such long ones are enough


class FirstSteps:
    """Records the first steps of a program, from the call of `begin` to the call of `end`, or until
    it has recorded enough steps.

    Its methods never raise.
    """

    def __init__(
        self,
        settings: Settings,
        open_journal: Callable[[Settings], Journal],
        make_recorder: MakeRecorder,
        make_line_clock: MakeLineClock = lambda: None,
        *,
        stand_in: FirstSteps | None = None,
        now: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """Prepares to record the first steps of a program.

        Args:
            settings: The settings, from `settings_of`.
            open_journal: Opens the journal of the recording: its file of events.
            make_recorder: Makes the recorder for `settings`.
            make_line_clock: Makes the line clock for `settings`, which records which source lines
                run. Returns None if none is needed.
            stand_in: Records until the first step boundary, if the recorder itself can begin only
                at a step boundary. None if the recorder can begin anywhere.
            now: Returns the time in ns.
        """
        self._settings = settings
        self._open_journal = open_journal
        self._make = make_recorder, make_line_clock
        self._stand_in = stand_in
        self._now = now
        self._journal: Journal | None = None
        self._made: RecordedWindow | None = None
        self._window: RecordedWindow | None = None
        self._tried = False
        self._seen = Boundaries()
        self._sources = StepSources()
        self._begun_ns = 0
        self._warmup = _warmup_of(settings)

    def begin(self, *, at_a_step: bool) -> None:
        """Begins to record. Does nothing if a recording has begun before, or has failed to begin.

        Args:
            at_a_step: Whether the call comes at a step boundary. If it does not, and if the
                recorder can begin only at a step boundary, the constructor's `stand_in` begins to
                record instead.
        """
        if self._tried:
            return
        try:
            if self._made is None:
                Path(self._settings.folder).mkdir()
                self._journal = self._open_journal(self._settings)
                make_recorder, make_line_clock = self._make
                self._made = RecordedWindow(self._journal, make_recorder(), make_line_clock())
            if not (at_a_step or self._made.any_thread):
                if self._stand_in is not None:
                    self._stand_in.begin(at_a_step=False)
                return
            self._tried = True
            self._made.start()
            self._window, self._begun_ns = self._made, self._now()
        except Exception as error:
            self._tried = True
            if self._journal is not None:
                give_up(None, self._journal, error)

    @property
    def may_stop_here(self) -> bool:
        """Whether the calling thread may call `end`."""
        return self._window is None or self._window.may_stop_here

    def goes_on(self, source: StepSource, at_ns: int, *, may_train: bool, asked_to_end: str | None = None) -> bool:
        """Notes a step boundary. Returns whether this recording is still active. While it is, the
        main recording must wait.

        Args:
            source: What set the boundary, such as an optimizer.
            at_ns: The time of the boundary.
            may_train: Whether the source is a loader or a model, and gradients are enabled. The
                boundary may then belong to training. In training, the optimizer's steps count
                instead.
            asked_to_end: Why another thread waits for the end of the recording. None if no thread
                waits.
        """
        if self._stand_in is not None:
            self._stand_in.end("done")
        if not self._tried and device.cuda() is not None:
            self.begin(at_a_step=True)
        if self._window is None:
            return False
        self._seen.add(source, at_ns)
        self._sources.add(source, may_train=may_train)
        enough = asked_to_end is not None or len(self._seen) >= _MOST_BOUNDARIES
        if source == self._sources.leader(source):
            enough = enough or self._sources.count(source) >= boundaries_of_first_steps(self._settings)
            # All ranks of a distributed program must end them at the same step, and each has a clock of its own.
            enough = enough or (at_ns - self._begun_ns >= _LONG_NS and not is_one_of_several())
        if enough and self.may_stop_here:
            self.end(asked_to_end or "done")
        return True

    def loop_ended(self, source: StepSource, at_ns: int) -> None:
        """Notes that a loop over the items of `source` has ended, and its last step with it."""
        if self._window is not None:
            self._seen.end_loop(source, at_ns)

    def end(self, why: str, wait: Callable[[], None] | None = None) -> None:
        """Stops the recording, if it has begun.

        Args:
            why: Why the recording ends, for the journal (the recording's file of events).
            wait: Waits for the device. If None, how to wait depends on `why`.
        """
        if self._stand_in is not None:
            self._stand_in.end(why, wait)
        window, self._window, self._tried = self._window, None, True
        if self._journal is None:
            return
        if window is None:
            self._journal.close()
            return
        try:
            ended_ns = self._now()
            window.stop(wait or (device.synchronize if why == "done" else device.wait_to_leave))
            until_ns = None if why == "done" else ended_ns
            self._seen.write_steps(
                self._journal,
                # As long as no optimizer has stepped, any source's.
                self._sources.leader_in_hindsight() or self._seen.leader(),
                lambda kind, times, loop_ends: self._steps_among(kind, times, loop_ends, until_ns),
            )
            self._journal.write("over", why=why, phase="recording", steps=len(self._seen))
        except Exception as error:
            give_up(window, self._journal, error)
        with suppress(Exception):
            self._journal.close()

    def forked(self) -> None:
        """Stops the recording in a forked child process, which is not recorded."""
        if self._stand_in is not None:
            self._stand_in.forked()
        window, self._window, self._tried = self._window, None, True
        if window is not None:
            window.forked()
        if self._journal is not None:
            self._journal.close()

    def _steps_among(
        self, kind: str, times_ns: Sequence[int], loop_ends_ns: Sequence[int], ended_ns: int | None
    ) -> tuple[list[int], int]:
        """Returns what `steps_among` returns. `ended_ns` is the time when the program ended, or None if the program
        continues.
        """
        last = [at_ns for at_ns in loop_ends_ns[-1:] if at_ns > times_ns[-1]]
        return steps_among(kind, [*times_ns, *last], self._begun_ns, ended_ns, self._warmup)


def _warmup_of(settings: Settings) -> int:
    return min(_MOST_WARMUP, settings.warmup) if settings.after_s is None else 0


def boundaries_of_first_steps(settings: Settings) -> int:
    """Returns the number of step boundaries after which the recording of the first steps ends. If
    steps are very long, this recording ends earlier.
    """
    return _warmup_of(settings) + settings.steps + 1


def steps_among(
    kind: str, times_ns: Sequence[int], begun_ns: int, ended_ns: int | None, warmup: int
) -> tuple[list[int], int]:
    """Returns the boundaries of the first steps, and how many of these steps are for warm-up.

    If `times_ns` are ends of steps, the time before the first end also contains the program's
    setup. If they are starts, the time after the last start also contains the program's cleanup.
    Such a time counts as a step only if there are no other steps. If all steps would be for
    warm-up, none is.

    Args:
        kind: The kind of source that set the boundaries, such as an optimizer. It determines
            whether `times_ns` are ends or starts of steps.
        times_ns: Times of the boundaries.
        begun_ns: The time when the recording began.
        ended_ns: The time when the program ended. None if the program continues.
        warmup: The wanted number of warm-up steps.

    Returns:
        `(times, count)`: the times of the step boundaries in ns, and the number of warm-up steps.
    """
    if kind in AT_THE_END:
        before = 1 if len(times_ns) > 1 else 0
        boundaries = list(times_ns) if before else [begun_ns, *times_ns]
    else:
        before = 0
        boundaries = list(times_ns) if ended_ns is None or len(times_ns) > 1 else [*times_ns, ended_ns]
    steps, left_out = len(boundaries) - 1, max(0, warmup - before)
    return boundaries, left_out if steps > left_out else 0


def settings_of(settings: Settings) -> Settings:
    """Returns the settings for recording a program's first steps, in a folder within the folder of `settings`."""
    return replace(settings, folder=str(Path(settings.folder) / FIRST_STEPS))


def stand_in_settings_of(settings: Settings) -> Settings:
    """Returns the settings for recording, by `cupti`, what the program does before its first step
    boundary. It is recorded in a folder within the folder of `settings`.
    """
    folder = Path(settings.folder) / BEFORE_STEPS
    return replace(settings, folder=str(folder), recorder="cupti", shapes=False)


def recorded_beginnings(folder: Path) -> list[Path]:
    """Returns the subfolders of a recording's folder that contain a recording of the program's
    beginning: of its first steps, or of the time before the first step.
    """
    folders = (folder / FIRST_STEPS, folder / BEFORE_STEPS)
    return [each for each in folders if any(event["event"] == "window" for event in read(each))]
