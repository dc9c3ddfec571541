"""`unstall recover`: what a killed run left in its folder becomes a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.command import Cli
from recording.folders import Folder
from traces import TraceBuilder

from unstall import load
from unstall.cupti.trial import FIRST_STEPS
from unstall.recording.journal import Journal, read
from unstall.recording.left import is_running
from unstall.virtual.run_place import RunPlace

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
    assert unstall("recover", recording.path).err.startswith("unstall: the recording is incomplete: the disk is full\n")


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


def _virtual(temporary: Path, name: str = "unstall-virtual", *, whole: bool = True) -> Path:
    """The folder of a run on the virtual GPU whose `unstall run` was killed."""
    folder = temporary / name
    folder.mkdir(mode=0o700)
    options = {"virtual": {"gpu": "h200", "devices": 1}}
    Journal(folder).write("virtual", pid=_ENDED, folder="/home/me", program="train.py", metadata=options)
    if whole:
        trace = TraceBuilder()
        trace.launch("gemm", 5)
        trace.timeline().save(RunPlace(str(folder)).timeline)
    return folder


def test_a_run_on_the_virtual_gpu_is_listed_and_recovered(unstall: Cli, temporary: Path) -> None:
    folder = _virtual(temporary)
    empty = _virtual(temporary, "unstall-early", whole=False)
    listed = {line.split()[0]: line for line in unstall("recover").out.splitlines()}
    assert listed[str(folder)].endswith("  train.py  in /home/me")
    assert listed[str(empty)].endswith("  train.py  in /home/me  nothing was recorded")
    assert unstall("recover", folder, "train.json").code == 0
    assert [load("train.json").strings[name] for name in load("train.json").device.name] == ["gemm"]
    refused = unstall("recover", empty, "train.json")
    assert (refused.code, refused.err) == (
        3,
        f"unstall: {empty}: nothing was recorded: the program was killed before its run could be kept\n",
    )


_NESTED = "[" * 100_000


def _sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "journal.jsonl")


def _link(folder: Path) -> None:
    (folder / "journal.jsonl").symlink_to("/dev/zero")


def _folder_as_journal(folder: Path) -> None:
    (folder / "journal.jsonl").mkdir()


def _huge_journal(folder: Path) -> None:
    _sparse(folder / "journal.jsonl", 3 << 30)


def _huge_file(folder: Path) -> None:
    Journal(folder).write("armed", pid=_ENDED)
    _sparse(folder / "calls.bin", 20 << 30)


def _pipe_within(folder: Path) -> None:
    Journal(folder).write("armed", pid=_ENDED)
    (folder / FIRST_STEPS).mkdir()
    os.mkfifo(folder / FIRST_STEPS / "calls.bin")


def _open_to_others(folder: Path) -> None:
    Journal(folder).write("armed", pid=_ENDED)
    folder.chmod(0o777)


def _many_files(folder: Path) -> None:
    Journal(folder).write("armed", pid=_ENDED)
    for number in range(1_000):
        (folder / str(number)).touch()


_IRREGULAR = "journal.jsonl in it is no regular file"
_BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "a pipe": (_pipe, _IRREGULAR),
    "a device behind a link": (_link, _IRREGULAR),
    "a folder as journal": (_folder_as_journal, _IRREGULAR),
    "a huge journal": (_huge_journal, "journal.jsonl in it has 3,221,225,472 bytes, more than 67,108,864"),
    "a huge file": (_huge_file, "calls.bin in it has 21,474,836,480 bytes, more than 1,073,741,824"),
    "a pipe within": (_pipe_within, f"{FIRST_STEPS}/calls.bin in it is no regular file"),
    "others may write": (_open_to_others, "other users may write to it"),
    "too many files": (_many_files, "it has more than 1,000 files"),
}


@pytest.mark.parametrize("make", _BAD)
def test_a_folder_that_must_not_be_read_is_named_and_hides_no_other(unstall: Cli, temporary: Path, make: str) -> None:
    bad, why = temporary / "unstall-a", _BAD[make][1]
    bad.mkdir(mode=0o700)
    _BAD[make][0](bad)
    good = _left(temporary, "unstall-b").path
    outcome = unstall("recover")
    assert outcome.code == 0
    assert [line.split()[0] for line in outcome.out.splitlines()] == [str(good)]
    assert outcome.err.splitlines()[0] == f"unstall: {bad} is left out: {why}"
    refused = unstall("recover", bad)
    assert (refused.code, refused.err) == (2, f"unstall: {bad}: {why}; so the folder is not read\n")


@pytest.mark.parametrize(
    "journal",
    [
        _NESTED,
        '{"event": "settings"}\n{"event": "window", "recorder": "cupti"}\n{"event": "mark"}\n',
        '{"event": "armed", "pid": [], "folder": {}, "program": 7}\n{"event": "window", "at": "soon"}\n',
        '{"event": "settings", "settings": [1]}\n{"event": "over", "steps": {}}\n',
        '{"event": "virtual", "pid": "", "metadata": 7}\n',
    ],
)
def test_a_damaged_journal_ends_in_a_sentence(unstall: Cli, temporary: Path, journal: str) -> None:
    bad = _left(temporary, "unstall-a").path
    (bad / "journal.jsonl").write_text(journal)
    good = _left(temporary, "unstall-b").path
    listed = unstall("recover")
    assert listed.code == 0
    assert str(good) in listed.out
    outcome = unstall("recover", bad)
    assert outcome.code in (2, 3)
    assert outcome.err.startswith(f"unstall: {bad}: ")
    assert len(outcome.err.splitlines()) == 1
    assert list(Path().iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_folders_of_other_users_are_not_looked_into(unstall: Cli, temporary: Path) -> None:
    theirs = _left(temporary).path
    os.chown(theirs, 4711, -1)
    assert unstall("recover").err == f"unstall: no recording is left in {temporary}\n"
    assert f"{theirs}: it belongs to user 4711" in unstall("recover", theirs).err
    os.chown(theirs, os.geteuid(), -1)
    os.chown(theirs / "journal.jsonl", 4711, -1)
    assert "journal.jsonl in it belongs to user 4711" in unstall("recover").err


def test_a_process_that_was_not_waited_for_does_not_run() -> None:
    process = subprocess.Popen(["true"])
    try:
        while Path(f"/proc/{process.pid}/stat").read_text().split()[2] != "Z":
            time.sleep(0.01)
        assert not is_running(process.pid, time.time())
    finally:
        process.wait()


def test_a_process_that_began_after_the_recording_is_another_one() -> None:
    assert is_running(os.getpid(), time.time())
    assert is_running(os.getpid(), None)
    assert not is_running(os.getpid(), time.time() - 10 * 365 * 86_400)
    assert not is_running(_ENDED, time.time())
    assert not is_running({"pid": 1}, time.time())


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
