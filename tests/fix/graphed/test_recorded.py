"""What a recording of a graphed program says of the proofs in it, which the program has not written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import torch, unstall

net = torch.nn.Sequential(*[part for _ in range(8) for part in (torch.nn.Linear(64, 64), torch.nn.ReLU())]).cuda()
fast = unstall.graphed(net.eval())
with torch.no_grad():
    for _ in range(12):
        fast(torch.randn(4, 64, device="cuda"))
"""


@pytest.mark.slow
def test_waits_of_proofs_are_no_findings_and_what_they_took_is_said(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_PROGRAM)
    _unstall(tmp_path, "run", "--gpu", "h200", "--quiet", "--trace", "run.trace.json.gz", "program.py")
    report = json.loads(_unstall(tmp_path, "explain", "run.trace.json.gz", "--json"))
    assert not [finding for finding in report["findings"] if finding["rule"].startswith("sync")]
    assert any("unstall.graphed proving its captures" in note for note in report["integrity"]["notes"])


def _unstall(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "unstall", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout
