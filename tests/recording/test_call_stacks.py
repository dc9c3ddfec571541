"""Stacks read at a call: against what Python itself says of its frames."""

from __future__ import annotations

import contextlib
import gc
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from recording.programs.invented import FILE, PROGRAMS, compiled, stack_here

from unstall.cupti import call_stacks
from unstall.cupti.call_stacks import CallStacks, unavailable
from unstall.errors import UnstallError
from unstall.frameworks import PREFETCH_WAIT
from unstall.lines.clock import PLACES, line_at

_cupti = pytest.importorskip(
    "unstall.cupti._cupti", reason="the C extension of the recorder is not built", exc_type=ImportError
)

_MOST_FRAMES = 96
_NO_FRAME = -2

Stack = list[tuple[CodeType, int]]


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    _cupti.know([], [], None)


def _known(number: int) -> Stack:
    """The stack of this number, by lines."""
    return [(code, line_at(code, offset)) for code, offset in _cupti.stacks(number)[0]]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_any_number_of_functions_may_be_watched_and_forgotten(count: int) -> None:
    codes = [compile(f"f{number}", "watched.py", "eval") for number in range(count)]
    for _ in range(3):
        _cupti.know([], codes, None)
    _cupti.know([], [], None)
    assert sys.getrefcount(codes[0]) == sys.getrefcount(compile("g", "watched.py", "eval")) + 1  # that of the list


def test_the_waits_of_prefetch_are_spans() -> None:
    batch_waits = pytest.importorskip("unstall.guest.batch_waits")
    spans = {each.span: each.code for each in call_stacks._watched()}
    assert spans[PREFETCH_WAIT] is batch_waits.waited_for.__code__


def test_frames_are_where_they_are_thought_to_be() -> None:
    assert (3, 11) <= sys.version_info < (3, 14), "where frames are in this version is to be found out"
    assert unavailable() is None


@examples(25)
@given(text=PROGRAMS, data=st.data())
def test_the_stack_of_a_call_is_that_of_the_frames_whose_code_is_known(text: str, data: st.DataObject) -> None:
    program = compiled(text)
    known = data.draw(st.lists(st.sampled_from(program.codes())) | st.just(program.codes()))
    _cupti.know(known, [], None)
    calls: list[tuple[int, Stack]] = []

    def probe() -> None:
        calls.append((_cupti.here(), stack_here(lambda code: code in known)))

    program.run(probe)
    distinct: dict[tuple[tuple[CodeType, int], ...], int] = {}
    for number, expected in calls:
        if not expected:
            assert number == _NO_FRAME
            continue
        distinct[tuple(_cupti.stacks(number)[0])] = number
        assert _known(number) == expected
    assert sorted(distinct.values()) == list(range(len(_cupti.stacks(0))))  # each stack has one number, from 0 on


@given(depth=st.integers(_MOST_FRAMES - 3, _MOST_FRAMES + 40))
def test_of_a_deep_stack_the_innermost_frames_are_kept(depth: int) -> None:
    program = compiled(
        "def f0(level):\n    deeper(DEPTH - 2)\n\ndef deeper(left):\n".replace("DEPTH", str(depth))
        + "    if left:\n        deeper(left - 1)\n    else:\n        probe()\n"
    )
    _cupti.know(program.codes(), [], None)
    seen: list[tuple[int, Stack]] = []
    program.run(lambda: seen.append((_cupti.here(), stack_here())))
    ((number, expected),) = seen
    assert len(expected) == depth
    assert _known(number) == expected[:_MOST_FRAMES]


def test_frames_are_read_while_an_exception_is_in_flight_and_in_its_handler() -> None:
    text = "def f0(level):\n    try:\n        fails()\n    finally:\n        probe()\n\n"
    text += "def fails():\n    try:\n        probe()\n        raise KeyError\n    except KeyError as error:\n"
    program = compiled(text + "        probe()\n        raise ValueError from error\n")
    _cupti.know(program.codes(), [], None)
    lines: list[list[int]] = []
    program.run(lambda: lines.append([line for _, line in _known(_cupti.here())]))
    assert lines == [[9, 3], [12, 3], [5]]


def test_a_thread_has_its_own_stack() -> None:
    program = compiled("def f0(level):\n    threaded(other)\n\ndef other():\n    probe()\n")
    _cupti.know(program.codes(), [], None)
    seen: list[Stack] = []
    program.run(lambda: seen.append(_known(_cupti.here())))
    assert [(code.co_name, line) for code, line in seen[0]] == [("other", 5)]


def test_what_is_made_known_anew_is_all_that_is_known() -> None:
    first, second = (compiled("def f0(level):\n    probe()\n") for _ in range(2))
    numbers: list[int] = []
    _cupti.know(first.codes(), [], None)
    for program in (first, second):
        program.run(lambda: numbers.append(_cupti.here()))
    _cupti.know(second.codes(), [], None)
    assert _cupti.stacks(0) == []
    for program in (first, second):
        program.run(lambda: numbers.append(_cupti.here()))
    assert numbers == [0, _NO_FRAME, _NO_FRAME, 0]
    assert _known(0)[0][0] in second.codes()


def _frames(folder: Path) -> dict[int, list[tuple[int, str]]]:
    """Line and function of the invented program's frames, by stack, as places.jsonl has them."""
    told = [json.loads(line) for line in (folder / PLACES).read_text().splitlines() if line]
    return {
        each["stack"]: [(line, function) for file, line, function in each["frames"] if file == FILE]
        for each in told
        if "stack" in each
    }


_STARTED_WITHIN = """\
def f0(level):
    probe()
    for _ in range(3):
        probe(); once()
    inner = lambda: probe()
    inner()

def once():
    probe()
"""


def test_stacks_are_described_once_each_with_line_and_function(tmp_path: Path) -> None:
    recorder = CallStacks(tmp_path)
    numbers: list[int] = []

    def probe() -> None:
        if not numbers:
            recorder.start()
        numbers.append(_cupti.here())
        recorder.flush()

    try:
        compiled(_STARTED_WITHIN).run(probe)
    finally:
        recorder.stop()
    described = _frames(tmp_path)
    assert numbers == [0, 1, 2, 1, 2, 1, 2, 3]
    assert described == {
        0: [(2, "f0")],
        1: [(4, "f0")],
        2: [(9, "once"), (4, "f0")],
        3: [(5, "<lambda>"), (6, "f0")],
    }
    assert recorder.facts() == {"stacks": 4}
    this = threading.current_thread()
    assert {"python_thread": this.native_id, "name": this.name} in map(
        json.loads, filter(None, (tmp_path / PLACES).read_text().splitlines())
    )


def test_a_generator_that_is_closed_is_in_the_stacks_of_what_it_cleans_up(tmp_path: Path) -> None:
    text = "def f0(level):\n    made = generated()\n    next(made)\n    probe()\n    made.close()\n\n"
    text += "def generated():\n    try:\n        yield\n    finally:\n        probe()\n"
    recorder, numbers = CallStacks(tmp_path), list[int]()

    def probe() -> None:
        if not numbers:
            recorder.start()
        numbers.append(_cupti.here())

    try:
        compiled(text).run(probe)
    finally:
        recorder.stop()
    assert _frames(tmp_path)[numbers[1]] == [(11, "generated"), (5, "f0")]


def _files_of_stacks(folder: Path) -> list[str]:
    told = [json.loads(line) for line in (folder / PLACES).read_text().splitlines() if line]
    return [each["frames"][0][0] for each in told if "stack" in each]


def _asks_where_it_is(file: str) -> Callable[[], int]:
    space: dict[str, Callable[[], int]] = {"here": _cupti.here}
    exec(compile("def ask():\n    return here()\n", file, "exec"), space)
    return space["ask"]


def test_equal_functions_of_two_files_are_both_known(tmp_path: Path) -> None:
    first, second = _asks_where_it_is("first.py"), _asks_where_it_is("second.py")
    assert first.__code__ == second.__code__
    recorder = CallStacks(tmp_path)
    recorder.start()
    try:
        assert [first(), second()] == [0, 1]
    finally:
        recorder.stop()
    assert _files_of_stacks(tmp_path) == ["first.py", "second.py"]


def test_functions_that_the_program_has_frozen_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: Any = ModuleType("held")
    held.by = [_asks_where_it_is("frozen.py")]
    monkeypatch.setitem(sys.modules, "held", held)
    recorder = CallStacks(tmp_path)
    gc.freeze()
    try:
        recorder.start()
        held.by[0]()
    finally:
        gc.unfreeze()
        recorder.stop()
    assert _files_of_stacks(tmp_path) == ["frozen.py"]


def test_a_recorder_that_has_stopped_leaves_nothing_behind(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        recorder = CallStacks(tmp_path / str(number))
        recorder.start()
        recorder.stop()
    ours = [thread for thread in threading.enumerate() if thread.name == "unstall"]
    for thread in ours:
        thread.join(5)
    assert [thread.is_alive() for thread in ours] == [False] * len(ours)
    if sys.version_info >= (3, 12):
        assert [sys.monitoring.get_tool(tool) for tool in range(6)] == [None] * 6


def test_what_is_new_is_described_while_recording_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_stacks, "_DESCRIBE_S", 0.01)
    recorder = CallStacks(tmp_path)
    recorder.start()
    try:
        number, until = _cupti.here(), time.monotonic() + 5
        described = False
        while not described and time.monotonic() < until:
            time.sleep(0.01)
            path = tmp_path / PLACES
            described = path.exists() and number in _frames(tmp_path)
        assert described
    finally:
        recorder.stop()


def test_threads_are_named_that_end_before_the_recording_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_stacks, "_DESCRIBE_S", 0.01)

    def told() -> list[object]:
        path = tmp_path / PLACES
        return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []

    recorder = CallStacks(tmp_path)
    recorder.start()
    over = threading.Event()
    thread = threading.Thread(target=over.wait, name="saver")
    try:
        thread.start()
        mine, until = {"python_thread": thread.native_id, "name": "saver"}, time.monotonic() + 5
        while mine not in told() and time.monotonic() < until:
            time.sleep(0.01)
    finally:
        over.set()
        thread.join()
        recorder.stop()
    assert told().count(mine) == 1


def test_a_folder_that_is_gone_is_no_business_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_stacks, "_DESCRIBE_S", 0.01)
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    recorder = CallStacks(tmp_path / "gone")
    with contextlib.suppress(OSError):
        recorder.start()
    _cupti.here()
    time.sleep(0.05)
    with pytest.raises(OSError, match="places"):
        recorder.stop()
    assert raised == []


@pytest.mark.python(least=(3, 12))
def test_all_tools_of_monitoring_in_use_is_said(tmp_path: Path) -> None:
    if sys.version_info < (3, 12):
        return
    tools = [tool for tool in range(6) if sys.monitoring.get_tool(tool) is None]
    for tool in tools:
        sys.monitoring.use_tool_id(tool, "somebody")
    try:
        with pytest.raises(UnstallError, match=r"no tool of sys\.monitoring is free"):
            CallStacks(tmp_path).start()
    finally:
        for tool in tools:
            sys.monitoring.free_tool_id(tool)
