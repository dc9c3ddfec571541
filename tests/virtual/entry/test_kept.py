"""A run on the virtual GPU is kept as the process ends."""

from __future__ import annotations

import os
import signal

import pytest

from unstall.virtual.process import kept


def test_a_ctrl_c_waits_until_it_is() -> None:
    done: list[str] = []

    def keep() -> None:
        with kept._undisturbed():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("kept")

    with pytest.raises(KeyboardInterrupt):
        keep()
    assert done == ["kept"]
