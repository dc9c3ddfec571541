"""Commands that write, what they write, and how to tell whether it is whole."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from faults.commands import Place, files
from faults.failing import Fault
from fleets.jobs import job, train_ddp
from recording.folders import Folder
from traces import TraceBuilder

from unstall.recording.settings import FOLDER_PREFIX

_GPU = Path(__file__).parents[2] / "src" / "unstall" / "virtual" / "gpus" / "t4.json"
_ENDED = 2**22 + 1
_LEFT = f"{FOLDER_PREFIX}left"
_UNSTALL = "import sys\nfrom unstall.cli import main\nsys.exit(main(sys.argv[1:]))\n"
IMPORTS = """
import numpy, unstall.cli, unstall.cli.explain, unstall.cli.fleet, unstall.cli.recover, unstall.document.html
import unstall.answers.explain, unstall.answers.fleet, unstall.fleets.summarise, unstall.recording.trace.write
import unstall.measuring.baseline, unstall.virtual.costs.gpu_file, unstall.virtual.shim.build
"""
_CALIBRATE = f"""
import pathlib, sys, types
from unstall.virtual import costs
from unstall.virtual.costs import gpu_file
measured = gpu_file.decode(pathlib.Path({str(_GPU)!r}).read_bytes(), "t4")
costs.calibrate = types.SimpleNamespace(
    available=lambda: True, calibrate=lambda *_: print("measured", file=sys.stderr) or measured
)
{_UNSTALL}"""
_BASELINE = """
import numpy, sys
from unstall.errors import UnstallError
from unstall.measuring.baseline import entry, save
from unstall.measuring.statistics import Spread
times = entry(Spread.of(numpy.linspace(100, 200, 50)), by="wall", cache="hot", device="A CPU")
try:
    save(sys.argv[1], {"a": times})
except UnstallError as error:
    sys.exit(f"{error}") if error.exit_code == 1 else (print(error, file=sys.stderr), sys.exit(error.exit_code))
"""
_COMPILE = """
import pathlib, sys
from unstall.errors import UnstallError
from unstall.virtual.shim import build as building
from unstall.virtual.shim.installed import Torch
here = pathlib.Path.cwd()
building.SHIM, building.FRAMES, building.PREBUILT = here / "shim", here / "frames", here / "prebuilt"
try:
    made = building.build(Torch(here, "2.13.0+cpu"))
except UnstallError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
assert building.is_sealed(made)
print(made.relative_to(here))
"""


@dataclass(frozen=True)
class Case:
    """A command, and what it writes.

    Attributes:
        program: The program, in Python.
        args: Its arguments.
        outputs: The files that it writes, in its folder.
        prepare: Makes what it reads.
        old: What is in the output before, if anything is.
        refused: Its exit code if it cannot do what was asked.
    """

    program: str
    args: tuple[str, ...]
    outputs: tuple[str, ...]
    prepare: Callable[[Path], object]
    old: bytes | None = b"old"
    refused: int = 2

    def reasons(self, fault: Fault) -> list[str]:
        """Sentences that may say why it cannot do what was asked."""
        compiled = ["compiling the virtual GPU failed"] if self.program is _COMPILE else []
        return [os.strerror(getattr(errno, fault.error)), *compiled]


def _a_trace(folder: Path) -> None:
    trace = TraceBuilder()
    for _ in range(3):
        with trace.step(), trace.frame("train.py", 12, "step"):
            trace.launch("kernel", 5)
            trace.item()
    trace.write(folder / "trace.json")


def _a_recording(folder: Path) -> None:
    left = folder / _LEFT
    left.mkdir(mode=0o700)
    recording = Folder(left)
    recording.journal.write("armed", at=0, pid=_ENDED, folder="/home/somebody")
    recording.window(1_000)
    recording.marks(2_000, 9_000, 12_000)
    call = recording.call("cuLaunchKernel", 3_000, 4_000, stack=recording.stack(("train.py", 7, "train")))
    recording.kernel("gemm", 5_000, 8_000, call)
    recording.write()


def _a_job(folder: Path) -> None:
    job(partial(train_ddp, slow=1, cause="item"), folder, ranks=2)


def _sources(folder: Path) -> None:
    for name in ("shim", "frames"):
        (folder / name).mkdir()
    (folder / "shim" / "one.cpp").write_text("int one() { return 1; }\n")
    (folder / "frames" / "_frames.c").write_text("int frames;\n")
    (folder / "frames" / "_frames.h").touch()


CASES = {
    "explain": Case(_UNSTALL, ("explain", "trace.json", "-q", "-o", "out.html"), ("out.html",), _a_trace),
    "explain anew": Case(_UNSTALL, ("explain", "trace.json", "-q", "-o", "out.json"), ("out.json",), _a_trace, None),
    "recover": Case(_UNSTALL, ("recover", _LEFT, "out.json.gz"), ("out.json.gz",), _a_recording),
    "recover anew": Case(_UNSTALL, ("recover", _LEFT), (f"{_LEFT}.trace.json.gz",), _a_recording, None),
    "fleet": Case(_UNSTALL, ("fleet", "rank*.json", "-q", "-o", "out.json"), ("out.json",), _a_job),
    "baseline": Case(_BASELINE, ("out.json",), ("out.json",), lambda folder: None, None),
    "calibrate": Case(_CALIBRATE, ("calibrate", "-q", "-o", "out.json"), ("out.json",), lambda folder: None),
    "compile": Case(_COMPILE, (), (), _sources, refused=1),
}  # fmt: skip


def fresh(place: Place, case: Case) -> dict[str, bytes]:
    """Makes the folder as it is before the command, and returns its files."""
    shutil.rmtree(place.below)
    for folder in (place.below, place.temporary, place.cache):
        folder.mkdir()
    case.prepare(place.below)
    for output in case.outputs:
        if case.old is not None:
            (place.below / output).write_bytes(case.old)
    return files(place.below)


def written(place: Place, case: Case) -> dict[str, bytes | None]:
    """What is in each output; None if there is no such file."""
    there = files(place.below)
    return {output: _unpacked(there.get(output)) for output in case.outputs}


def _unpacked(data: bytes | None) -> bytes | None:
    """What was packed, if it is whole: files of gzip have the time in them."""
    try:
        return gzip.decompress(data) if data and data[:2] == b"\x1f\x8b" else data
    except (EOFError, OSError):
        return data
