"""While `unstall run` runs a program, each call by which it changes a folder fails in turn, in any of its processes.

The program ends as it would. Its recording is in a trace, or can be recovered, or the exit code and a sentence say that
it is lost. The next run works.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from faults.failing import BROKEN, FULL, KILLED, NO_ROOM, Ended, Failing, Fault

from unstall.read import load

pytest.importorskip("torch")

_LAST_LINE = "the program's last line\n"
_PROGRAMS = {
    "virtual": (
        ["--gpu", "t4"],
        """\
import torch
x = torch.zeros(8, device="cuda")
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
for _ in range(24):
    x = x + 1
    time.sleep(0.03)
    unstall.step()
""",
    ),
}
_TRACE = "train.trace.json.gz"


def _events(trace: Path, name: str) -> int:
    timeline = load(trace)
    return len(timeline.device if name == "virtual" else timeline.host)


class _Run:
    """Runs of a program in one folder."""

    def __init__(self, library: Path, folder: Path, name: str) -> None:
        self.failing, self.name = Failing(library, folder), name
        self.options, program = _PROGRAMS[name]
        (folder / "train.py").write_text(f'{program}print("{_LAST_LINE.strip()}", flush=True)\n')

    def run(self) -> Ended:
        return self.failing.run("run", *self.options, "train.py")

    def traces(self) -> list[Path]:
        return sorted(self.failing.below.glob("*.json.gz"))

    def recorded(self, traces: Iterator[Path] | list[Path]) -> bool:
        return any(_events(path, self.name) >= 10 for path in traces)

    def recovered(self) -> Iterator[Path]:
        """Yields the trace of each recording that can be recovered."""
        listed = self.failing.run("recover")
        assert listed.code == 0, listed
        for line in listed.out.splitlines():
            if "nothing was recorded" not in line:
                kept = self.failing.below / "kept.json"
                ended = self.failing.run("recover", line.split()[0], str(kept))
                assert ended.code == 0, ended
                yield kept

    def works(self) -> None:
        """Checks that the next run works."""
        self.failing.arm(0, KILLED)
        for path in self.traces():
            path.unlink()
        ended = self.run()
        assert ended.code == 0, ended
        assert ended.out.startswith(_LAST_LINE)
        assert self.recorded(self.traces())


def _holds(run: _Run, ended: Ended, fault: Fault, what: str) -> None:
    """Checks what a run left behind in which a call failed."""
    told = f"{what}: {ended}"
    run.failing.arm(0, fault)
    traces = run.traces()
    if not ended.out:  # refused before the program began
        assert ended.code == 2, told
        assert re.search(r"unstall: .*(No space left on device|Input/output error)", ended.err), told
        assert traces == [], told
        return
    assert ended.out.startswith(_LAST_LINE), told
    assert not list(run.failing.below.glob(".*")), told
    if ended.code == 0:
        assert run.recorded(traces) or "incomplete" in ended.err or "nothing was recorded" in ended.err, told
        return
    assert ended.code == 3, told
    assert traces == [], told
    assert run.recorded(run.recovered()) or "no room" in ended.err or fault.all, told


_LAWS = [
    pytest.param(name, fault, at, marks=[] if (fault, at) == (FULL, 5) else pytest.mark.slow)
    for name in _PROGRAMS
    for fault in (FULL, NO_ROOM, BROKEN)
    for at in (5, None)
]


@pytest.mark.parametrize(("name", "fault", "at"), _LAWS, ids=str)
def test_a_run_keeps_what_it_recorded_whatever_fails(
    failing_library: Path, tmp_path: Path, name: str, fault: Fault, at: int | None
) -> None:
    for number in [at] if at else count(1):
        run = _Run(failing_library, tmp_path / str(number), name)
        run.failing.arm(number, fault)
        ended = run.run()
        if not (what := run.failing.reached):
            break
        _holds(run, ended, fault, f"{number}, {what}")
        run.works()
    assert at or number > 10
