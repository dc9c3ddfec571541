"""`host_alone`: the program whose host takes as long as in steps that CUPTI was not there for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unstall.replay.program import Code, Program
from unstall.timeline.columns import I64, Bool, HostTimes

_WAITS = (Code.SYNC_STREAM, Code.SYNC_DEVICE, Code.SYNC_EVENT, Code.JOIN)


def host_alone(recorded: Program, span: tuple[I64, I64], times: HostTimes, rest: Program, kept: Bool) -> Program:
    """The program with measured times in the place of recorded ones.

    `span` is the start and the end of each instruction's call as `recorded`, in ns. Those of the steps' thread have
    measured times, within the steps, but for what `kept` marks: data loading, say, that is slow in some steps and not
    in others, of which a median tells nothing. The others have those of `rest`, which is the same program by other
    means. How long a wait takes with nothing to wait for is left as it is.
    """
    do = recorded.instructions
    start, end = span

    def alone(moments: I64) -> np.ndarray:
        return np.interp(moments, times.recorded, times.alone)

    told = (do.thread == 0) & ~kept & (start - do.work >= times.recorded[0]) & (end <= times.recorded[-1])
    work = np.rint(alone(start) - alone(start - do.work)).astype(np.int64)
    call = np.rint(do.call * _shorter(recorded, start, end, alone(end) - alone(start))).astype(np.int64)
    do = rest.instructions
    do = replace(do, work=np.where(told, work, do.work), call=np.where(told, call, do.call))
    return replace(rest, instructions=do)


def _shorter(program: Program, start: I64, end: I64, alone: np.ndarray) -> np.ndarray:
    """By instruction: how long its call takes alone, as a share of what was recorded.

    A call may be several instructions, of which the first has its span. One that waits is not told by its length, and
    none is longer alone, unless it waits then: for room in the launch queue of a device that the host runs ahead of.
    """
    do = program.instructions
    call_of = np.cumsum(~do.goes_on) - 1
    waits = np.bincount(call_of, np.isin(do.code, _WAITS), len(do)) > 0
    share = np.ones(len(do))
    first = ~do.goes_on & (end > start)
    share[call_of[first]] = np.minimum(alone[first] / (end - start)[first], 1.0)
    shorter: np.ndarray = np.where(waits, 1.0, share)[call_of]
    return shorter
