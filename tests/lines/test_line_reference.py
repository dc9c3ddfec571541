"""The line clock in C against its reference implementation in Python: the same entries, and the same errors."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from recording.clocked import MODES, clocked
from recording.programs.invented import PROGRAMS, compiled

from unstall.lines.clock import Mode
from unstall.lines.reference import ENTRY, HEADER, HEADER_BYTES, MAGIC, NOWHERE, ReferenceLineClock, Stack

needs_c = pytest.mark.skipif(
    find_spec("unstall.lines._lines") is None, reason="the C extension of the line clock is not built"
)


@needs_c
@pytest.mark.parametrize("mode", MODES)
@examples(25)
@given(text=PROGRAMS, begin_at=st.integers(0, 3), capacity=st.sampled_from([7, 1 << 16]))
def test_c_writes_what_its_reference_writes(mode: Mode, text: str, begin_at: int, capacity: int) -> None:
    program = compiled(text)
    in_c = clocked(program, mode, True, begin_at, capacity)
    reference = clocked(program, mode, False, begin_at, capacity)
    assert in_c.written == reference.written
    threads: list[dict[int, int]] = [{}, {}]  # a thread's id differs from run to run, its order does not
    in_c_rows, reference_rows = (
        [(order.setdefault(thread, len(order)), where) for thread, where in ring.entries]
        for order, ring in zip(threads, (in_c, reference), strict=True)
    )
    assert in_c_rows == reference_rows


@pytest.fixture(params=["reference", pytest.param("c", marks=needs_c)])
def engine(request: pytest.FixtureRequest) -> Any:
    return import_module("unstall.lines._lines") if request.param == "c" else ReferenceLineClock()


class _Told:
    """What an engine tells while it is driven by hand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked: list[str] = []
        self.places: list[tuple[int, str, int]] = []
        self.threads: list[int] = []

    def start(self, engine: Any, stacks: Sequence[Stack] = (), capacity: int = 8) -> None:
        engine.start(str(self.path), capacity, list(stacks), self.wants, self.describe, self.new_thread, "disable")

    def wants(self, code: CodeType) -> bool:
        self.asked.append(code.co_name)
        return code.co_name != "others"

    def describe(self, place: int, code: CodeType, number: int) -> None:
        self.places.append((place, code.co_name, number))

    def new_thread(self, index: int, native_id: int) -> None:
        self.threads.append(index)

    def entries(self) -> list[tuple[int, int, int]]:
        """Place, thread and depth."""
        data = self.path.read_bytes()
        magic, capacity, written = HEADER.unpack_from(data)
        assert (magic, len(data)) == (MAGIC, HEADER_BYTES + capacity * ENTRY.size)
        rows = list(ENTRY.iter_unpack(data[HEADER_BYTES:]))
        return [row[1:] for row in rows[: min(written, capacity)]]


def _code(name: str) -> CodeType:
    return next(each for each in compile(f"def {name}(): pass", "f.py", "exec").co_consts if isinstance(each, CodeType))


_MINE, _OTHERS, _INNER = _code("mine"), _code("others"), _code("inner")


def test_an_entry_says_the_place_and_the_depth(engine: Any, tmp_path: Path) -> None:
    told = _Told(tmp_path / "lines.bin")
    told.start(engine)
    assert engine.py_start(_MINE, 0) is None
    engine.line(_MINE, 5)
    assert engine.py_start(_OTHERS, 0) == "disable"
    assert engine.py_resume(_OTHERS, 0) == "disable"
    assert engine.py_throw(_OTHERS, 0, ValueError()) is None
    engine.py_unwind(_OTHERS, 0, ValueError())
    engine.py_resume(_INNER, 12)
    engine.py_unwind(_INNER, 0, ValueError())
    engine.py_return(_MINE, 0, None)
    engine.py_return(_MINE, 0, None)
    assert engine.stop() == 5
    assert told.places == [(0, "mine", 0), (1, "mine", 5), (2, "inner", -13)]
    assert told.entries() == [(0, 0, 1), (1, 0, 1), (2, 0, 2), (1, 0, 1), (NOWHERE, 0, 0)]
    assert told.asked == ["mine", "others", "inner"]
    assert told.threads == [0]


def test_threads_that_run_already_have_an_entry_for_each_frame(engine: Any, tmp_path: Path) -> None:
    told = _Told(tmp_path / "lines.bin")
    told.start(engine, stacks=[(11, [(_MINE, 3), (_OTHERS, 4), (_INNER, 7)]), (12, [])])
    engine.stop()
    assert told.entries() == [(0, 0, 1), (1, 0, 2)]
    assert told.places == [(0, "mine", 3), (1, "inner", 7)]
    assert told.threads == [0, 1]


def test_a_line_of_a_frame_that_was_not_seen_to_begin_is_one_deeper(engine: Any, tmp_path: Path) -> None:
    told = _Told(tmp_path / "lines.bin")
    told.start(engine)
    engine.line(_MINE, 5)
    engine.line(_INNER, 6)
    engine.line(_MINE, 7)  # whatever was above it is gone
    engine.stop()
    assert told.entries() == [(0, 0, 1), (1, 0, 2), (2, 0, 1)]


def test_nothing_is_written_after_a_pause_or_the_end(engine: Any, tmp_path: Path) -> None:
    told = _Told(tmp_path / "lines.bin")
    told.start(engine)
    engine.line(_MINE, 5)
    engine.pause()
    engine.line(_MINE, 6)
    engine.py_start(_MINE, 0)
    assert engine.stop() == 1
    for call in (engine.py_start, engine.py_resume, engine.line, engine.py_return, engine.py_unwind):
        assert call(_MINE, 1) is None
    assert told.entries() == [(0, 0, 1)]


def test_an_engine_runs_once_at_a_time_and_into_a_file_of_its_own(engine: Any, tmp_path: Path) -> None:
    told = _Told(tmp_path / "lines.bin")
    for capacity in (0, 2**32 + 1):
        with pytest.raises(ValueError, match="capacity must be"):
            told.start(engine, capacity=capacity)
    with pytest.raises(RuntimeError, match="not running"):
        engine.stop()
    told.start(engine)
    with pytest.raises(RuntimeError, match="running already"):
        told.start(engine)
    assert engine.stop() == 0
    with pytest.raises(FileExistsError):
        told.start(engine)
