"""`--stop` on a virtual GPU: after which step a program is ended, and what is said of it."""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from unstall.cli import parse
from unstall.cli._virtual_part import ask_to_stop, tell_of_stop
from unstall.virtual.stopping import stop_if_asked

pytest.importorskip("torch")  # whose steps are watched from here on


class Machine:
    """A virtual machine whose clock is the test's."""

    def __init__(self) -> None:
        self.on_step: Callable[[str, int], None] = lambda kind, who: None
        self.time_ns = 0

    def now_ns(self) -> int:
        return self.time_ns


@pytest.fixture
def machine() -> Iterator[Machine]:
    machine = Machine()
    yield machine
    stop: Any = machine.on_step.__self__  # type: ignore[attr-defined]
    atexit.unregister(stop._tell)
    stop._hooks.remove()


@pytest.mark.parametrize(
    ("options", "kind", "steps", "said"),
    [
        ("--steps 2", "optimizer", 20, "ended the program after 6 steps"),
        ("--warmup 0 --steps 1", "explicit", 20, "ended the program after 2 steps"),
        ("--after 0.002 --for 0.003", "explicit", 20, "ended the program after 5 steps"),
        ("--after 0.002 --steps 4", "explicit", 20, "ended the program after 6 steps"),
        (
            "--steps 100",
            "explicit",
            20,
            "did not end the program: it ended after 20 steps, before the 3 for warm-up and the 100 to record were "
            "over: give fewer --steps",
        ),
        (
            "--for 1",
            "explicit",
            20,
            "did not end the program: it ended after 20 steps, before the seconds asked for were over",
        ),
        (
            "",
            "explicit",
            0,
            "did not end the program: unstall saw none of its steps: call unstall.step() at the end of each",
        ),
    ],
)
def test_a_program_of_steps_of_1_ms_ends_after_what_was_asked_for(
    machine: Machine,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: str,
    kind: str,
    steps: int,
    said: str,
) -> None:
    args = parse(["run", "--gpu", "h200", "--stop", *options.split(), "train.py"])
    ask_to_stop(tmp_path, args)
    stop_if_asked(machine, tmp_path)
    with contextlib.suppress(SystemExit):
        for _ in range(steps):
            machine.time_ns += 1_000_000
            machine.on_step(kind, 1)
    machine.on_step.__self__._tell()  # type: ignore[attr-defined]  # as at exit
    tell_of_stop(tmp_path, args)
    assert capsys.readouterr().err == f"unstall: --stop {said}\n"
