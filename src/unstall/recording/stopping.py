"""Ends the program at a step boundary after it was recorded (`unstall run --stop`).

All ranks of a distributed program end after the same number of steps, even if a rank's recording
fails. If one rank ended earlier, the remaining ranks would wait for it forever.
"""

from __future__ import annotations

from unstall.guest.ending import end_here, may_end_here
from unstall.guest.ranks import is_one_of_several
from unstall.guest.step_source import StepSource
from unstall.recording.counted_steps import CountedSteps
from unstall.recording.first_steps import boundaries_of_first_steps
from unstall.recording.plain import LEAST_STEPS
from unstall.recording.settings import Settings


class Stopping:
    """Decides when a recorded program is to end, and ends it. Does nothing unless `settings.stop` is set."""

    def __init__(self, settings: Settings) -> None:
        self._asked = settings.stop
        self._by_time = settings.after_s is not None or settings.for_s is not None
        self._boundaries = boundaries_until_recorded(settings)
        self._due = False

    @property
    def by_count(self) -> bool:
        """Whether the program is to end after a fixed number of steps, so that all ranks end after the same step."""
        return self._asked and is_one_of_several()

    @property
    def pending(self) -> bool:
        """Whether the program is to be ended, at the current step boundary or at a later one."""
        return self._due or (self.by_count and not self._by_time)

    def recorded(self) -> None:
        """Notes that the recording is done. The program is then ended at its next step boundary."""
        self._due = self._due or (self._asked and not self.by_count)

    def count(self, steps: CountedSteps, source: StepSource) -> None:
        """Checks whether the program has made enough steps. If it has, the program is to end. Call
        this method after `steps` has counted a boundary of `source`.
        """
        if self.pending and source == steps.leader(source) and steps.since_proof(source) >= self._boundaries:
            self._due = True

    @property
    def may_end_here(self) -> bool:
        """Whether the program is to be ended now, and the calling thread can end it."""
        return self._due and may_end_here()

    def end_here(self) -> None:
        """Ends the program by SystemExit. If the program catches it, SystemExit is not raised a second time."""
        self.cancel()
        end_here()

    def cancel(self) -> None:
        """Cancels the end that was planned. The program then ends by itself, as it does without `--stop`."""
        self._asked = self._due = False


def boundaries_until_recorded(settings: Settings) -> int:
    """Returns the number of step boundaries from the program's start to the end of the recording.

    The number is right only for a recording that counts steps, not for one that is limited by time.
    """
    warm = max(settings.warmup, boundaries_of_first_steps(settings)) + 1
    window = 1 + settings.steps  # a step for warm-up
    return warm + max(LEAST_STEPS, settings.steps) + window + 1 + LEAST_STEPS
