"""The engine, which sees a log, and what looks at a real GPU, which sees operators, agree."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.slow


def test_both_find_races_at_the_same_lines_of_random_programs(tmp_path: Path) -> None:
    script = Path(__file__).parent / "random_programs.py"
    ran = subprocess.run(
        [sys.executable, str(script), "100", str(tmp_path)], capture_output=True, text=True, timeout=600, check=False
    )
    told = [json.loads(line[2:]) for line in ran.stdout.splitlines() if line.startswith("= ")]

    assert len(told) == 100, ran.stderr[-4000:]
    assert sum(len(engine) for engine, _, _ in told) > 500
    for engine, found, failed in told:
        assert failed == ""
        assert [pair for pair in found if pair not in engine] == []
        assert {second for _, second in engine} == {second for _, second in found}
