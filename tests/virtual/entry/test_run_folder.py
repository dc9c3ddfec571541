"""A run on the virtual GPU is kept as the process ends."""

from __future__ import annotations

import os
import signal

import pytest

from unstall.virtual import run_folder


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
