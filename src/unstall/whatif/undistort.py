"""`undistort`: take the recorder's own cost back out of a program."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unstall.replay.interpreter import replay
from unstall.replay.program import Code, Program, Recorded
from unstall.timeline import I64


@dataclass(frozen=True, slots=True)
class RecorderCost:
    """What recording one event adds, in ns: to the host for each kind of event, to the device for each op."""

    operator: int
    frame: int
    call: int
    launch: int
    node: int  # each op of a graph, to the host's call that launches it
    op: int  # between two ops of a stream


USUAL = RecorderCost(operator=1800, frame=200, call=900, launch=2200, node=900, op=200)

_LEAST_WORK, _LEAST_CALL = 0.15, 0.25  # of what was recorded


def undistort(program: Program, scale: float = 1.0, cost: RecorderCost = USUAL) -> Program:
    """The program without `scale` times the usual cost of the recorder."""
    do, ops = program.instructions, program.ops
    events = do.recorded.astype(np.float64)
    on_work = scale * (
        cost.operator * events[:, Recorded.OPERATOR]
        + cost.frame * events[:, Recorded.FRAME]
        + cost.call * events[:, Recorded.CALL]
    )
    counts = np.diff(do.ops, prepend=0)
    launches = do.code == Code.LAUNCH
    on_call = scale * (cost.launch * events[:, Recorded.LAUNCH] + cost.node * np.where(counts > 1, counts, 0))
    # What a launching call does once its ops have arrived is an instruction of its own, and shares the cost.
    rest = np.flatnonzero(launches[:-1] & (do.host[1:] == do.host[:-1]) & (do.host[1:] >= 0) & (do.code[1:] == Code.CALL))
    on_call[rest + 1] = np.minimum(on_call[rest], do.call[rest + 1] * (1 - _LEAST_CALL))
    on_call[rest] -= on_call[rest + 1]
    call = _less(do.call, on_call, _LEAST_CALL)
    gap = np.where(ops.gap > 0, np.maximum(ops.gap - round(min(scale, 1.0) * cost.op), ops.gap // 4), ops.gap)
    return replace(
        program,
        instructions=replace(do, work=_less(do.work, on_work, _LEAST_WORK), call=call),
        ops=replace(ops, gap=gap),
    )


def _less(times: I64, cost: np.ndarray, least: float) -> I64:
    return np.maximum(times - cost, times * least).astype(np.int64)
