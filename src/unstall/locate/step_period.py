"""Finds steps by the period with which the sequence of launches repeats, if the repetitions are steps and not
layers."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from unstall.locate.kernel_names import plain
from unstall.locate.step_evidence import Nature, nature_of, stands_out
from unstall.locate.step_spans import ALIKE, LEAST_PERIODS, Steps, launch_sequence, steps_of
from unstall.timeline.columns import I64, HostKind, Timeline

_MOST_CANDIDATES = 64
_LEAST_INSIDE = 0.5  # of the device's work: steps are most of what a program does


class _Repetition(msgspec.Struct, frozen=True, eq=False):
    """A period with which the sequence of launches repeats, and the launches at which the repetitions begin and end."""

    period: int  # launches
    name: str  # of the kernel that tells it
    starts: I64  # in the sequence of launches, where each repetition begins
    start: I64  # the same in time, ns
    end: I64


def by_period(timeline: Timeline) -> tuple[Steps | None, tuple[int, int] | None]:
    """Finds steps by the period with which the sequence of launched kernels repeats.

    The repetitions may be steps, or layers within a step: if a run has only one call of the model,
    only layers repeat. If there is evidence for several periods that their repetitions are steps,
    the shortest of these periods is used, because a longer period contains several steps. If there
    is evidence for no period, the longest period is used, because layers are shorter than steps.
    But this period is not used if the launches around the repetitions suggest that the repetitions
    are layers.

    Returns:
        - (steps, None) if steps were found.
        - (None, (launches in one repetition, number of repetitions)) if it is not clear whether the
          repetitions are steps or layers.
        - (None, None) if no period was found.
    """
    calls, tokens = launch_sequence(timeline)
    if len(tokens) < 2 * LEAST_PERIODS:
        return None, None
    unclear: _Repetition | None = None
    steps: _Repetition | None = None
    for each in sorted(_repetitions(timeline, calls, tokens), key=lambda found: -found.period):
        nature = nature_of(timeline, each.start, each.end)
        if nature == Nature.UNKNOWN and stands_out(timeline, calls, tokens, each.starts, each.period):
            nature = Nature.UNCLEAR
        if nature in (Nature.STEP, Nature.UNKNOWN) and _inside(timeline, each) < _LEAST_INSIDE:
            nature = Nature.UNCLEAR
        # If a longer period may be a step, a shorter one may be a layer of it.
        if nature == Nature.STEP or (nature == Nature.UNKNOWN and steps is None and unclear is None):
            steps = each
        elif nature == Nature.UNCLEAR and unclear is None and each.period > 1:
            unclear = each
    if steps is not None:
        return steps_of(timeline, "period", steps.name, steps.start, steps.end), None
    return None, (unclear.period, len(unclear.starts)) if unclear else None


def _inside(timeline: Timeline, found: _Repetition) -> float:
    """Returns the share of the device's work that was launched during the repetitions. Work is
    measured by the durations of its ops.
    """
    device = timeline.device
    rows = np.flatnonzero(device.launch >= 0)
    launched, length = timeline.host.start[device.launch[rows]], device.end[rows] - device.start[rows]
    inside = (launched >= found.start[0]) & (launched < found.end[-1])
    return float(length[inside].sum() / max(length.sum(), 1))


def _repetitions(timeline: Timeline, calls: I64, tokens: I64) -> Iterator[_Repetition]:
    """Yields each period of the sequence of launches. A period is a number of launches after which
    nearly all launches repeat.

    The candidates are the median distances between successive launches of the same kernel. Only the
    kernels with the fewest launches are looked at.
    """
    distinct, first, counts = np.unique(tokens, return_index=True, return_counts=True)
    often = np.flatnonzero(counts >= LEAST_PERIODS)
    often = often[np.lexsort((first[often], counts[often]))][:_MOST_CANDIDATES]
    places = [np.flatnonzero(tokens == distinct[which]) for which in often]
    distances = np.array([int(np.median(np.diff(each))) for each in places], dtype=np.int64)
    for period in np.unique(distances[(distances >= 1) & (LEAST_PERIODS * distances <= len(tokens))]).tolist():
        low, high = _where_it_holds(tokens, period)
        # Take the most frequent kernel with that distance: a rarer one is missing from some steps.
        mark = max(np.flatnonzero(distances == period), key=lambda i: len(places[i]))
        starts = _starts(places[mark], period, low, high)
        if len(starts) >= LEAST_PERIODS:
            name = plain(timeline.strings[distinct[often[mark]] // (len(timeline.streams) + 1)])
            start = timeline.host.start[calls[starts]]
            last = _end_of_last(timeline, calls, starts, period)
            yield _Repetition(period, name, starts, start, np.append(start[1:], last))


def _where_it_holds(tokens: I64, period: int) -> tuple[int, int]:
    """Returns the range (low, high) of launches in which the sequence of launches repeats after
    `period` launches. Returns (0, 0) if there is no such range.

    At least half of all launches must repeat, and nearly all launches in the range repeat.
    """
    again = tokens[period:] == tokens[:-period]
    if again.mean() < _LEAST_INSIDE:
        return 0, 0
    same = np.append(0, np.cumsum(again))
    width = min(period, len(again))
    whole = np.flatnonzero(same[width:] - same[:-width] >= ALIKE * width)
    if not len(whole):
        return 0, 0
    low, high = int(whole[0]), int(whole[-1]) + width
    # The tolerance also admits launches that come once, right before the first repetition.
    low += int(np.argmax(again[low:]))
    return (low, high + period) if same[high] - same[low] >= ALIKE * (high - low) else (0, 0)


def _starts(places: I64, period: int, low: int, high: int) -> I64:
    """Returns the indices of the launches in [`low`, `high`) at which repetitions begin. The first repetition begins at
    `low`, or at a multiple of `period` launches after `low`.

    `places` has the indices of the launches of a kernel that runs once per repetition. There are at least
    `period` launches from the beginning of the last repetition to `high`.
    """
    places = places[(places >= low) & (places < high)]
    if not len(places):
        return places
    marks = places[np.append(True, np.diff(places) >= period // 2 + 1)]
    starts: I64 = marks - (int(marks[0]) - low) % period
    return starts[(starts >= low) & (starts + period <= high)]


def _end_of_last(timeline: Timeline, calls: I64, starts: I64, period: int) -> int:
    """Returns the time in ns at which the last step ends on the host.

    The last step ends after its last launch and some waits. The number of waits is the median number of waits that
    earlier steps have after their last launch.
    """
    host = timeline.host
    waits = np.flatnonzero(host.kind == HostKind.SYNC)
    waits = waits[np.argsort(host.start[waits], kind="stable")]
    last_calls = calls[starts + period - 1]
    first = np.searchsorted(host.start[waits], host.start[last_calls])
    beyond = np.searchsorted(host.start[waits], host.start[calls[np.append(starts[1:], len(calls) - 1)]])
    usual = int(np.median((beyond - first)[:-1])) if len(starts) > 1 else 0
    tail = waits[first[-1] : first[-1] + usual]
    return int(host.end[tail].max(initial=host.end[last_calls[-1]]))
