"""Two ranks of which one does not join: started by the program, and each by an `unstall run` of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="programs are launched on Linux alone"),
]
pytest.importorskip("torch")

UNMATCHED = Path(__file__).parent / "hangs" / "unmatched.py"
ONE_RANK = """import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.barrier()  # the hang
time.sleep(1000)  # never joins
"""


def line_of(program: str, comment: str) -> int:
    return next(n for n, line in enumerate(program.splitlines(), 1) if line.endswith(comment))


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "unstall", "run", "--blame", "--hang-after", "4s", "--end-hung", *options]


def ranks_of(result: dict[str, Any]) -> dict[int, tuple[int, str]]:
    """By rank, its line and the collective that it waits in."""
    processes = result["hang"]["processes"]
    return {each["rank"]: (each["at"]["line"], each["collective"]) for each in processes if each["rank"] is not None}


def test_ranks_that_the_program_has_started_are_told_with_the_one_that_never_joins() -> None:
    done = subprocess.run(
        [*command("--format", "json"), str(UNMATCHED)], capture_output=True, text=True, timeout=120, check=False
    )
    source = UNMATCHED.read_text()
    waits, elsewhere = line_of(source, "# the hang"), line_of(source, "# never joins")
    assert done.returncode == 124
    assert ranks_of(json.loads(done.stdout)) == {0: (waits, "all_reduce"), 1: (elsewhere, "")}
    assert f"Rank 1 never joined: it is at {UNMATCHED}:{elsewhere}." in " ".join(done.stderr.split())


def test_ranks_with_an_unstall_run_each_are_told_once(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(ONE_RANK)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29641"]
    done = subprocess.run(
        [*torchrun, *["-m", *command()[2:]], str(program)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "COLUMNS": "300"},
    )
    told = " ".join(done.stderr.split())
    assert told.count("The program hangs") == 1
    assert f"Rank 0 waits in barrier at {program}:{line_of(ONE_RANK, '# the hang')}." in told
    assert f"Rank 1 never joined: it is at {program}:{line_of(ONE_RANK, '# never joins')}." in told
