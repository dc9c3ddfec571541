"""How long the host takes without a recorder, from one moment of the recorded steps to the next.

The steps of which only the host was recorded make the same calls as those that the recorder was there for. Each call is
an anchor: its begin and its end as recorded, and when that is in a step without a recorder, as the median of all that
make the same calls in the same order. A step that none is like is as long as they are.

Calls count by what they do, those that give the device work or wait for it: a call of the runtime is then the same as
the driver's that it makes. How many others there are depends on how fast the rest is: an allocator asks at each
allocation which events are done.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from unstall.cupti.decode import outermost
from unstall.cupti.driver_calls import DRIVER
from unstall.read.names import call_kind
from unstall.timeline.columns import I64, HostKind, HostTimes

TIMED = np.dtype([("start", "<u8"), ("end", "<u8"), ("what", "<u4"), ("thread", "<u4")])
"""A call, as host_only.bin has it: `what` is the number of one of the driver's."""

_LEAST_ALIKE = 0.5  # of the recorded steps
_MOST_ANCHORS = 100_000
_COUNTED = (HostKind.LAUNCH, HostKind.GRAPH_LAUNCH, HostKind.COPY, HostKind.MEMSET, HostKind.SYNC)
_KINDS = np.full(max(DRIVER) + 2, HostKind.CALL, np.uint32)  # the last for any other number
_KINDS[list(DRIVER)] = [call_kind(name) for name in DRIVER.values()]


def kinds_of(calls: np.ndarray) -> np.ndarray:
    """Calls of the driver, with the columns of TIMED, as what they do: `what` is a HostKind."""
    told = np.zeros(len(calls), TIMED)
    for name in ("start", "end", "thread"):
        told[name] = calls[name]
    told["what"] = _KINDS[np.minimum(calls["what"], len(_KINDS) - 1)]
    return told


def host_times(
    calls: np.ndarray, borders: Sequence[int], timed: np.ndarray, marks: Sequence[int], threads: Sequence[int]
) -> HostTimes | None:
    """From the recorded `calls` and the `borders` of their steps, the `timed` ones and the `marks` of theirs.

    Both tables have the columns of TIMED, with a HostKind as `what`; only calls of these threads count. None where most
    recorded steps are like no other.
    """
    recorded, alone = (_steps(*each, threads) for each in ((calls, borders), (timed, marks)))
    if not recorded or not alone:
        return None
    usual = float(np.median([step.length for step in alone]))
    kinds: dict[bytes, list[_Step]] = {}
    for step in alone:
        kinds.setdefault(step.made, []).append(step)
    if sum(step.made in kinds for step in recorded) < _LEAST_ALIKE * len(recorded):
        return None
    known = {made: _median(steps) for made, steps in kinds.items()}
    anchors: list[tuple[np.ndarray, np.ndarray]] = []
    begun = 0.0
    for step in recorded:
        anchors.append((np.array([step.start]), np.array([begun])))
        if step.made not in known:
            begun += usual
            continue
        times, length = known[step.made]
        order = np.argsort(step.times, kind="stable")
        anchors.append((step.start + step.times[order], begun + np.maximum.accumulate(times[order])))
        begun += length
    anchors.append((np.array([borders[-1]]), np.array([begun])))
    at, moments = (np.concatenate(each) for each in zip(*anchors, strict=True))
    kept = np.unique(np.linspace(0, len(at) - 1, min(len(at), _MOST_ANCHORS)).astype(np.int64))
    return HostTimes(at[kept].astype(np.int64), np.rint(moments[kept]).astype(np.int64))


def told(times: HostTimes, of_file: Callable[[int], int] = int) -> dict[str, object]:
    """As a trace has it: each time since the one before, the first as it is.

    `of_file` makes a time of our clock one of the file's.
    """
    recorded, alone = (np.diff(each, prepend=0).tolist() for each in (times.recorded, times.alone))
    return {"recorded_ns": [of_file(recorded[0]), *recorded[1:]], "alone_ns": alone}


@dataclass(frozen=True, eq=False, slots=True)
class _Step:
    start: int
    length: int
    made: bytes  # what calls, by which threads, in their order
    times: I64  # when they begin, then when they end, since the step's start


def _steps(calls: np.ndarray, borders: Sequence[int], threads: Sequence[int]) -> list[_Step]:
    calls = calls[np.isin(calls["thread"], threads) & np.isin(calls["what"], _COUNTED)]
    calls = outermost(calls)
    which = np.stack([calls["what"], calls["thread"]], axis=1)
    begins, ends = (calls[name].astype(np.int64) for name in ("start", "end"))
    steps = []
    for start, end in itertools.pairwise(borders):
        mine = slice(*np.searchsorted(begins, (start, end)))
        times = np.minimum(np.concatenate([begins[mine], ends[mine]]), end) - start
        steps.append(_Step(start, end - start, which[mine].tobytes(), times))
    return steps


def _median(steps: Sequence[_Step]) -> tuple[np.ndarray, float]:
    """Of steps that make the same calls: when these begin and end, and how long a step takes."""
    return np.median([step.times for step in steps], axis=0), float(np.median([step.length for step in steps]))
