"""Finds the steps: by an annotation, else by the optimizer, else by the period of launches, else one whole step."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from unstall.errors import UsageError
from unstall.timeline.columns import I64, Bool, HostKind, Timeline
from unstall.timeline.grouping import distinct

FoundBy = Literal["annotation", "optimizer", "period", "whole"]

_PROFILER_STEP = re.compile(r"ProfilerStep(#\d+|\*)?$")
RECORDED_STEP = "unstall.step"
"""Prefix of the annotation that unstall's recorder puts around each step; the step number follows."""

_RECORDED_STEP = re.compile(r"unstall\.step(#\d+)?$")
_OPTIMIZER_STEP = re.compile(r"Optimizer\.step#")


@dataclass(frozen=True, eq=False, slots=True)
class Steps:
    """Steps in order of time; all times in ns. The window that they span is [window_start, window_end).

    If the host is ahead, the device begins the first step after earlier work, and ends the last step later than the
    host. The window excludes that earlier work: a few steps should not pay for everything queued before them.
    """

    found_by: FoundBy
    name: str | None
    start: I64
    end: I64  # end of the host's part; the device may still be working
    window_start: int  # the later of the first step's start and the end of earlier device work
    window_end: int  # the later of the last step's end and the end of its last device op
    hint: str | None = None  # an annotation that might mark the steps, if none was used

    def __len__(self) -> int:
        return len(self.start)

    @property
    def window(self) -> tuple[int, int]:
        """Returns (start, end) in ns."""
        return self.window_start, self.window_end


def find_steps(timeline: Timeline, name: str | None = None) -> Steps:
    """Find the steps. `name` is the name of the annotation around each step, or a glob.

    Raises
    ------
    UsageError
        No annotation has that name.
    """
    if name is not None:
        return _by_name(timeline, name)
    # If recording cut steps by time, they do not correspond to steps of the program.
    marks = [] if timeline.meta.step_marks == "time" else [(RECORDED_STEP, _RECORDED_STEP)]
    for called, pattern in (*marks, ("ProfilerStep", _PROFILER_STEP)):
        rows = _annotated(timeline, _named(pattern))
        if len(rows):
            return _steps(timeline, "annotation", called, timeline.host.start[rows], timeline.host.end[rows])
    return _annotated_alike(timeline, _by_optimizer(timeline) or _by_period(timeline) or _whole(timeline))


def _annotated_alike(timeline: Timeline, found: Steps) -> Steps:
    """Returns steps by an annotation of the program, if one encloses nearly all launches and occurs as often as steps.

    If it occurs more or less often (a layer, an epoch), it only becomes the hint.
    """
    launched = _launch_times(timeline)
    best, most = None, 0.0
    names, count = np.unique(timeline.host.name[_is_annotation(timeline)], return_counts=True)
    for name in names[(count > 1) & (count <= _MOST_REPEATS)][:_MOST_CANDIDATES]:
        rows = _annotated(timeline, timeline.strings[name].__eq__)
        start, end = timeline.host.start[rows], timeline.host.end[rows]
        within = np.searchsorted(launched, end) - np.searchsorted(launched, start)
        covered = int(within.sum()) / max(len(launched), 1)
        if len(rows) > 1 and (within > 0).all() and covered >= max(_ALIKE, most):
            best, most = _steps(timeline, "annotation", timeline.strings[name], start, end), covered
    if best is None:
        return found
    alike = found.found_by != "whole" and len(found) <= len(best) <= len(found) + 1
    return best if alike else replace(found, hint=best.name)


def _by_name(timeline: Timeline, name: str) -> Steps:
    rows = _annotated(timeline, lambda text: text == name or fnmatch.fnmatchcase(text, name))
    if not len(rows):
        known = sorted({timeline.strings[i] for i in timeline.host.name[_is_annotation(timeline)]})
        shown = ", ".join(repr(text) for text in known[:8]) or "none"
        raise UsageError(f"no annotation is called {name!r}; there are: {shown}")
    return _steps(timeline, "annotation", name, timeline.host.start[rows], timeline.host.end[rows])


def _named(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.match(text) is not None


def _is_annotation(timeline: Timeline) -> Bool:
    chosen: Bool = timeline.host.kind == HostKind.ANNOTATION
    return chosen


def _annotated(timeline: Timeline, wanted: Callable[[str], bool]) -> I64:
    """Returns the rows of wanted annotations that are not nested in each other, on the thread that has most."""
    host = timeline.host
    candidates = np.flatnonzero((host.kind == HostKind.ANNOTATION) | (host.kind == HostKind.OP))
    names = np.unique(host.name[candidates])
    chosen = [i for i in names if wanted(timeline.strings[i])]
    rows = candidates[np.isin(host.name[candidates], np.array(chosen, dtype=np.int32))]
    if not len(rows):
        return rows
    rows = rows[host.thread[rows] == np.bincount(host.thread[rows]).argmax()]
    reach = np.maximum.accumulate(host.end[rows])
    outer: I64 = rows[np.append(True, host.start[rows][1:] >= reach[:-1])]
    return outer


def _steps(timeline: Timeline, found_by: FoundBy, name: str, start: I64, end: I64) -> Steps:
    """Makes Steps from spans on the host. Drops spans without launches if others have some, and sets the window."""
    launched = _launch_times(timeline)
    work = np.searchsorted(launched, end, side="right") - np.searchsorted(launched, start, side="left")
    if work.any():
        start, end = start[work > 0], end[work > 0]
    return Steps(found_by, name, start, end, *_window(timeline, start, end))


def _launch_times(timeline: Timeline) -> I64:
    """Returns when each device op was launched, ascending, in ns."""
    launch = timeline.device.launch
    return np.sort(timeline.host.start[launch[launch >= 0]])


def _window(timeline: Timeline, start: I64, end: I64) -> tuple[int, int]:
    host, device = timeline.host, timeline.device
    joined = device.launch >= 0
    launched = np.full(len(device), np.iinfo(np.int64).min)
    launched[joined] = host.start[device.launch[joined]]
    ours = joined & (launched >= start[0]) & (launched < end[-1])
    low, high = int(start[0]), int(device.end[ours].max(initial=end[-1]))
    if not ours.any():
        return low, high
    # Ops launched before the recording have no launch in it. They may run after ops of the first step that overtook
    # them on another stream.
    earlier = np.where(joined, launched < low, timeline.queued_before | (device.start < device.start[ours].min()))
    before = int(device.end[earlier].max(initial=low))
    of_first = ours & (launched < start[1]) if len(start) > 1 else ours
    return device_begins(low, before, int(device.end[of_first].max(initial=low))), high


def device_begins(host_ns: int, queued_ns: int, first_ns: int) -> int:
    """Returns when the device begins the first step, in ns.

    The host begins that step at `host_ns`. The device finishes earlier work at `queued_ns`, and the first step's work
    at `first_ns`. Earlier work that lasts longer than that was not queued before the step.
    """
    return max(host_ns, queued_ns) if queued_ns <= first_ns else host_ns


def _by_optimizer(timeline: Timeline) -> Steps | None:
    """Returns steps from the end of one optimizer step to the end of the next; None with fewer than two.

    The part before the first optimizer step counts as a step too if it launched as much as the others.
    """
    rows = _annotated(timeline, _named(_OPTIMIZER_STEP))
    # If several optimizers step in one iteration, the last one marks its end.
    rows = rows[timeline.host.name[rows] == timeline.host.name[rows[-1:]]]
    if len(rows) < 2:
        return None
    rows = rows[::-1][:: _calls_per_step(timeline, rows)][::-1]
    ends = timeline.host.end[rows]
    name = timeline.strings[timeline.host.name[rows[0]]]
    if begins_with_a_step(timeline, ends):
        ends = np.append(_host_start(timeline), ends)
    return _steps(timeline, "optimizer", name, ends[:-1], ends[1:])


def begins_with_a_step(timeline: Timeline, ends: I64) -> bool:
    """Returns whether as much was launched before the first of `ends` as in a step. Needs at least two `ends`."""
    work = np.diff(np.searchsorted(_launch_times(timeline), ends), prepend=0)
    return bool(len(work) > 1 and work[0] and work[0] >= _ALIKE * np.median(work[1:]))


def _calls_per_step(timeline: Timeline, optimizer: I64) -> int:
    """Returns how many calls of optimizers of one name make one step: two for a GAN with an Adam for each net.

    Compares the launches between successive calls, regardless of their order. Launches one step apart are alike, and
    those of closer calls differ at least twice as much; otherwise it returns 1. Measured on an H200: the two nets of a
    DCGAN have 78 % of their launches in common, successive steps 97 % to 100 %. If one net has five calls for each
    call of the other, neighbours have 93 % in common, like a program that does extra work every sixth step: also 1.
    """
    calls, tokens = _launch_sequence(timeline)
    part = np.searchsorted(timeline.host.end[optimizer], timeline.host.start[calls], side="right") - 1
    between = (part >= 0) & (part < len(optimizer) - 1)
    part, (_, token) = part[between], distinct(tokens[between])
    most = min(len(optimizer) // _LEAST_PERIODS, _MOST_OPTIMIZERS)
    differ = np.array([1 - _alike(part, token, distance) for distance in range(1, most + 1)])
    period = int(np.argmax(differ <= 1 - _ALIKE)) if most else 0
    clear = period == 0 or differ[:period].min() >= 2 * differ[period]
    return period + 1 if clear else 1


def _alike(part: I64, token: I64, distance: int) -> float:
    """Returns the share of each part's launches that the part `distance` later has too. Parts are numbered by time."""
    launches, width = np.bincount(part), int(token.max(initial=0)) + 1
    kinds, count = np.unique(part * width + token, return_counts=True)
    _, this, other = np.intersect1d(kinds + distance * width, kinds, assume_unique=True, return_indices=True)
    most = np.maximum(launches[:-distance], launches[distance:]).sum()
    return float(np.minimum(count[this], count[other]).sum() / most) if most else 1.0


_LEAST_PERIODS = 3
_MOST_OPTIMIZERS = 8
_ALIKE = 0.9  # the share of launches that must be the same one period later
_MOST_CANDIDATES = 64
_BRACKETS = {"(": ")", "<": ">", "[": "]", "{": "}"}


def _by_period(timeline: Timeline) -> Steps | None:
    """Finds steps as the period with which the sequence of launched kernels repeats.

    The distance between launches of a kernel that runs once per step is the period. Layers repeat within a step, so
    rare kernels are tried first, and the period must hold for all launches.
    """
    calls, tokens = _launch_sequence(timeline)
    if len(tokens) < 2 * _LEAST_PERIODS:
        return None
    distinct, first, counts = np.unique(tokens, return_index=True, return_counts=True)
    often = np.flatnonzero(counts >= _LEAST_PERIODS)
    often = often[np.lexsort((first[often], counts[often]))][:_MOST_CANDIDATES]
    places = [np.flatnonzero(tokens == distinct[which]) for which in often]
    distances = [int(np.median(np.diff(each))) for each in places]
    for period in distances:
        if period < 1 or len(tokens) < _LEAST_PERIODS * period:
            continue
        if (tokens[period:] == tokens[:-period]).mean() >= _ALIKE:
            # Take the most frequent kernel with that distance: a rarer one is missing from some steps.
            mark = max(np.flatnonzero(np.array(distances) == period), key=lambda i: len(places[i]))
            name = _plain(timeline.strings[distinct[often[mark]] // (len(timeline.streams) + 1)])
            return _every(timeline, calls, tokens, places[mark], period, name)
    return None


def _plain(kernel: str) -> str:
    """Returns a kernel's name without return type, template arguments and parameters: "cutlass::Kernel2"."""
    name, opened = "", [""]
    for letter in re.sub(r"^void |\(anonymous namespace\)::", "", kernel):
        if letter == _BRACKETS.get(opened[-1]):
            opened.pop()
        elif letter in _BRACKETS:
            if letter == "(" and len(opened) == 1:
                break
            opened.append(letter)
        elif len(opened) == 1:
            name += letter
    # Only names of templates include the return type, which may be a template itself: std::enable_if<…>::type.
    words = name.split() if "<" in kernel else [name.strip()]
    return "".join(words[-1:]) or kernel


def _launch_sequence(timeline: Timeline) -> tuple[I64, I64]:
    """Returns the host rows of launching calls, by time, and a number for each one's first op (name and stream)."""
    device = timeline.device
    known = np.flatnonzero(device.launch >= 0)
    calls, first = np.unique(device.launch[known], return_index=True)
    order = np.argsort(timeline.host.start[calls], kind="stable")
    ops = known[first][order]
    tokens = device.name[ops].astype(np.int64) * (len(timeline.streams) + 1) + device.stream[ops]
    return calls[order].astype(np.int64), tokens


def _every(timeline: Timeline, calls: I64, tokens: I64, places: I64, period: int, name: str) -> Steps:
    """Makes steps that begin where the repetition begins. `places` locates them; the last one is a `period` long."""
    again = tokens[period:] == tokens[:-period]
    same = np.append(0, np.cumsum(again))
    width = min(period, len(same) - 1)
    repeats = np.flatnonzero(same[width:] - same[:-width] >= _ALIKE * width)
    marks = places[np.append(True, np.diff(places) >= period // 2 + 1)]
    # The tolerance also admits launches that come once, right before the first step.
    first = int(repeats[0] + np.argmax(again[repeats[0] :])) if len(repeats) else int(marks[0])
    lead = (int(marks[0]) - first) % period
    starts = marks - lead
    starts = starts[(starts >= 0) & (starts + period <= len(calls))]
    start = timeline.host.start[calls[starts]]
    last = _end_of_last(timeline, calls, starts, period)
    return _steps(timeline, "period", name, start, np.append(start[1:], last))


def _end_of_last(timeline: Timeline, calls: I64, starts: I64, period: int) -> int:
    """Returns when the host ends the last step: after its last launch and as many waits as earlier steps have."""
    host = timeline.host
    waits = np.flatnonzero(host.kind == HostKind.SYNC)
    waits = waits[np.argsort(host.start[waits], kind="stable")]
    last_calls = calls[starts + period - 1]
    first = np.searchsorted(host.start[waits], host.start[last_calls])
    beyond = np.searchsorted(host.start[waits], host.start[calls[np.append(starts[1:], len(calls) - 1)]])
    usual = int(np.median((beyond - first)[:-1])) if len(starts) > 1 else 0
    tail = waits[first[-1] : first[-1] + usual]
    return int(host.end[tail].max(initial=host.end[last_calls[-1]]))


def _whole(timeline: Timeline) -> Steps:
    """Returns one step from the first operator, call or device op to the last."""
    host, device = timeline.host, timeline.device
    start = int(min(_host_start(timeline), device.start.min(initial=_FAR)))
    end = int(max(host.end[_is_working(timeline)].max(initial=0), device.end.max(initial=0)))
    if start > end:
        start, end = int(host.start.min(initial=0)), int(host.end.max(initial=0))
    return Steps("whole", None, np.array([start]), np.array([end]), start, end)


def _host_start(timeline: Timeline) -> int:
    """Returns when the first operator or call begins, in ns."""
    return int(timeline.host.start[_is_working(timeline)].min(initial=_FAR))


def _is_working(timeline: Timeline) -> Bool:
    host = timeline.host
    chosen: Bool = (host.kind <= HostKind.CALL) & ((host.op >= 0) | (host.kind != HostKind.SYNC))
    return chosen


_MOST_REPEATS = 10_000  # more are no steps
_FAR = np.iinfo(np.int64).max
