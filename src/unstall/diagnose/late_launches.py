"""Finds launches that came after the device had run out of work, and divides them into two kinds:
stretches of code, and series of tiny kernels.

The rule `launch_bound` makes findings of the first kind. The rule `tiny_kernels` makes findings of
the second kind. No idle time counts for both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from unstall.diagnose.run import Group, Run
from unstall.figures import duration
from unstall.locate.engine import models
from unstall.locate.functions import function_of, functions
from unstall.locate.grad_scaler import of_grad_scaler
from unstall.timeline.ancestry import depths, nearest, sums_below
from unstall.timeline.columns import I32, I64, HostKind
from unstall.timeline.grouping import groups
from unstall.what_if.place import EditPlace

_WORTH = 0.01  # of the window
_LATE = 0.1  # of a stretch's launches: with fewer, the host is ahead and is late only after a pause
_HOLDS = 0.8  # of the idle time, for a function to stand for the whole stretch, and tiny kernels for a place
_MOST_PLACES = 5  # where no stack says what belongs together
_TINY_NS = 5_000  # shorter than it takes the host to launch one
_REPEATS = 8  # the same few kernels again and again, as loops over parameters make them
TINY_ROW = 32
"""How many consecutive launches of tiny kernels from one line make a series, at least."""


@dataclass(frozen=True, eq=False, slots=True)
class Late:
    """The launches of one stretch of code that leave the device idle.

    Attributes:
        group: The launches, with their source line.
        restarts: Whether only a few of the launches come after the device has run out of work. In
            that case, the host usually runs ahead of the device, and is late only after a pause.
    """

    group: Group
    restarts: bool  # few of them are late: the host is ahead, and late only after a pause


def divide(run: Run, function: int | None = None) -> tuple[list[Late], list[Group]]:
    """Divides launches that leave the device idle into stretches of code and series of tiny
    kernels.

    A launch is in a stretch or in a series but not in both, because no idle time may count twice.
    If one series of tiny kernels has most of a stretch's idle time, the series is returned and the
    stretch is left out. If it has less, the stretch is returned, and its launches are left out of
    the series. There is one exception: if the host is late only after pauses, the launches also
    stay in the series, because pauses do not explain the idle time between tiny kernels.

    Args:
        run: The recorded run.
        function: The function that is the only stretch, as the index of a row of `timeline.stacks`.
            If None, the only stretch is the user's innermost function that has most of the idle
            time. If there is no such function, each of the costliest lines is a stretch.

    Returns:
        `(stretches, series)`. The stretches are sorted by cost, costliest first. Each series is of
        one line.
    """
    lost, between = run.lost_to("launch"), run.lost_to("launch", "latency")
    rows_of_tiny = [group for group in _tiny_rows(run) if between[group.rows].sum() >= _WORTH * run.wall]
    stretches = []
    for group in _stretches(run, lost, function):
        alike = (mine for mine in rows_of_tiny if _function(run, mine) == _function(run, group))
        if any(_lost(lost, group, mine) >= _HOLDS * lost[group.rows].sum() for mine in alike):
            continue
        restarts = bool((lost[group.rows] > 0).mean() < _LATE)
        stretches.append(Late(group, restarts))
    spoken_for = np.concatenate([np.zeros(0, np.int64), *(late.group.rows for late in stretches if not late.restarts)])
    rest = [replace(group, rows=np.setdiff1d(group.rows, spoken_for)) for group in rows_of_tiny]
    return stretches, [group for group in rest if between[group.rows].sum() >= _WORTH * run.wall]


def _lost(lost: I64, group: Group, other: Group) -> int:
    return int(lost[np.intersect1d(group.rows, other.rows)].sum())


def _stretches(run: Run, lost: I64, function: int | None) -> list[Group]:
    calls = _calls(run)
    node = innermost(run) if function is None else function
    chosen = [
        group
        for group in ([below(run, node)] if node >= 0 else run.lines(calls))
        if lost[group.rows].sum() >= _WORTH * run.wall
    ]
    return sorted(chosen, key=lambda group: _costliest_first(run, group, lost))[:_MOST_PLACES]


def _costliest_first(run: Run, group: Group, lost: I64) -> tuple[int, int]:
    """Returns a sort key that puts the costliest group first. If two groups cost the same, the earlier comes first."""
    return -int(lost[group.rows].sum()), int(run.timeline.host.start[group.rows].min())


def _calls(run: Run) -> I64:
    calls = run.launch_depth[0]
    return calls[run.inside[calls]]


def innermost(run: Run) -> int:
    """Returns the user's innermost function whose launches cause most of the idle time.

    A function's launches include the launches in the functions that it calls. The result is a row of
    `timeline.stacks`, or -1 if no function causes most of the idle time, or if the run has no stacks.
    """
    stacks, calls, lost = run.timeline.stacks, _calls(run), run.lost_to("launch")
    frame = run.places.frame[calls]
    total = int(lost[calls].sum())
    if not total or lost[calls[frame >= 0]].sum() < _HOLDS * total:
        return -1
    of = functions(run.timeline)
    by_function = np.zeros(len(stacks), dtype=np.int64)
    np.add.at(by_function, of.row[frame[frame >= 0]], lost[calls[frame >= 0]])
    holds = sums_below(of.parent, by_function) >= _HOLDS * total
    holding = np.flatnonzero(holds & run.places.is_user_frame & (of.row == np.arange(len(stacks))))
    return int(holding[depths(of.parent)[holding].argmax()]) if len(holding) else -1


def below(run: Run, node: int) -> Group:
    """Returns, as one group, the launches in a function and in all functions that it calls.

    `node` is the function's row in `timeline.stacks`. If the recorder knew which lines ran, the place of the group is
    the function's costliest line. Otherwise, the place is the function's `def` line. If the function is torch's, the
    place is the user's costliest line that calls it.
    """
    stacks, calls, lost = run.timeline.stacks, _calls(run), run.lost_to("launch")
    of = functions(run.timeline)
    if not run.places.is_user_frame[node]:
        inside = np.append(nearest(of.parent, np.arange(len(stacks)) == node)[of.row] >= 0, False)
        return _at_costliest(run, calls[inside[_forward_stack(run, calls)]], lost)
    frame = run.places.frame[calls]
    within = np.zeros(len(stacks), dtype=np.int64)
    np.add.at(within, frame[frame >= 0], lost[calls[frame >= 0]])
    inside = np.append(nearest(of.parent, np.arange(len(stacks)) == node)[of.row] >= 0, False)
    rows = np.flatnonzero(of.row == node)
    by_line = np.bincount(stacks.line[rows], sums_below(stacks.parent, within)[rows])
    return Group(int(by_line.argmax()), None, calls[inside[frame]])


def around(run: Run) -> list[int]:
    """Returns the user's innermost function that has most of the idle time before late launches,
    and the functions of the user's code that called it. The innermost function comes first.

    Each function is the index of a row of `timeline.stacks`. If several functions contain the same
    launches, only the innermost of them is returned. Callers that also run a GradScaler are left
    out, since no CUDA graph contains its work.
    """
    node = innermost(run)
    if node < 0:
        return []
    of, scaled = functions(run.timeline), of_grad_scaler(run.timeline)
    found: list[int] = []
    launches = -1
    while node >= 0:
        if run.places.is_user_frame[node]:
            rows = below(run, node).rows
            if found and scaled[rows].any():
                break
            if len(rows) > launches:
                found.append(node)
            launches = len(rows)
        node = int(of.parent[node])
    return found


def function_place(run: Run, function: int) -> EditPlace | None:
    """Returns the place of a function, which is a row of `timeline.stacks`. Returns None if its name is unknown."""
    timeline = run.timeline
    line = timeline.stacks.line[function]
    file, name = (timeline.text(int(column[line])) for column in (timeline.lines.file, timeline.lines.function))
    return EditPlace(file, function=name) if file and name else None


def model_forward(run: Run) -> int:
    """Returns the model's `forward` function, as the index of a row of `timeline.stacks`; -1 if the
    program calls no model.

    If there are several models, returns the one whose launches leave the device idle for longest.
    """
    calls, lost = _calls(run), run.lost_to("launch")
    stack = _forward_stack(run, calls)
    calls, stack = calls[stack >= 0], stack[stack >= 0]
    of, mine = functions(run.timeline), models(run.places)[stack]
    by_function = np.zeros(len(run.timeline.stacks), dtype=np.int64)
    np.add.at(by_function, of.row[mine[mine >= 0]], lost[calls[mine >= 0]])
    return int(by_function.argmax()) if by_function.any() else -1


def _forward_stack(run: Run, calls: I64) -> I32:
    """Returns the innermost frame of each call, as a row of `timeline.stacks`; -1 if it is unknown. For a call of a
    backward operator, it is that of the forward operator.
    """
    host = run.timeline.host
    stack = np.where(host.forward[calls] >= 0, host.stack[host.forward[calls]], -1)
    return np.where(stack >= 0, stack, host.stack[calls]).astype(np.int32)


def _tiny_rows(run: Run) -> list[Group]:
    """Returns the series of launches of tiny kernels. Each series is of a line that repeats the same few kernels.

    If the recorder knew which lines ran, each series is of a function instead, because a loop spans several lines.
    """
    timeline = run.timeline
    host, device = timeline.host, timeline.device
    joined = np.flatnonzero((device.launch >= 0) & run.ops_inside)
    single = joined[host.kind[device.launch[joined]] == HostKind.LAUNCH]
    single = single[np.argsort(host.start[device.launch[single]], kind="stable")]
    call = device.launch[single]
    tiny = (device.end - device.start)[single] < _TINY_NS
    place = np.where(tiny, _functions(run, run.places.place[call]), -2)
    cuts = np.flatnonzero(np.append(True, place[1:] != place[:-1])) if len(place) else place
    length = np.diff(np.append(cuts, len(place)))
    in_row = np.repeat((length >= TINY_ROW) & (place[cuts] != -2), length) if len(place) else tiny
    rows = call[in_row].astype(np.int64)
    found = [
        _at_costliest(run, rows[mine], run.lost_to("launch", "latency"))
        for _, mine in groups(_functions(run, run.places.place[rows]))
    ]
    return [
        group for group in found if len(np.unique(device.name[run.ops_of(group.rows)])) * _REPEATS <= len(group.rows)
    ]


def _at_costliest(run: Run, rows: I64, lost: I64) -> Group:
    """Returns one group with all of `rows`, which are indices of rows of `timeline.host`.

    The source line of the group is the one that causes the most idle time. `lost` has the idle time
    that each row of `timeline.host` causes, in ns.
    """
    parts = sorted(run.lines(rows), key=lambda part: _costliest_first(run, part, lost))
    return parts[0] if len(parts) == 1 else Group(parts[0].place, None, rows)


def _function(run: Run, group: Group) -> int:
    return int(_functions(run, np.array([group.place]))[0])


def _functions(run: Run, places: I64) -> I64:
    """Returns, for each place that is a source line, the number of the line's function.

    All lines of a loop are in the same function, so they get the same number. Other places stay unchanged. If the
    recorder knew only `def` lines, each line has a number of its own.
    """
    function = function_of(run.timeline)
    in_function = (places >= 0) & (places < len(function))
    return np.where(in_function, function[np.where(in_function, places, 0)], places) if len(function) else places


def usual_length(run: Run, rows: I64) -> str:
    """Returns the median length of the device ops that some host events launched, as text: "3.17 µs
    (median)".

    The median can be 0, because some recorders write whole µs. In that case, the text is "less than
    1 µs (median)". `rows` are the host events, as indices of rows of `timeline.host`.
    """
    device = run.timeline.device
    ops = run.ops_of(rows)
    median = int(np.median((device.end - device.start)[ops]))
    return f"{duration(median)} (median)" if median else "less than 1 µs (median)"
