"""Times plain steps: steps before and after the recording, while nothing is recorded. A stretch is
a number of plain steps in a row.

Plain steps make predictions more exact (medians of six recordings by `python -m
benchmarks.recorder_mechanisms`). With plain steps, predicted gains are wrong by 1.8 % of a step.
Without plain steps, predicted gains are wrong by 5.3 %, and the step time itself is wrong by 4.6 %.
Without plain steps and with the recorder `torch`, the step time would be wrong by 21 %
(`benchmarks/results/recording_undistorted_h200.json`).
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field

from unstall.guest import device
from unstall.recording.journal import Journal

LEAST_STEPS, LEAST_NS = 3, 300_000_000
_SETTLING_STEPS, _SETTLING_NS = 8, 150_000_000
"""If steps take 0.75 to 19 ms, the timing starts again once after this many steps and this many ns.

With shorter steps, it ends before that, after _MOST_STEPS steps. On an H100, a loop that replays a
graph took 1.2 to 1.9 ms per step for the first 100 ms after each recording, and 0.76 ms per step
later.
"""
_MOST_STEPS = 200
_MOST_NS = 5_000_000_000
_LOOK_AGAIN_S = 0.001


@dataclass(frozen=True, slots=True)
class Plain:
    """The measured time of a number of steps in a row without recording.

    Attributes:
        which: "before" or "after" the recording.
        steps: Number of steps.
        host_ns: Mean time per step, by the host's clock.
        device_ns: Mean time per step, by the device's clock. None without CUDA.
        marks_ns: Times of the step boundaries, by the host's clock.
        loop_ends_ns: Times at which loops ended, and their last steps with them, by the host's clock.
    """

    which: str
    steps: int
    host_ns: float
    device_ns: float | None
    marks_ns: tuple[int, ...]
    loop_ends_ns: tuple[int, ...] = ()


@dataclass(slots=True)
class _Timed:
    """The times of step boundaries, and two events of the device: one at the first boundary, and
    one at the last boundary at which the timing may end so far.
    """

    marks_ns: list[int]
    first: device.TimingEvent | None
    last: device.TimingEvent | None = None
    steps: int = 0  # until `last`
    loop_ends_ns: list[int] = field(default_factory=list)


class Stretch:
    """A number of steps in a row that are timed while nothing is recorded.

    The host's clock is read at every step boundary. The device's clock is read at the first and at
    the last boundary.
    """

    def __init__(self, which: str, at_ns: int, *, by_count: bool = False) -> None:
        """Starts to time steps, at a step boundary.

        Args:
            which: "before" or "after" the recording.
            at_ns: The time of the boundary.
            by_count: Whether only the number of steps decides when the timing ends. If false, the
                steps must also last long enough.
        """
        self._which = which
        self._by_count = by_count
        self._timed = _Timed([at_ns], device.timing_event())
        self._settling: _Timed | None = None  # what was timed before the steps settled
        self.finished = False

    def add(self, at_ns: int, least_steps: int) -> bool:
        """Adds a step that ends at `at_ns`. Returns whether the timing is finished: there are at
        least `least_steps` steps, and they last long enough.
        """
        timed = self._timed
        timed.marks_ns.append(at_ns)
        steps, took_ns = len(timed.marks_ns) - 1, at_ns - timed.marks_ns[0]
        look = not self._by_count and _doublings(steps, least_steps)
        if self._by_count:
            enough = steps >= least_steps
        else:
            enough = (took_ns >= LEAST_NS and look) or (
                steps >= _MOST_STEPS or (took_ns >= _MOST_NS and steps >= LEAST_STEPS)
            )
        if enough or look:
            timed.last = device.timing_event() if timed.first is not None else None
            timed.steps = steps
        if look and not enough and self._settling is None and steps >= _SETTLING_STEPS and took_ns >= _SETTLING_NS:
            self._settling, self._timed = timed, _Timed([at_ns], device.timing_event())
            return False
        self.finished = enough
        return enough

    def loop_ended(self, at_ns: int) -> None:
        """Notes that a loop has ended at `at_ns`, and the current step with it."""
        if not self.finished:
            self._timed.loop_ends_ns.append(at_ns)

    def cut(self) -> None:
        """Ends the timing early. Keeps the steps up to the last boundary at which the device's clock was read."""
        if not self.finished:
            self._timed = self._timed if self._timed.steps or self._settling is None else self._settling
            self.finished = self._timed.steps > 0

    def read(self) -> Plain | None:
        """Returns the measured times of the steps. Returns None if the device has not reached the
        end of the last step yet.
        """
        timed = self._timed
        if not self.finished or (timed.last is not None and not timed.last.query()):
            return None
        marks_ns, device_ns = timed.marks_ns[: timed.steps + 1], None
        if timed.first is not None and timed.last is not None:
            device_ns = timed.first.elapsed_time(timed.last) * 1e6 / timed.steps
        host_ns = (marks_ns[-1] - marks_ns[0]) / timed.steps
        loop_ends_ns = tuple(at_ns for at_ns in timed.loop_ends_ns if at_ns < marks_ns[-1])
        return Plain(self._which, timed.steps, host_ns, device_ns, tuple(marks_ns), loop_ends_ns)

    def read_within(self, wait_s: float) -> Plain | None:
        """Returns the measured times of the steps, as soon as the device has finished the last
        step. Returns None if it has not done so after `wait_s` seconds.
        """
        until = time.monotonic() + wait_s
        while (plain := self.read()) is None and time.monotonic() < until:
            time.sleep(_LOOK_AGAIN_S)
        return plain


class PlainSteps:
    """Times a stretch (a number of steps in a row) before a recording, and a stretch after it.
    Writes the times of both to the journal, the recording's file of events.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._stretch: Stretch | None = None
        self._spoilt = False

    def begin(self, which: str, at_ns: int, *, by_count: bool) -> None:
        """Starts to time a stretch (a number of steps in a row), at a step boundary.

        Args:
            which: "before" or "after" the recording.
            at_ns: The time of the boundary.
            by_count: Whether only the number of steps decides when the stretch ends. If false, the
                stretch must also last long enough.
        """
        self._stretch, self._spoilt = Stretch(which, at_ns, by_count=by_count), False

    def spoil(self) -> None:
        """Notes that other work disturbed the steps that are being timed. They are timed to their
        end, but their times are not written to the journal (the recording's file of events).
        """
        self._spoilt = True

    def drop(self) -> None:
        """Stops timing, and discards the steps timed since `begin`."""
        self._stretch = None

    @property
    def begun(self) -> bool:
        """Whether `begin` was called and its steps were neither kept nor discarded yet. The host
        may already have finished them.
        """
        return self._stretch is not None

    @property
    def finished(self) -> bool:
        """Whether the host has finished all steps that are to be timed."""
        return self._stretch is not None and self._stretch.finished

    @property
    def arrived(self) -> bool:
        """Whether the device, too, has finished all steps that are to be timed."""
        return self._stretch is not None and self._stretch.finished and self._stretch.read() is not None

    def add(self, at_ns: int, least_steps: int = LEAST_STEPS) -> bool:
        """Adds a step that ends at `at_ns`. Returns whether the timing is finished: there are at
        least `least_steps` steps, and they last long enough.
        """
        return self._stretch is not None and self._stretch.add(at_ns, least_steps)

    def loop_ended(self, at_ns: int) -> None:
        """Notes that a loop has ended at `at_ns`, and the step that is being timed with it."""
        if self._stretch is not None:
            self._stretch.loop_ended(at_ns)

    def cut(self) -> None:
        """Ends the timing early, because the program ends. The times are kept if enough steps were timed."""
        if self._stretch is not None:
            self._stretch.cut()

    def keep(self, wait_s: float = 0.0) -> None:
        """Ends the timing, and writes the times of the steps to the journal (the recording's file
        of events) if they are complete.

        They are complete if all steps are finished, nothing disturbed them, and the device finishes
        the last step within `wait_s` seconds.
        """
        if self._stretch is not None and self._stretch.finished and not self._spoilt:
            plain = self._stretch.read_within(wait_s)
            if plain is not None:
                self._journal.write("plain", **asdict(plain))
        self._stretch = None


def _doublings(steps: int, least_steps: int) -> bool:
    """Returns whether `steps` is `least_steps` times a power of two.

    Clocks are read only at these numbers of steps. So all ranks of a distributed program nearly
    always make the same decision at the same step. If one rank began to record one step later than
    the other ranks, it would also record the effects of the other ranks' recorders.
    """
    return steps % least_steps == 0 and (steps // least_steps).bit_count() == 1
