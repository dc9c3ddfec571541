"""`unstall doctor`: what is here, found without importing anything that might break."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

from cli.command import Cli


def test_it_names_what_is_here_and_what_the_rest_would_enable(unstall: Cli) -> None:
    outcome = unstall("doctor")
    assert outcome.code == 0
    assert f"python           {platform.python_version()}" in outcome.out
    for line in outcome.out.splitlines():
        assert line.startswith(("ok  ", "--  ", "    "))


def test_json_has_the_same_checks(unstall: Cli) -> None:
    document = json.loads(unstall("doctor", "--json").out)
    assert document["schema"] == "unstall.doctor/1"
    names = [check["name"] for check in document["checks"]]
    assert names == ["unstall", "python", "numpy", "msgspec", "rich", "C engine", "torch", "torch built for", "GPU"]
    assert all(set(check) - {"instead"} == {"name", "found", "enables"} for check in document["checks"])


def test_a_torch_without_cuda_is_said_to_be_for_the_cpu(tmp_path: Path) -> None:
    (tmp_path / "torch-9.0.dist-info").mkdir()
    (tmp_path / "torch-9.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.0\n")
    (tmp_path / "torch.py").write_text(
        "from types import SimpleNamespace as Space\n"
        "__version__, version, cuda = '9.0+cpu', Space(cuda=None), Space(is_available=lambda: False)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "unstall", "doctor"]
    shown = subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout
    assert "ok  torch            9.0+cpu\n" in shown
    assert "--  torch built for  CPU only\n" in shown
