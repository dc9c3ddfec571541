"""Plain steps: timed in stretches before and after the recording, while nothing records.

They earned 3.5 points of a step: gains of six recordings are off by 1.8 points in the median with the plain step time
of the moment, by 5.3 without (`python -m benchmarks.recorder_mechanisms`). The step time itself is off by 4.6 % in the
median without it, by 21 % with the recorder `torch` (`benchmarks/results/recording_undistorted_h200.json`).
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

from unstall.guest import device
from unstall.recording.journal import Journal

LEAST_STEPS, LEAST_NS = 3, 300_000_000
_MOST_STEPS = 200
_MOST_NS = 5_000_000_000
_LOOK_AGAIN_S = 0.001


@dataclass(frozen=True, slots=True)
class Plain:
    """One stretch: nanoseconds a step, `device_ns` None without CUDA; `marks_ns` are the step boundaries."""

    which: str
    steps: int
    host_ns: float
    device_ns: float | None
    marks_ns: tuple[int, ...]


class Stretch:
    """Steps in a row that nothing records: the host's time at all boundaries, the device's at the first and last."""

    def __init__(self, which: str, at_ns: int) -> None:
        self._which = which
        self._marks_ns = [at_ns]
        self._first = device.timing_event()
        self._last: device.TimingEvent | None = None
        self.finished = False

    def add(self, at_ns: int, least_steps: int) -> bool:
        """One more step has ended. Returns whether it was the last: there were enough steps, for long enough."""
        self._marks_ns.append(at_ns)
        steps, took_ns = len(self._marks_ns) - 1, at_ns - self._marks_ns[0]
        long_enough = took_ns >= LEAST_NS and _doublings(steps, least_steps)
        if long_enough or steps >= _MOST_STEPS or (took_ns >= _MOST_NS and steps >= LEAST_STEPS):
            self._last = device.timing_event() if self._first is not None else None
            self.finished = True
        return self.finished

    def read(self) -> Plain | None:
        """The measurement; None until the device has reached the end of the last step."""
        if self._last is not None and not self._last.query():
            return None
        steps = len(self._marks_ns) - 1
        device_ns = None
        if self._first is not None and self._last is not None:
            device_ns = self._first.elapsed_time(self._last) * 1e6 / steps
        host_ns = (self._marks_ns[-1] - self._marks_ns[0]) / steps
        return Plain(self._which, steps, host_ns, device_ns, tuple(self._marks_ns))

    def read_within(self, wait_s: float) -> Plain | None:
        """The measurement; None if the device has not reached the end of the last step within that time."""
        until = time.monotonic() + wait_s
        while (plain := self.read()) is None and time.monotonic() < until:
            time.sleep(_LOOK_AGAIN_S)
        return plain


class PlainSteps:
    """A session's stretches, before its recording and after it, which it journals."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._stretch: Stretch | None = None
        self._spoilt = False

    def begin(self, which: str, at_ns: int) -> None:
        """A stretch begins here."""
        self._stretch, self._spoilt = Stretch(which, at_ns), False

    def spoil(self) -> None:
        """Do not keep the current stretch: something else ran in it too. Its steps are timed all the same."""
        self._spoilt = True

    def drop(self) -> None:
        """Discard the stretch."""
        self._stretch = None

    @property
    def begun(self) -> bool:
        """Whether there is one, under way or finished."""
        return self._stretch is not None

    @property
    def finished(self) -> bool:
        """Whether all its steps are over, for the host."""
        return self._stretch is not None and self._stretch.finished

    @property
    def arrived(self) -> bool:
        """Whether they are for the device too."""
        return self._stretch is not None and self._stretch.finished and self._stretch.read() is not None

    def add(self, at_ns: int, least_steps: int = LEAST_STEPS) -> bool:
        """One more step of the stretch has ended. Returns whether it was the last."""
        return self._stretch is not None and self._stretch.add(at_ns, least_steps)

    def keep(self, wait_s: float = 0.0) -> None:
        """End the stretch: journal it if it was finished, and the device reaches its end within that time."""
        if self._stretch is not None and self._stretch.finished and not self._spoilt:
            plain = self._stretch.read_within(wait_s)
            if plain is not None:
                self._journal.write("plain", **asdict(plain))
        self._stretch = None


def _doublings(steps: int, least_steps: int) -> bool:
    """Whether these are the least steps, or twice, four times… as many.

    Clocks are read only then, so that the ranks of a distributed program decide the same at the same step: a rank that
    began to record one step later would have the others' recorders in its own window.
    """
    return steps % least_steps == 0 and (steps // least_steps).bit_count() == 1
