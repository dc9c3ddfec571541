"""Two programs under `unstall run`, one on a virtual GPU, one on the CPU, and what became of their recordings."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from faults.commands import Ended, Place, Started

from unstall.read import load

LAST_LINE = "the program's last line\n"
RECORDED = {"virtual": "run.timeline", "plain": "profile.json"}
"""The file in the recording's folder that has what was recorded."""
PROGRAMS = {
    "virtual": (
        ["--gpu", "t4", "--warmup", "0"],
        """\
import torch
x = torch.zeros(8, device="cuda")
print("ready", flush=True)
for _ in range(10):
    x.add_(1)
torch.cuda.synchronize()
""",
    ),
    "plain": (
        ["--recorder", "torch", "--warmup", "0", "--steps", "2", "--trace", "train.trace.json.gz"],
        """\
import time, torch, unstall
x = torch.ones(8)
print("ready", flush=True)
for _ in range(24):
    x = x + 1
    time.sleep(0.03)
    unstall.step()
""",
    ),
}
_LEAST = 10


class Run:
    """A program of PROGRAMS in a place. It runs there again and again."""

    def __init__(self, place: Place, name: str) -> None:
        self.place, self.name = place, name
        self._options, program = PROGRAMS[name]
        (place.below / "train.py").write_text(f'{program}print("{LAST_LINE.strip()}", flush=True)\n')

    def start(self) -> Started:
        return self.place.start("run", *self._options, "train.py")

    def clear(self) -> None:
        """Removes what earlier runs left."""
        for path in [*self.place.below.glob("*.json*"), *self.place.below.glob(".*")]:
            path.unlink()
        for path in self.place.temporary.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def traces(self) -> list[Path]:
        """Returns the traces that have something in them. A name may be claimed by an empty file."""
        return [path for path in self.place.below.glob("*.trace.json.gz") if path.stat().st_size]

    def recorded(self, traces: Iterable[Path]) -> bool:
        """Returns whether one of these traces has what the program did. Each must be whole."""
        timelines = [*map(load, traces)]
        return any(len(each.device if self.name == "virtual" else each.host) >= _LEAST for each in timelines)

    def recovered(self) -> Iterator[Path]:
        """Yields the trace of each recording that can be recovered."""
        listed = self.place.run("recover")
        assert listed.code == 0, listed
        for line in listed.out.splitlines():
            if "nothing was recorded" not in line:
                kept = self.place.below / "kept.json"
                ended = self.place.run("recover", line.split()[0], str(kept))
                assert ended.code == 0, ended
                yield kept

    def works(self) -> Ended:
        """Checks that a run works in which nothing fails."""
        before = {path: path.read_bytes() for path in self.traces()}
        ended = self.start().ended()
        assert ended.code == 0, ended
        assert LAST_LINE in ended.out
        assert self.recorded(path for path in self.traces() if path.read_bytes() != before.get(path))
        return ended
