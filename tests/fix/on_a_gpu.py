"""Programs that tests run on a virtual GPU, which must find no race in them, and on a real one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_VIRTUAL = """
import runpy, sys
from unstall.virtual.entry import virtual_gpu
gpu = virtual_gpu("h200").start()
runpy.run_path(sys.argv[1], run_name="__main__")
gpu.stop()
exec(sys.argv[2])
print("RACES", len(gpu.timeline().races.kind))
"""


def on_virtual_gpu(tmp_path: Path, program: str, end: str = "") -> str:
    """What the program printed, and then `end`, which knows `gpu`. It ends well, and the race finder finds nothing."""
    (tmp_path / "run.py").write_text(_VIRTUAL)
    (tmp_path / "program.py").write_text(program)
    said = _ran([sys.executable, str(tmp_path / "run.py"), str(tmp_path / "program.py"), end])
    assert said.splitlines()[-1] == "RACES 0", said
    return said


def on_real_gpu(tmp_path: Path, program: str) -> str:
    (tmp_path / "program.py").write_text(program)
    return _ran([sys.executable, str(tmp_path / "program.py")])


def _ran(command: list[str]) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
