"""The line clock: where each thread is at any time, and that nothing of it stays behind."""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record.programs import invented
from record.programs.invented import FILE, PROGRAMS, compiled, stack_here

from unstall.errors import UnstallError
from unstall.record import lines
from unstall.record.line_twin import ENTRY, HEADER, HEADER_BYTES, NOWHERE
from unstall.record.lines import LineClock, Mode

_MODES = ("settrace", "monitoring") if sys.version_info >= (3, 12) else ("settrace",)
_ENGINES = (True, False) if find_spec("unstall.record._lines") is not None else (False,)

pytestmark = pytest.mark.skipif(sys.gettrace() is not None, reason="a debugger or coverage traces the tests")

Where = tuple[int, str, int]
"""Line, function, depth; line -1 and no function where a thread is in none of the user's frames."""


@dataclass(frozen=True)
class Ring:
    """What a clock wrote."""

    written: int
    entries: list[tuple[int, Where]]  # thread's system id, and where it then was
    times: list[int]


def _read(folder: Path) -> Ring:
    data = (folder / lines.FILE).read_bytes()
    _, capacity, written = HEADER.unpack_from(data)
    ring = list(ENTRY.iter_unpack(data[HEADER_BYTES : HEADER_BYTES + min(written, capacity) * ENTRY.size]))
    first = written % capacity if written > capacity else 0
    places: dict[int, tuple[int, str]] = {NOWHERE: (-1, "")}
    threads: dict[int, int] = {}
    for text in (folder / lines.PLACES).read_text().splitlines():
        match json.loads(text):
            case {"place": number, "line": line, "function": function, "file": file}:
                assert file == FILE
                places[number] = (line, function)
            case {"thread": number, "id": native_id}:
                threads[number] = native_id
    rows = [(threads[thread], (*places[place], depth)) for _, place, thread, depth in ring[first:] + ring[:first]]
    return Ring(written, rows, [time for time, *_ in ring[first:] + ring[:first]])


@contextmanager
def _without_collector() -> Iterator[None]:
    """When cycles are collected, generators in them are closed: at another time with another engine."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _clock(folder: Path, mode: Mode, *, capacity: int = 1 << 16, in_c: bool = True) -> LineClock:
    return LineClock(folder, mode, lambda file: file == FILE, capacity=capacity, in_c=in_c)


def _clocked(
    program: invented.Invented,
    mode: Mode,
    in_c: bool,
    begin_at: int = 0,
    capacity: int = 1 << 16,
    seen: Callable[[Path], Any] = lambda folder: None,
) -> Ring:
    """The program, clocked from this probe of its first thread on; `seen` is called at each later probe."""
    with TemporaryDirectory() as name, _without_collector():
        folder = Path(name)
        clock = _clock(folder, mode, capacity=capacity, in_c=in_c)
        probes, started = 0, False

        def probe() -> None:
            nonlocal probes, started
            probes += 1
            if started:
                seen(folder)
            elif probes > begin_at and threading.current_thread() is threading.main_thread():
                started = True
                clock.start()

        def around(run: Callable[[], Any]) -> None:
            nonlocal started
            if begin_at == 0:
                started = True
                clock.start()
            try:
                run()
            finally:
                if started:
                    clock.stop()

        program.run(probe, around)
        return _read(folder) if started else Ring(0, [], [])


@pytest.mark.parametrize("in_c", _ENGINES)
@pytest.mark.parametrize("mode", _MODES)
@settings(max_examples=25)
@given(text=PROGRAMS, begin_at=st.integers(0, 3))
def test_at_any_moment_the_clock_is_where_the_innermost_frame_is(
    mode: Mode, in_c: bool, text: str, begin_at: int
) -> None:
    moments: list[tuple[int, int, Where]] = []

    def see(folder: Path) -> None:
        with (folder / lines.FILE).open("rb") as file:
            _, _, written = HEADER.unpack(file.read(HEADER.size))
        stack = stack_here()
        code, line = stack[0]
        moments.append((written, threading.get_native_id(), (line, code.co_name, len(stack))))

    ring = _clocked(compiled(text), mode, in_c, begin_at, seen=see)
    for written, thread, where in moments:
        assert [at for native_id, at in ring.entries[:written] if native_id == thread][-1] == where


_RETURNS = """\
def f0(level):
    probe()
    inner(
        level
    )
    probe()

def inner(level):
    list(generated())

def generated():
    yield 1
"""


@pytest.mark.parametrize("in_c", _ENGINES)
@pytest.mark.parametrize("mode", _MODES)
def test_after_a_call_has_returned_its_caller_is_on_its_line_again(mode: Mode, in_c: bool) -> None:
    ring = _clocked(compiled(_RETURNS), mode, in_c)
    wheres = [where for _, where in ring.entries]
    assert [where for row, where in enumerate(wheres) if not row or where != wheres[row - 1]] == [
        (1, "f0", 1),
        (2, "f0", 1),
        (3, "f0", 1),
        (4, "f0", 1),
        (3, "f0", 1),
        (8, "inner", 2),
        (9, "inner", 2),
        (11, "generated", 3),
        (12, "generated", 3),
        (9, "inner", 2),
        (12, "generated", 3),
        (9, "inner", 2),
        (3, "f0", 1),
        (6, "f0", 1),
        (-1, "", 0),
    ]
    assert ring.times == sorted(ring.times)


_LOOP = """\
def f0(level):
    for each in range(50):
        once(each)

def once(each):
    return each
"""


@pytest.mark.parametrize("in_c", _ENGINES)
@pytest.mark.parametrize("mode", _MODES)
def test_a_full_ring_keeps_the_last_entries(mode: Mode, in_c: bool) -> None:
    program = compiled(_LOOP)
    whole, last = _clocked(program, mode, in_c), _clocked(program, mode, in_c, capacity=64)
    assert whole.written == last.written > 200
    assert len(last.entries) == 64
    assert last.entries == whole.entries[-64:]
    assert last.times == sorted(last.times)


def test_how_much_of_the_ring_was_overwritten_can_be_told(tmp_path: Path) -> None:
    clock = _clock(tmp_path, lines.available(), capacity=16)

    def around(run: Callable[[], Any]) -> None:
        clock.start()
        run()
        clock.stop()

    compiled(_LOOP).run(lambda: None, around)
    facts = clock.facts()
    assert facts["capacity"] == 16
    assert isinstance(facts["entries"], int)
    assert facts["entries"] > 200


@pytest.mark.parametrize("in_c", _ENGINES)
@pytest.mark.parametrize("mode", _MODES)
def test_threads_are_told_apart_and_named(mode: Mode, in_c: bool, tmp_path: Path) -> None:
    clock = _clock(tmp_path, mode, in_c=in_c)
    program = compiled("def f0(level):\n    threaded(other)\n    probe()\n\ndef other():\n    probe()\n")
    seen: list[tuple[int, str]] = []

    def around(run: Callable[[], Any]) -> None:
        clock.start()
        run()
        clock.stop()

    program.run(lambda: seen.append((threading.get_native_id(), threading.current_thread().name)), around)
    (other, other_name), (main, main_name) = seen
    ring = _read(tmp_path)
    assert [where for thread, where in ring.entries if thread == other][-2:] == [(6, "other", 1), (-1, "", 0)]
    assert (3, "f0", 1) in [where for thread, where in ring.entries if thread == main]
    told = [json.loads(line) for line in (tmp_path / lines.PLACES).read_text().splitlines()]
    named = {each["id"]: each["name"] for each in told if "thread" in each}
    assert (named[main], named[other]) == (main_name, other_name)


@pytest.mark.parametrize("mode", _MODES)
def test_after_its_end_nothing_is_called_any_more(mode: Mode, tmp_path: Path) -> None:
    def trace_of_threads(*_: object) -> None:
        return None

    threading.settrace(trace_of_threads)
    try:
        clock = _clock(tmp_path, mode)

        def around(run: Callable[[], Any]) -> None:
            clock.start()
            run()
            clock.stop()

        compiled(_LOOP).run(lambda: None, around)
        assert threading.gettrace() is trace_of_threads
    finally:
        threading.settrace(None)
    assert sys.gettrace() is None
    if sys.version_info >= (3, 12):
        assert [sys.monitoring.get_tool(tool) for tool in range(6)] == [None] * 6


@pytest.mark.parametrize("in_c", _ENGINES)
@pytest.mark.parametrize("mode", _MODES)
def test_of_equal_functions_of_two_files_only_the_users_is_clocked(mode: Mode, in_c: bool, tmp_path: Path) -> None:
    spaces: list[dict[str, Any]] = [{}, {}]
    for space, file in zip(spaces, ("another", FILE), strict=True):
        exec(compile("def f():\n    return 1\n", file, "exec"), space)
    clock = _clock(tmp_path, mode, in_c=in_c)
    clock.start()
    for space in spaces:
        space["f"]()
    clock.stop()
    assert [where for _, where in _read(tmp_path).entries] == [(1, "f", 1), (2, "f", 1), (-1, "", 0)]


@pytest.mark.parametrize("in_c", _ENGINES)
def test_a_thread_that_began_meanwhile_is_traced_no_more(in_c: bool, tmp_path: Path) -> None:
    clock, over = _clock(tmp_path, "settrace", in_c=in_c), threading.Event()
    tracers: list[object] = []

    def work() -> None:
        tracers.append(sys.gettrace())
        over.wait()
        compiled(_LOOP).run(lambda: None)
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


@pytest.mark.parametrize("in_c", _ENGINES)
def test_a_debugger_that_began_meanwhile_goes_on(in_c: bool, tmp_path: Path) -> None:
    def debugger(*_: object) -> None:
        return None

    clock = _clock(tmp_path, "settrace", in_c=in_c)
    clock.start()
    try:
        sys.settrace(debugger)
        threading.settrace(debugger)
        clock.stop()
        assert sys.gettrace() is debugger
        assert threading.gettrace() is debugger
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is there from Python 3.12 on")
def test_lines_are_clocked_though_an_earlier_tool_was_told_to_leave_their_code_alone(tmp_path: Path) -> None:
    program = compiled(_LOOP)
    entries = []
    for number, wanted in enumerate(("", FILE)):
        folder = tmp_path / str(number)
        folder.mkdir()
        clock = LineClock(folder, "monitoring", lambda file, wanted=wanted: file == wanted)  # type: ignore[misc]

        def around(run: Callable[[], Any], clock: LineClock = clock) -> None:
            clock.start()
            run()
            clock.stop()

        program.run(lambda: None, around)
        entries.append(clock.facts()["entries"])
    assert entries[0] == 0
    assert isinstance(entries[1], int)
    assert entries[1] > 200


def test_the_tracer_of_a_debugger_is_left_alone(tmp_path: Path) -> None:
    def debugger(*_: object) -> None:
        return None

    for number in range(2):  # twice: the first refusal leaves nothing running
        (tmp_path / str(number)).mkdir()
        sys.settrace(debugger)
        try:
            with pytest.raises(UnstallError, match=r"something else traces this program .*: a debugger, or coverage$"):
                _clock(tmp_path / str(number), "settrace").start()
            assert sys.gettrace() is debugger
        finally:
            sys.settrace(None)


@pytest.mark.parametrize("in_c", _ENGINES)
@pytest.mark.parametrize("mode", _MODES)
def test_a_disk_that_fills_up_ends_the_clock_and_not_the_program(mode: Mode, in_c: bool, tmp_path: Path) -> None:
    clock, limits = _clock(tmp_path, mode, in_c=in_c), resource.getrlimit(resource.RLIMIT_FSIZE)
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


@pytest.mark.parametrize("in_c", _ENGINES)
@pytest.mark.parametrize("mode", _MODES)
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

    clock = _clock(tmp_path, lines.available())
    sys.setprofile(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            clock.start()
    finally:
        sys.setprofile(None)
    if sys.version_info >= (3, 12):
        assert [sys.monitoring.get_tool(tool) for tool in range(6)] == [None] * 6
    (tmp_path / lines.FILE).unlink()
    again = _clock(tmp_path, lines.available())
    again.start()
    again.stop()


@pytest.mark.parametrize("in_c", _ENGINES)
@pytest.mark.parametrize("mode", _MODES)
def test_ctrl_c_that_comes_while_the_clock_asks_is_the_programs(mode: Mode, in_c: bool, tmp_path: Path) -> None:
    def wants(file: str) -> bool:
        if file == FILE:
            signal.raise_signal(signal.SIGINT)
        return False

    program = compiled(_LOOP)
    clock = LineClock(tmp_path, mode, wants, in_c=in_c)
    clock.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            program.run(lambda: None)
    finally:
        clock.stop()


def test_a_disk_without_room_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"lines\.bin"):
        _clock(tmp_path / "gone", lines.available()).start()
    assert sys.gettrace() is None
    clock = _clock(tmp_path, lines.available())
    clock.start()
    clock.stop()


_KILLED = """\
import os, pathlib, signal, sys
from unstall.record.lines import LineClock, available

clock = LineClock(pathlib.Path(sys.argv[1]), available(), lambda file: file == {file!r}, in_c={in_c})
space = {{"kill": lambda: os.kill(os.getpid(), signal.SIGKILL)}}
exec(compile("def f0():\\n    once()\\n    kill()\\n\\ndef once():\\n    pass\\n", {file!r}, "exec"), space)
clock.start()
space["f0"]()
"""


@pytest.mark.parametrize("in_c", _ENGINES)
def test_a_killed_process_leaves_where_it_was(in_c: bool, tmp_path: Path) -> None:
    text = _KILLED.format(file=FILE, in_c=in_c)
    process = subprocess.run([sys.executable, "-c", text, str(tmp_path)], check=False)
    assert process.returncode == -signal.SIGKILL
    ring = _read(tmp_path)
    wheres = [where for _, where in ring.entries]
    assert wheres[-1] == (3, "f0", 1)
    assert (6, "once", 2) in wheres


@pytest.mark.parametrize("in_c", _ENGINES)
@pytest.mark.parametrize("mode", _MODES)
def test_a_forked_child_writes_nothing(mode: Mode, in_c: bool, tmp_path: Path) -> None:
    clock = _clock(tmp_path, mode, in_c=in_c)
    program = compiled("def f0(level):\n    probe()\n    once()\n    probe()\n\ndef once():\n    return 1\n")
    child = 0

    def fork() -> None:
        nonlocal child
        if child:
            return
        child = os.fork()
        if not child:
            clock.forked()
            program.run(lambda: None)
            os._exit(17 if sys.gettrace() is None else 1)
        os.waitpid(child, 0)

    def around(run: Callable[[], Any]) -> None:
        clock.start()
        run()
        clock.stop()

    program.run(fork, around)
    pid = threading.get_native_id()
    assert {thread for thread, _ in _read(tmp_path).entries} == {pid}
    wheres = [where for _, where in _read(tmp_path).entries]
    assert [wheres.count((line, function, depth)) for line, function, depth in ((3, "f0", 1), (7, "once", 2))] == [2, 1]
