"""A real Ray cluster of several nodes on this machine gives the answer of processes, also if a worker is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.fleets import on_ray, write_job
from unstall.fleets.executors import Processes
from unstall.fleets.fleet import explain_fleet

pytestmark = pytest.mark.slow


def test_a_killed_worker_changes_no_answer(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'unstall[ray]'")
    write_job(tmp_path, ranks=8, megabytes=10)
    seconds, killed, found = on_ray(tmp_path, nodes=3)
    assert (killed, seconds > 0) == (True, True)
    assert found == explain_fleet(tmp_path, cache=False, on=Processes())
    assert (found.not_read, [each.rank for each in found.stragglers]) == ((), [3])
