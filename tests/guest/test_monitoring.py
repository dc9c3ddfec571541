"""Tools of sys.monitoring: which ones a recording takes, and which it leaves to the program."""

from __future__ import annotations

import cProfile
import sys
from pathlib import Path

import pytest

from unstall.cupti.call_stacks import CallStacks, unavailable
from unstall.errors import UnstallError
from unstall.guest import monitoring as tools
from unstall.lines.clock import LineClock
from unstall.recording.recorder import Recorder

pytestmark = pytest.mark.python(least=(3, 12))


def _recorders(folder: Path) -> list[Recorder]:
    clock = LineClock(folder, "monitoring", lambda file: file == __file__)
    return [clock, CallStacks(folder)] if unavailable() is None else [clock]


def test_a_program_may_profile_itself_while_it_is_recorded(tmp_path: Path) -> None:
    profile = cProfile.Profile()
    for recorder in _recorders(tmp_path):
        recorder.start()
        try:
            profile.enable()
            profile.disable()
        finally:
            recorder.stop()
    assert profile.getstats()


def test_tools_that_debuggers_coverage_and_profilers_have_a_claim_to_are_left_to_them() -> None:
    if sys.version_info < (3, 12):
        return
    monitoring, taken = sys.monitoring, []
    claimed = {monitoring.DEBUGGER_ID, monitoring.COVERAGE_ID, monitoring.PROFILER_ID}
    try:
        taken += [tools.take("test") for _ in range(3)]
        assert not claimed & set(taken)
        with pytest.raises(UnstallError, match="no tool"):
            tools.take("test")
    finally:
        for tool in taken:
            tools.let_go(tool, [])
    assert not [tool for tool in range(6) if monitoring.get_tool(tool) == "test"]
