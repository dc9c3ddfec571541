"""The programs that a published job becomes."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

from benchmarks.stragglers import Op, program_of
from unstall.replay.engine import replay


def test_each_operation_of_a_stage_is_an_op_that_can_be_replayed() -> None:
    forward, send, backward = (Op(kind, 0, 0) for kind in ("forward-compute", "forward-send", "backward-compute"))
    waits = defaultdict(list, {send: [forward], backward: [forward]})
    model: Any = SimpleNamespace(order=[[forward, send, backward]], waits=waits)
    program, number = program_of(model, 0)
    assert set(number) == {forward, send, backward}
    program.ops.duration[:] = [5, 7, 9]
    times = replay(program)
    assert times.op_end[number[backward]] - times.op_start[number[backward]] == program.ops.duration[number[backward]]
    assert times.op_start[number[send]] >= times.op_end[number[forward]]
