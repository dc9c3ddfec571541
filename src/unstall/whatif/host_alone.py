"""`host_alone`: the program whose host takes as long as in steps that CUPTI was not there for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from unstall.replay.program import Code, Program
from unstall.timeline import I64, HostTimes
from unstall.whatif.undistort import RecorderCost, undistort

_WAITS = (Code.SYNC_STREAM, Code.SYNC_DEVICE, Code.SYNC_EVENT, Code.JOIN)


MOST_FASTER = 3.0
"""With that the host takes half as long as at the usual 1, and at 0 a quarter more."""


def host_alone(
    program: Program, span: tuple[I64, I64], times: HostTimes, cost: RecorderCost
) -> Callable[[float], Program]:
    """What gives the program with measured times in the place of recorded ones, its host as fast as it is asked to be.

    `span` is the start and the end of each instruction's call as recorded, in ns. Those of the steps' thread have
    measured times, within the steps; from the others the recorder's usual `cost` is taken, as from the gaps between
    ops. How long a wait takes with nothing to wait for is left as it is. The host's speed is the measured one at 1.
    """
    do = program.instructions
    start, end = span

    def alone(moments: I64) -> np.ndarray:
        return np.interp(moments, times.recorded, times.alone)

    told = (do.thread == 0) & (start - do.work >= times.recorded[0]) & (end <= times.recorded[-1])
    work = np.where(told, alone(start) - alone(start - do.work), do.work)
    call = np.where(told, do.call * _shorter(program, start, end, alone(end) - alone(start)), do.call)
    others = np.where(told[:, None], 0, do.recorded)
    program = undistort(replace(program, instructions=replace(do, recorded=others)), 1.0, cost)

    def faster(by: float) -> Program:
        do, scale = program.instructions, 1 + (1 - by) / 4
        mine, my_call = (np.rint(scale * times).astype(np.int64) for times in (work, call))
        do = replace(do, work=np.where(told, mine, do.work), call=np.where(told, my_call, do.call))
        return replace(program, instructions=do)

    return faster


def _shorter(program: Program, start: I64, end: I64, alone: np.ndarray) -> np.ndarray:
    """By instruction: how long its call takes alone, as a share of what was recorded.

    A call may be several instructions, of which the first has its span. One that waits is not told by its length, and
    one that waited for room in the launch queue, of which less was kept, becomes no longer.
    """
    do = program.instructions
    call_of = np.cumsum(~do.goes_on) - 1
    calls = int(call_of[-1]) + 1 if len(do) else 0
    waits = np.bincount(call_of, np.isin(do.code, _WAITS), calls) > 0
    kept = np.bincount(call_of, do.call, calls)
    recorded = (end - start)[~do.goes_on]
    share = alone[~do.goes_on] / np.maximum(recorded, 1)
    share = np.where(kept < recorded, np.minimum(share, 1.0), share)
    shorter: np.ndarray = np.where(waits | (recorded <= 0), 1.0, share)[call_of]
    return shorter
