"""A run on the virtual GPU is kept as the process ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from small_disk import fill, small_disk
from traces import TraceBuilder

from unstall.cli._virtual_run import read_run, spare_memory
from unstall.errors import TraceError
from unstall.launching.launch import Exit
from unstall.timeline.columns import Timeline
from unstall.virtual import run_folder
from unstall.virtual.machine import WatchedSpan
from unstall.virtual.run_place import RunPlace


def test_a_ctrl_c_meanwhile_is_let_go_by_and_a_second_one_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    done: list[str] = []

    def keep(interrupts: int) -> None:
        with run_folder._undisturbed():
            for _ in range(interrupts):
                os.kill(os.getpid(), signal.SIGINT)
            done.append("kept")

    keep(1)
    with pytest.raises(KeyboardInterrupt):
        keep(2)
    assert done == ["kept"]
    assert capsys.readouterr().err.count("Ctrl-C once more gives it up") == 2
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_where_a_ctrl_c_is_ignored_it_still_is(capsys: pytest.CaptureFixture[str]) -> None:
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with run_folder._undisturbed():
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
    finally:
        assert signal.signal(signal.SIGINT, usual) is signal.SIG_IGN
    assert capsys.readouterr().err == ""


class _Watched:
    """A span that was watched, with one kernel in it."""

    def __init__(self) -> None:
        self.machine = SimpleNamespace(
            simulator=object(), unwatch=lambda _watch: None, keep_at_termination=lambda _keep: None
        )

    def timeline(self) -> Timeline:
        trace = TraceBuilder()
        trace.launch("gemm", 5)
        return trace.timeline()


def _end(place: RunPlace) -> None:
    run_folder.RunFolder(cast("WatchedSpan", _Watched()), place).write()


def test_a_run_that_does_not_fit_on_the_disk_is_kept_in_memory(tmp_path: Path) -> None:
    with small_disk(tmp_path / "full") as full, spare_memory() as spare:
        fill(full)
        place = RunPlace(str(full), spare)
        _end(place)
        assert [path.name for path in full.iterdir()] == ["rest"]
        timeline = read_run(place, Exit(0))
        assert timeline is not None
        assert [timeline.strings[name] for name in timeline.device.name] == ["gemm"]


def test_a_run_that_fits_nowhere_is_lost_and_that_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with small_disk(tmp_path / "full") as full:
        fill(full)
        _end(RunPlace(str(full)))
    assert "the run cannot be kept: " in capsys.readouterr().err
    place = RunPlace(str(tmp_path / "full"))
    _end(RunPlace(str(tmp_path / "full"), "/nowhere/at/all"))  # there is room again
    assert read_run(place, Exit(0)) is not None
    place.timeline.unlink()
    place.failed.write_text("no room")
    with pytest.raises(TraceError, match="nothing is known of the run: no room"):
        read_run(place, Exit(0))
