"""A program with branches, mended by `graphed`: its replay takes as long as it did."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from processes import succeeded
from replay.recorded import program_of

from unstall.diagnose.analyse import analyse
from unstall.read import load
from unstall.replay.engine import replay
from unstall.replay.steady import steady_step_ns

_PROGRAM = Path(__file__).parent / "programs" / "inception.py"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["waits", "runs ahead"])
def test_blocks_of_branches_by_a_graph_on_several_streams(how: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json.gz"
    command = ["-m", "unstall", "run", "--gpu", "h200", "--warmup", "10", "--trace", str(trace)]
    done = succeeded([sys.executable, *command, str(_PROGRAM), "auto", how])
    assert "Predictions are uncertain" not in done.stderr

    timeline = load(trace)
    program = program_of(timeline)
    launched = np.bincount(program.launcher)
    of_one = program.launcher == launched.argmax()
    assert len(set(program.ops.stream[of_one].tolist())) > 1
    start, end = analyse(timeline).steps.window
    measured = (end - start) / len(program.step_starts)
    assert replay(program).mean_step_ns(program) == pytest.approx(measured, rel=0.01)
    assert steady_step_ns(program) == pytest.approx(measured, rel=0.01)
