"""The line clock beside the program: nothing of it stays behind, and nothing that goes wrong is the program's."""

from __future__ import annotations

import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from recording.clocked import ENGINES, LOOP, MODES, line_clock
from recording.programs.invented import FILE, compiled

from unstall.errors import UnstallError
from unstall.lines import clock as lines
from unstall.lines.clock import LineClock, Mode

pytestmark = pytest.mark.skipif(sys.gettrace() is not None, reason="a debugger or coverage traces the tests")


@pytest.mark.parametrize("mode", MODES)
def test_after_its_end_nothing_is_called_any_more(mode: Mode, tmp_path: Path) -> None:
    def trace_of_threads(*_: object) -> None:
        return None

    threading.settrace(trace_of_threads)
    try:
        clock = line_clock(tmp_path, mode)

        def around(run: Callable[[], Any]) -> None:
            clock.start()
            run()
            clock.stop()

        compiled(LOOP).run(lambda: None, around)
        assert threading.gettrace() is trace_of_threads
    finally:
        threading.settrace(None)
    assert sys.gettrace() is None
    if sys.version_info >= (3, 12):
        assert [sys.monitoring.get_tool(tool) for tool in range(6)] == [None] * 6


@pytest.mark.parametrize("in_c", ENGINES)
def test_a_thread_that_began_meanwhile_is_traced_no_more(in_c: bool, tmp_path: Path) -> None:
    clock, over = line_clock(tmp_path, "settrace", in_c=in_c), threading.Event()
    tracers: list[object] = []

    def work() -> None:
        tracers.append(sys.gettrace())
        over.wait()
        compiled(LOOP).run(lambda: None)
        tracers.append(sys.gettrace())

    thread = threading.Thread(target=work)
    clock.start()
    thread.start()
    while not tracers:
        time.sleep(0.001)
    clock.stop()
    over.set()
    thread.join()
    assert tracers[0] is not None
    assert tracers[1] is None


@pytest.mark.parametrize("in_c", ENGINES)
def test_a_debugger_that_began_meanwhile_goes_on(in_c: bool, tmp_path: Path) -> None:
    def debugger(*_: object) -> None:
        return None

    clock = line_clock(tmp_path, "settrace", in_c=in_c)
    clock.start()
    try:
        sys.settrace(debugger)
        threading.settrace(debugger)
        clock.stop()
        assert sys.gettrace() is debugger
        assert threading.gettrace() is debugger
    finally:
        sys.settrace(None)
        threading.settrace(None)


def test_the_tracer_of_a_debugger_is_left_alone(tmp_path: Path) -> None:
    def debugger(*_: object) -> None:
        return None

    for number in range(2):  # twice: the first refusal leaves nothing running
        (tmp_path / str(number)).mkdir()
        sys.settrace(debugger)
        try:
            with pytest.raises(UnstallError, match=r"something else traces this program .*: a debugger, or coverage$"):
                line_clock(tmp_path / str(number), "settrace").start()
            assert sys.gettrace() is debugger
        finally:
            sys.settrace(None)


@pytest.mark.parametrize("in_c", ENGINES)
@pytest.mark.parametrize("mode", MODES)
def test_a_disk_that_fills_up_ends_the_clock_and_not_the_program(mode: Mode, in_c: bool, tmp_path: Path) -> None:
    clock, limits = line_clock(tmp_path, mode, in_c=in_c), resource.getrlimit(resource.RLIMIT_FSIZE)
    ran: list[int] = []

    def around(run: Callable[[], Any]) -> None:
        clock.start()
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        try:
            run()
            clock.stop()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    compiled("def f0(level):\n    probe()\n    probe()\n").run(lambda: ran.append(1), around)
    assert ran == [1, 1]
    assert "ended_by" in clock.facts()


@pytest.mark.parametrize("in_c", ENGINES)
@pytest.mark.parametrize("mode", MODES)
def test_a_clock_that_is_stopped_while_it_asks_is_silent(
    mode: Mode, in_c: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wants(file: str) -> bool:
        if file == FILE:
            clock.stop()
        return file == FILE

    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    clock, ran = LineClock(tmp_path, mode, wants, in_c=in_c), list[int]()
    clock.start()
    compiled("def f0(level):\n    probe()\n    probe()\n").run(lambda: ran.append(1))
    assert (ran, told) == ([1, 1], [])


def test_what_interrupts_the_start_of_a_clock_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(frame: FrameType, event: str, arg: object) -> None:
        if frame.f_code.co_name in {"_monitor", "_trace"}:
            sys.setprofile(None)
            raise KeyboardInterrupt

    clock = line_clock(tmp_path, lines.available())
    sys.setprofile(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            clock.start()
    finally:
        sys.setprofile(None)
    if sys.version_info >= (3, 12):
        assert [sys.monitoring.get_tool(tool) for tool in range(6)] == [None] * 6
    again = line_clock(tmp_path, lines.available())
    again.start()
    again.stop()


@pytest.mark.parametrize("in_c", ENGINES)
@pytest.mark.parametrize("mode", MODES)
def test_ctrl_c_that_comes_while_the_clock_asks_is_the_programs(mode: Mode, in_c: bool, tmp_path: Path) -> None:
    def wants(file: str) -> bool:
        if file == FILE:
            signal.raise_signal(signal.SIGINT)
        return False

    program = compiled(LOOP)
    clock = LineClock(tmp_path, mode, wants, in_c=in_c)
    clock.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            program.run(lambda: None)
    finally:
        clock.stop()


def test_a_disk_without_room_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"lines\.bin"):
        line_clock(tmp_path / "gone", lines.available()).start()
    assert sys.gettrace() is None
    clock = line_clock(tmp_path, lines.available())
    clock.start()
    clock.stop()
