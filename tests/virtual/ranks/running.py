"""Jobs of several ranks, each in a process of its own with a virtual GPU."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unstall.timeline.columns import Timeline
from unstall.timeline.store import load

PROGRAMS = Path(__file__).parent / "programs"
TESTS = Path(__file__).parents[2]


@dataclass(frozen=True)
class Rank:
    """What a rank told in its last line, and its timeline."""

    told: dict[str, Any]
    timeline: Timeline

    def kernels(self, word: str = "nccl") -> list[tuple[str, int, int]]:
        """The (name, start, end) of each kernel with this word in its name, in order of their starts."""
        device = self.timeline.device
        rows = [
            (self.timeline.strings[name], start, end)
            for name, start, end in zip(device.name.tolist(), device.start.tolist(), device.end.tolist(), strict=True)
        ]
        return [row for row in rows if word in row[0]]


def job(program: str, ranks: int, folder: Path, *arguments: str) -> list[Rank]:
    """Runs `programs/PROGRAM.py` as so many ranks of a job. Each gets the file for its timeline, and the arguments."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{rank}.timeline" for rank in range(ranks)]
    printed = run(program, [[str(file), *arguments] for file in files])
    return [Rank(json.loads(told.splitlines()[-1]), load(file)) for told, file in zip(printed, files, strict=True)]


def run(program: str, arguments: Sequence[Sequence[str]]) -> list[str]:
    """Runs `programs/PROGRAM.py` as a job with a rank for each list of arguments. Returns what the ranks print."""
    ranks = len(arguments)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    processes = []
    for rank, words in enumerate(arguments):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
        command = [sys.executable, str(PROGRAMS / f"{program}.py"), *words]
        processes.append(
            subprocess.Popen(
                command, env=os.environ | shared | own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
    try:
        printed = [process.communicate(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * ranks, "\n".join(said[-2000:] for _, said in printed)
    return [told for told, _ in printed]
