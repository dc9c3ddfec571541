"""The line clock: where each thread is at any time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from recording.clocked import ENGINES, LOOP, MODES, Where, clocked, line_clock, read_ring
from recording.programs.invented import FILE, PROGRAMS, compiled, stack_here

from unstall.lines import clock as lines
from unstall.lines.clock import LineClock, Mode
from unstall.lines.reference import HEADER

pytestmark = pytest.mark.skipif(sys.gettrace() is not None, reason="a debugger or coverage traces the tests")


@pytest.mark.parametrize("in_c", ENGINES)
@pytest.mark.parametrize("mode", MODES)
@examples(25)
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

    ring = clocked(compiled(text), mode, in_c, begin_at, seen=see)
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


@pytest.mark.parametrize("in_c", ENGINES)
@pytest.mark.parametrize("mode", MODES)
def test_after_a_call_has_returned_its_caller_is_on_its_line_again(mode: Mode, in_c: bool) -> None:
    ring = clocked(compiled(_RETURNS), mode, in_c)
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


@pytest.mark.parametrize("in_c", ENGINES)
@pytest.mark.parametrize("mode", MODES)
def test_a_full_ring_keeps_the_last_entries(mode: Mode, in_c: bool) -> None:
    program = compiled(LOOP)
    whole, last = clocked(program, mode, in_c), clocked(program, mode, in_c, capacity=64)
    assert whole.written == last.written > 200
    assert len(last.entries) == 64
    assert last.entries == whole.entries[-64:]
    assert last.times == sorted(last.times)


def test_how_much_of_the_ring_was_overwritten_can_be_told(tmp_path: Path) -> None:
    clock = line_clock(tmp_path, lines.available(), capacity=16)

    def around(run: Callable[[], Any]) -> None:
        clock.start()
        run()
        clock.stop()

    compiled(LOOP).run(lambda: None, around)
    facts = clock.facts()
    assert facts["capacity"] == 16
    assert isinstance(facts["entries"], int)
    assert facts["entries"] > 200


@pytest.mark.parametrize("in_c", ENGINES)
@pytest.mark.parametrize("mode", MODES)
def test_threads_are_told_apart_and_named(mode: Mode, in_c: bool, tmp_path: Path) -> None:
    clock = line_clock(tmp_path, mode, in_c=in_c)
    program = compiled("def f0(level):\n    threaded(other)\n    probe()\n\ndef other():\n    probe()\n")
    seen: list[tuple[int, str]] = []

    def around(run: Callable[[], Any]) -> None:
        clock.start()
        run()
        clock.stop()

    program.run(lambda: seen.append((threading.get_native_id(), threading.current_thread().name)), around)
    (other, other_name), (main, main_name) = seen
    ring = read_ring(tmp_path)
    assert [where for thread, where in ring.entries if thread == other][-2:] == [(6, "other", 1), (-1, "", 0)]
    assert (3, "f0", 1) in [where for thread, where in ring.entries if thread == main]
    told = [json.loads(line) for line in (tmp_path / lines.PLACES).read_text().splitlines() if line]
    named = {each["id"]: each["name"] for each in told if "thread" in each}
    assert (named[main], named[other]) == (main_name, other_name)


@pytest.mark.parametrize("in_c", ENGINES)
@pytest.mark.parametrize("mode", MODES)
def test_of_equal_functions_of_two_files_only_the_users_is_clocked(mode: Mode, in_c: bool, tmp_path: Path) -> None:
    spaces: list[dict[str, Any]] = [{}, {}]
    for space, file in zip(spaces, ("another", FILE), strict=True):
        exec(compile("def f():\n    return 1\n", file, "exec"), space)
    clock = line_clock(tmp_path, mode, in_c=in_c)
    clock.start()
    for space in spaces:
        space["f"]()
    clock.stop()
    assert [where for _, where in read_ring(tmp_path).entries] == [(1, "f", 1), (2, "f", 1), (-1, "", 0)]


@pytest.mark.python(least=(3, 12))
def test_lines_are_clocked_though_an_earlier_tool_was_told_to_leave_their_code_alone(tmp_path: Path) -> None:
    program = compiled(LOOP)
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


_KILLED = """\
import os, pathlib, signal, sys
from unstall.lines.clock import LineClock, available

clock = LineClock(pathlib.Path(sys.argv[1]), available(), lambda file: file == {file!r}, in_c={in_c})
space = {{"kill": lambda: os.kill(os.getpid(), signal.SIGKILL)}}
exec(compile("def f0():\\n    once()\\n    kill()\\n\\ndef once():\\n    pass\\n", {file!r}, "exec"), space)
clock.start()
space["f0"]()
"""


@pytest.mark.parametrize("in_c", ENGINES)
def test_a_killed_process_leaves_where_it_was(in_c: bool, tmp_path: Path) -> None:
    text = _KILLED.format(file=FILE, in_c=in_c)
    process = subprocess.run([sys.executable, "-c", text, str(tmp_path)], check=False)
    assert process.returncode == -signal.SIGKILL
    ring = read_ring(tmp_path)
    wheres = [where for _, where in ring.entries]
    assert wheres[-1] == (3, "f0", 1)
    assert (6, "once", 2) in wheres


@pytest.mark.parametrize("in_c", ENGINES)
@pytest.mark.parametrize("mode", MODES)
def test_a_forked_child_writes_nothing(mode: Mode, in_c: bool, tmp_path: Path) -> None:
    clock = line_clock(tmp_path, mode, in_c=in_c)
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
    assert {thread for thread, _ in read_ring(tmp_path).entries} == {pid}
    wheres = [where for _, where in read_ring(tmp_path).entries]
    assert [wheres.count((line, function, depth)) for line, function, depth in ((3, "f0", 1), (7, "once", 2))] == [2, 1]
