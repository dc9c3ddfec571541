"""What may disturb a recording of a block: a fork, and a temporary folder without room."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from processes import succeeded

import unstall
from unstall.errors import UsageError

PROGRAM = """
import os, sys
import torch
import unstall

with unstall.record(lines="none") as recording:
    torch.ones(3).sum()
    child = os.fork()
    if child == 0:
        sys.exit(0)
    os.waitpid(child, 0)
print(os.path.isdir(recording._settings.folder))
recording.close()
print(os.path.isdir(recording._settings.folder))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_fork_that_ends_leaves_the_recording_of_its_parent(tmp_path: Path) -> None:
    program = tmp_path / "forks.py"
    program.write_text(PROGRAM)
    assert succeeded([sys.executable, "-W", "ignore", str(program)], env=dict(os.environ)).stdout.split() == [
        "True",
        "False",
    ]


def test_a_recording_without_a_place_for_its_files_is_refused_before_the_block() -> None:
    recording = unstall.record(lines="none")
    recording.close()
    with pytest.raises(UsageError, match="cannot write its temporary files: No such file"), recording:
        pytest.fail("the block began")


def test_a_recording_whose_files_somebody_removed_says_so() -> None:
    with unstall.record(lines="none") as recording:
        pass
    shutil.rmtree(recording._settings.folder)
    with pytest.raises(UsageError, match="something else has removed"):
        recording.explain()
