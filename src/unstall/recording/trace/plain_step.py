"""Works out the plain step time: how long a step takes without recording. It comes from stretches
(a number of steps in a row) that were timed before and after the recording.

The timed steps should be like the recorded steps. So pauses, such as an evaluation or a new epoch,
are subtracted if no recorded step had a pause. The time between two loops over `unstall.prefetch`, `stream_map` or a
DataLoader is a pause whatever its length, because no step of a recording contains it.

Benefit (`python -m benchmarks.recorder_mechanisms`): a plain step time that was just measured
reduces the error of gains from 5.3 to 1.8 percentage points of a step (median of six recordings).
Subtracting pauses reduces the error from 250 % to at most 2 % in simulated loops with pauses
(medians). A long step may also be a wait for queued work of the device. To tell such waits from
pauses, the subtracted time is limited to the time for which the device was idle. Computing the
length of the queue at each step (Lindley's recursion) instead would gain at most 0.2 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from unstall.figures import counted, duration
from unstall.guest.step_source import step_spans
from unstall.recording.plain import Plain
from unstall.timeline.columns import I64

_FAR_APART = 0.1
_PAUSE_TIMES, _PAUSE_NS = 4, 300_000
_MOST_PAUSES = 0.05  # of all steps but one; a pause that is more frequent, as with the batches of 8 workers, is normal
_NOTABLE = 0.03  # of the time


@dataclass(frozen=True)
class PlainStep:
    """The time of a step without recording, as measured in one or two stretches. A stretch is a
    number of steps in a row, before or after the recording.

    Attributes:
        stretches: The stretches, with times that exclude pauses.
        with_pauses: The same stretches, with times that include pauses.
        paused: Number of steps with a pause.
    """

    stretches: tuple[Plain, ...]  # without their pauses
    with_pauses: tuple[Plain, ...]
    paused: int  # number of steps with a pause

    @cached_property
    def ns(self) -> float:
        """The mean time of a step without recording, in ns.

        It is measured by the device's clock if this clock timed all `stretches`, and by the host's
        clock if not.
        """
        return float(np.mean(_times(self.stretches)))

    @property
    def notes(self) -> list[str]:
        """Sentences for the report about the time of a step without recording."""
        notes = []
        if self.paused:
            steps = sum(each.steps for each in self.with_pauses)
            before, after = (_times(each) for each in (self.with_pauses, self.stretches))
            out_ns = sum(
                (long - short) * each.steps for long, short, each in zip(before, after, self.stretches, strict=True)
            )
            notes.append(
                f"{self.paused:,} of {counted(steps, 'step')} timed without the recording had a pause of "
                f"{duration(round(out_ns / self.paused))} (mean), as for an evaluation, a new epoch or a late batch, "
                "and no recorded step had: the plain step time is without, and "
                f"{duration(round(float(np.mean(before))))} with them"
            )
        times = _times(self.stretches)
        if max(times) - min(times) > _FAR_APART * self.ns:
            notes.append("steps before the recording and after it, timed without it, differ by more than 10 %")
        return notes


def plain_step(measured: Sequence[Plain], recorded_ns: I64, own_ns: float) -> PlainStep:
    """Returns the time of a step without recording, from steps that were timed before and after the
    recording.

    Subtracts the time between loops, and pauses. If many of the timed steps had a pause, pauses are
    part of the normal work and stay. If a recorded step had a pause, the replay contains it, and
    nothing is subtracted.

    Args:
        measured: The measured times of steps in a row, before or after the recording. At least one.
        recorded_ns: The length of each recorded step, int64.
        own_ns: The time that the device alone needs for a step (`DeviceWork.own_time_ns`).
    """
    took = [_lengths(step_spans(each.marks_ns, each.loop_ends_ns)) for each in measured]
    pauses = [_pauses(each, own_ns) for each in took]
    often = sum(int((each > 0).sum()) for each in pauses) > max(1, _MOST_PAUSES * sum(map(len, took)))
    if _pauses(recorded_ns, own_ns).any():
        return PlainStep(tuple(measured), tuple(measured), 0)
    if often:
        pauses = [np.zeros(len(each)) for each in took]
    cleared = [
        _without(plain, paused + _lengths(pairwise(plain.marks_ns)) - within, own_ns)
        for plain, paused, within in zip(measured, pauses, took, strict=True)
    ]
    return PlainStep(tuple(plain for plain, _ in cleared), tuple(measured), sum(count for _, count in cleared))


def _lengths(spans: Iterable[tuple[int, int]]) -> I64:
    return np.array([end - start for start, end in spans], np.int64)


def _times(measured: Sequence[Plain]) -> list[float]:
    """Returns the mean time per step in ns, for each of `measured`.

    The times are those of the device's clock if this clock timed all of them, and those of the
    host's clock if not.
    """
    on_device = [plain.device_ns for plain in measured if plain.device_ns is not None]
    return on_device if len(on_device) == len(measured) else [plain.host_ns for plain in measured]


def _without(plain: Plain, pauses: NDArray[np.float64], own_ns: float) -> tuple[Plain, int]:
    """Returns `(plain, count)`: the given times of steps in a row without their pauses, and the
    number of steps that had a pause.

    The subtracted time is at most the time for which the device was idle. This idle time is the
    number of steps times (`device_ns` - `own_ns`).

    Args:
        plain: The measured time of steps in a row.
        pauses: For each of the steps, the length of its pause in ns; 0 if it had none.
        own_ns: The time that the device alone needs for a step.
    """
    out_ns = float(pauses.sum())
    if plain.device_ns is not None:
        out_ns = min(out_ns, plain.steps * (plain.device_ns - own_ns))
    if not pauses.any() or out_ns < _NOTABLE * plain.steps * plain.host_ns:
        return plain, 0
    each = out_ns / plain.steps
    device_ns = None if plain.device_ns is None else plain.device_ns - each
    return replace(plain, host_ns=plain.host_ns - each, device_ns=device_ns), int((pauses > 0).sum())


def _pauses(took_ns: I64, own_ns: float) -> NDArray[np.float64]:
    """Returns, for each step, the length of its pause in ns; 0 if it had none.

    A step with a pause took the host far longer than other steps. The length of the pause is the
    step's length minus the usual length.

    Args:
        took_ns: The length of each step on the host.
        own_ns: The time that the device alone needs for a step.
    """
    if not len(took_ns):
        return np.zeros(0)
    usual = max(float(np.median(took_ns)), own_ns)
    beyond = took_ns - usual
    return np.where(beyond > max((_PAUSE_TIMES - 1) * usual, _PAUSE_NS), beyond, 0.0)
