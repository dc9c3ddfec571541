"""`unstall recover`: what a killed run left in its folder becomes a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from cli.command import Cli
from recording.folders import Folder

from unstall import load
from unstall.cupti.trial import FIRST_STEPS
from unstall.recording.journal import Journal, read

pytest.importorskip("unstall.cupti._cupti", reason="its C extension is not built", exc_type=ImportError)

_ENDED = 2**22 + 1
"""No process has that number: Linux's go up to 2 ** 22."""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go; we are in the folder beside it."""
    place, work = tmp_path / "temporary", tmp_path / "work"
    place.mkdir()
    work.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.chdir(work)
    return place


def _left(temporary: Path, name: str = "unstall-left", *, pid: int = _ENDED) -> Folder:
    """A recording that was cut off within its window, after one kernel in the only step."""
    (temporary / name).mkdir()
    recording = Folder(temporary / name)
    recording.journal.write("armed", at=0, pid=pid, folder="/home/somebody")
    recording.window(1_000)
    recording.marks(2_000, 9_000, 12_000)
    stack = recording.stack(("/home/somebody/train.py", 7, "train"))
    call = recording.call("cuLaunchKernel", 3_000, 4_000, stack=stack)
    recording.kernel("gemm", 5_000, 8_000, call)
    recording.write()
    return recording


def test_no_file_that_is_no_trace_by_its_name_is_replaced(unstall: Cli, temporary: Path) -> None:
    folder = _left(temporary).path
    Path("model.py").write_text("weeks of work")
    assert unstall("recover", folder, "model.py").code == 2
    assert Path("model.py").read_text() == "weeks of work"


def test_the_trace_of_what_was_left_is_read_as_any_other(unstall: Cli, temporary: Path) -> None:
    folder = _left(temporary).path
    outcome = unstall("recover", folder, "train.trace.json.gz")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "unstall: the trace is in train.trace.json.gz\n")
    timeline = load("train.trace.json.gz")
    assert [timeline.strings[name] for name in timeline.device.name] == ["gemm"]
    assert timeline.device.end.tolist()[0] - timeline.device.start.tolist()[0] == 3_000
    assert unstall("explain", "train.trace.json.gz", "--json").code == 0


def test_the_folder_stays_and_gives_the_trace_its_name(unstall: Cli, temporary: Path) -> None:
    folder = _left(temporary).path
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    unstall("recover", folder)
    unstall("recover", folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert sorted(path.name for path in Path().iterdir()) == [
        "unstall-left-2.trace.json.gz",
        "unstall-left.trace.json.gz",
    ]


def test_a_recording_of_an_idle_device_gives_way_to_that_of_the_first_steps(unstall: Cli, temporary: Path) -> None:
    (temporary / "unstall-idle").mkdir()
    recording = Folder(temporary / "unstall-idle")
    recording.journal.write("armed", at=0, pid=_ENDED)
    recording.window(20_000)
    recording.write()
    _left(recording.path, FIRST_STEPS)
    assert unstall("recover", recording.path, "train.json").code == 0
    timeline = load("train.json")
    assert [timeline.strings[name] for name in timeline.device.name] == ["gemm"]
    assert timeline.meta.shortfall == (
        "this is how the program began, since nothing ran on the device later, during the recording"
    )


def test_what_failed_in_a_recording_is_said(unstall: Cli, temporary: Path) -> None:
    recording = _left(temporary)
    recording.journal.write("failed", why="the disk is full")
    assert unstall("recover", recording.path).err.startswith("unstall: the recording is not whole: the disk is full\n")


def test_what_torch_had_recorded_is_lost_with_a_program_that_was_killed_in_its_window(
    unstall: Cli, temporary: Path
) -> None:
    (temporary / "unstall-killed").mkdir()
    recording = Folder(temporary / "unstall-killed")
    recording.journal.write("armed", at=0, pid=_ENDED, folder="/home/somebody")
    recording.window(1_000, recorder="torch")
    assert unstall("recover").out.endswith("  in /home/somebody  nothing was recorded\n")


def test_without_a_folder_those_that_are_left_are_listed(unstall: Cli, temporary: Path) -> None:
    _left(temporary, "unstall-2nd")
    (temporary / "unstall-1st").mkdir()
    Journal(temporary / "unstall-1st").write("armed", pid=_ENDED, folder="/home/me", program="train.py")
    _left(temporary, "unstall-runs", pid=os.getpid())
    (temporary / "unstall-other").mkdir()
    for seconds, name in enumerate(("unstall-1st", "unstall-2nd")):
        os.utime(temporary / name, (seconds, seconds))
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(0))
    outcome = unstall("recover")
    assert outcome.out.splitlines() == [
        f"{temporary}/unstall-1st  {when}  train.py  in /home/me  nothing was recorded",
        f"{temporary}/unstall-2nd  {when}  in /home/somebody",
    ]
    assert outcome.err == (
        "unstall: `unstall recover FOLDER` writes the trace of one, and leaves the folder\n"
        f"unstall: to be rid of those in which nothing was recorded: rm -r {temporary}/unstall-1st\n"
    )


def test_that_nothing_is_left_is_said(unstall: Cli, temporary: Path) -> None:
    outcome = unstall("recover")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", f"unstall: no recording is left in {temporary}\n")


@pytest.mark.parametrize("name", ["nowhere", "empty", "file"])
def test_what_is_no_recording_is_refused(unstall: Cli, temporary: Path, name: str) -> None:
    (temporary / "empty").mkdir()
    (temporary / "file").write_text("")
    outcome = unstall("recover", temporary / name)
    assert outcome.code == 2
    assert outcome.err.endswith("this is no folder that unstall recorded to; `unstall recover` lists those\n")


def test_why_nothing_was_recorded_is_said(unstall: Cli, temporary: Path) -> None:
    journal = Journal(temporary)
    journal.write("armed", pid=_ENDED)
    journal.write("settings", settings={"warmup": 7, "steps": 5, "after_s": None})
    journal.write("over", why="exit", phase="warmup", steps=2)
    outcome = unstall("recover", temporary)
    assert outcome.code == 3
    assert "the program ended after 2 steps, before the 7 of --warmup were over" in outcome.err


def test_a_trace_goes_into_no_folder_that_is_not_there(unstall: Cli, temporary: Path) -> None:
    outcome = unstall("recover", _left(temporary).path, "nowhere/x.json")
    assert outcome.code == 2
    assert "nowhere" in outcome.err


@pytest.mark.slow  # it imports torch
def test_a_killed_run_leaves_what_can_be_recovered(unstall: Cli, temporary: Path) -> None:
    pytest.importorskip("torch")
    Path("train.py").write_text(
        "import time, torch, unstall\n"
        "for _ in range(9_000):\n"
        "    torch.ones(9).add_(1)\n"
        "    time.sleep(0.01)\n"
        "    unstall.step()\n"
    )
    command = [sys.executable, "-m", "unstall", "run", "--recorder", "torch", "--steps", "3", "train.py"]
    process = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(temporary)}, stderr=subprocess.PIPE, text=True)
    with process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith("unstall: recorded 3 steps"):
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    (folder,) = (journal.parent for journal in temporary.glob("*/journal.jsonl"))
    pid = read(folder)[0]["pid"]
    while Path(f"/proc/{pid}").exists():  # it dies with `unstall run`
        time.sleep(0.01)
    assert f"  train.py  in {Path.cwd()}" in unstall("recover").out
    assert unstall("recover", folder, "train.json").code == 0
    timeline = load("train.json")
    assert "aten::add_" in {timeline.strings[name] for name in timeline.host.name}
