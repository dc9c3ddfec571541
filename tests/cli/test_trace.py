"""Where a run's trace goes: names are claimed, nothing is read back by name, and what cannot be written is kept."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.command import Cli
from recording.folders import Folder
from small_disk import fill, small_disk

from unstall.cli._trace import TraceTarget, keep_recording, trace_target
from unstall.errors import UsageError
from unstall.read import load


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk that has 64 KiB, all of them taken."""
    with small_disk(tmp_path / "full") as folder:
        fill(folder)
        yield folder


def _recording(folder: Path, kernel: str = "gemm") -> Folder:
    folder.mkdir()
    recording = Folder(folder)
    recording.journal.write("armed", at=0, pid=1, folder="/home/somebody")
    recording.window(1_000)
    recording.marks(2_000, 9_000, 12_000)
    recording.kernel(kernel, 5_000, 8_000, recording.call("cuLaunchKernel", 3_000, 4_000))
    recording.write()
    return recording


def _kept(folder: Path, target: TraceTarget) -> tuple[Path | None, list[str], bool]:
    kept = keep_recording(folder, target, [], missing=None, quiet=True, read=True)
    timeline = kept.timeline
    assert timeline is not None
    return kept.file, [timeline.strings[name] for name in timeline.device.name], kept.lost


def test_runs_that_end_at_once_have_names_of_their_own(here: Path) -> None:
    target, names = trace_target(None, "train"), list[str]()
    together = threading.Barrier(8)

    def end(number: int) -> None:
        together.wait()
        names.append(target.publish(lambda path: path.write_text(str(number))).name)

    threads = [threading.Thread(target=end, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(names) == sorted(
        ["train.trace.json.gz", *(f"train-{number}.trace.json.gz" for number in range(2, 9))]
    )
    assert sorted(path.read_text() for path in here.iterdir()) == sorted(map(str, range(8)))


def test_a_run_is_explained_by_its_own_data_though_another_took_the_name(here: Path) -> None:
    for name in ("mine", "theirs"):
        _recording(here.parent / name, name)
    target = trace_target("t.json", "")
    their_file, theirs, _ = _kept(here.parent / "theirs", target)

    class Replaced(TraceTarget):
        def publish(self, write: object) -> Path:
            return Path("t.json")  # the other's, as if it had come a moment later

    my_file, mine, _ = _kept(here.parent / "mine", Replaced(Path("t.json")))
    assert (their_file, my_file, theirs, mine) == (Path("t.json"), Path("t.json"), ["theirs"], ["mine"])


def test_a_pipe_gets_the_trace_and_is_not_read_back(here: Path) -> None:
    _recording(here.parent / "recording")
    os.mkfifo("pipe")
    with subprocess.Popen(["cat", "pipe"], stdout=subprocess.PIPE) as reader:
        file, kernels, lost = _kept(here.parent / "recording", trace_target("pipe", ""))
        assert reader.stdout is not None
        Path("through.json").write_bytes(reader.stdout.read())
    assert (file, kernels, lost) == (Path("pipe"), ["gemm"], False)
    assert len(load("through.json").device) == 1


def test_a_trace_thrown_away_is_explained(here: Path) -> None:
    _recording(here.parent / "recording")
    file, kernels, lost = _kept(here.parent / "recording", trace_target(os.devnull, ""))
    assert (file, kernels, lost) == (Path(os.devnull), ["gemm"], False)
    assert not (here.parent / "recording").exists()


def test_a_claimed_name_is_given_back_if_the_trace_cannot_be_written(here: Path) -> None:
    def fail(path: Path) -> None:
        raise UsageError("no room")

    with pytest.raises(UsageError):
        trace_target(None, "train").publish(fail)
    assert list(here.iterdir()) == []


def test_on_a_full_disk_the_run_is_explained_and_its_recording_kept(
    here: Path, full: Path, unstall: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _recording(here.parent / "unstall-kept").path
    file, kernels, lost = _kept(folder, trace_target(str(full / "t.json"), ""))
    assert (kernels, lost) == (["gemm"], True)
    assert sorted(path.name for path in full.iterdir()) == ["rest"]
    assert file is not None
    assert len(load(file).device) == 1
    said = capsys.readouterr().err
    assert said == (
        f"unstall: {full}/t.json: cannot be written: No space left on device. Choose another place for the output\n"
        f"unstall: the recording is kept in {folder}; unstall recover {folder} writes its trace\n"
    )
    assert unstall("recover", folder, "t.json").code == 0
    assert len(load("t.json").device) == 1


def test_a_recording_on_a_full_disk_has_its_trace_where_there_is_room(here: Path, full: Path) -> None:
    (full / "rest").unlink()
    folder = _recording(here.parent / "elsewhere").path
    for path in folder.iterdir():  # as it is after a program has filled the disk
        (full / path.name).write_bytes(path.read_bytes()[:16_384])
    fill(full)
    file, kernels, lost = _kept(full, trace_target(None, "train"))
    assert (file, kernels, lost) == (Path("train.trace.json.gz"), ["gemm"], False)
    assert len(load("train.trace.json.gz").device) == 1


@pytest.mark.slow  # it starts three programs that use torch
def test_three_runs_at_once_leave_three_traces_each_with_its_own_work(here: Path) -> None:
    pytest.importorskip("torch")
    Path("train.py").write_text(
        "import sys, torch\nx = torch.zeros(8, device='cuda')\n"
        "for _ in range(int(sys.argv[1])):\n    x.add_(1)\ntorch.cuda.synchronize()\n"
    )
    counts = (3, 5, 9)
    command = [sys.executable, "-m", "unstall", "run", "--gpu", "h200", "--after", "0", "train.py"]
    runs = [subprocess.Popen([*command, str(count)], stderr=subprocess.PIPE, text=True) for count in counts]
    said = [run.communicate()[1] for run in runs]
    names = [text.partition("the trace is in ")[2].split()[0] for text in said]
    assert sorted(names) == ["train-2.trace.json.gz", "train-3.trace.json.gz", "train.trace.json.gz"]
    added = [(load(name).device.name.size - load(names[0]).device.name.size) for name in names]
    assert added == [count - counts[0] for count in counts]
