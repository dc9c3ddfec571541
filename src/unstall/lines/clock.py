"""The line clock: records which line of the user's code each thread executes at any time.

The recorder `torch` uses this clock because the stacks of torch.profiler name only the first line
of each function. The clock is also cheaper: with the profiler's stacks, a step takes 1.49 to 1.75
times as long as without recording; with this clock, 1.27 to 1.42 times as long. These figures are
for host-bound programs (`python -m benchmarks.recording`). The recorder `cupti` uses the clock on
Python versions that `_frames.c` does not support.

From Python 3.12 on, the clock uses `sys.monitoring`. The clock then gets a callback for each line,
call and return in the user's functions, and no callbacks for other functions. On older versions,
the clock uses `sys.settrace`, which costs more time. The callbacks run in C if the extension
`_lines.c` was built.

The clock writes the file `lines.bin`: a header of 4096 bytes (magic, capacity, total number of
entries written) and a ring buffer of entries. Each entry has 16 bytes: time in ns
(CLOCK_MONOTONIC), number of a place, number of a thread, depth of the stack. An entry means: from
its time until the thread's next entry, this thread is at this place. Place -1 means that the thread
is outside the user's code. The file `places.jsonl` says which line each number of a place stands
for, and which thread each number of a thread stands for, in lines of JSON.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Literal

from unstall.errors import UnstallError
from unstall.guest.monitoring import let_go, take
from unstall.json_lines import append_json_lines
from unstall.lines.reference import ReferenceLineClock

try:
    from unstall.lines import _lines
except ImportError:
    _lines = None  # type: ignore[assignment]  # built only if there is a C compiler

Mode = Literal["monitoring", "settrace"]
FILE, PLACES = "lines.bin", "places.jsonl"
CAPACITY = 1 << 22  # entries: 64 MiB, about 4 million line changes

_TOOL_NAME = "unstall lines"


def available() -> Mode:
    """Returns "monitoring" if this Python has sys.monitoring (3.12 and later), otherwise "settrace"."""
    return "monitoring" if sys.version_info >= (3, 12) else "settrace"


class LineClock:
    """Records which line of the user's code each thread executes, from the call of `start` to the
    call of `stop`. Writes the files `lines.bin` and `places.jsonl` in `folder`.
    """

    name: str
    any_thread: bool

    def __init__(
        self, folder: Path, mode: Mode, wants: Callable[[str], bool], *, capacity: int = CAPACITY, in_c: bool = True
    ) -> None:
        """Prepares the clock. The clock records nothing before `start` is called.

        Args:
            folder: The folder for the files `lines.bin` and `places.jsonl`.
            mode: The interface of Python to use: "monitoring" for sys.monitoring, or "settrace" for
                sys.settrace.
            wants: A function that gets the name of a file, and returns whether the file belongs to
                the user.
            capacity: The number of entries that `lines.bin` can hold. If the file is full, new
                entries overwrite the oldest entries.
            in_c: Whether to use the C extension `_lines.c`, if it was built.
        """
        self.name, self.any_thread = mode, mode == "monitoring"
        self._path, self._places_path = folder / FILE, str(folder / PLACES)
        self._mode, self._wants_file, self._capacity = mode, wants, capacity
        self._engine: Any = _lines if in_c and _lines is not None else ReferenceLineClock()
        self._watched: list[CodeType] = []
        self._written = 0
        self._running = False
        self._ended_by: str | None = None
        self._undo: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Starts to record which lines run.

        Raises:
            UnstallError: sys.monitoring has no free tool id, or another tracer is active.
            OSError: The disk is full.
        """
        tool = take(_TOOL_NAME) if self._mode == "monitoring" else None
        disable = getattr(getattr(sys, "monitoring", None), "DISABLE", None)
        if tool is not None:
            self._undo = lambda: let_go(tool, self._watched)
        with ExitStack() as undo:
            undo.callback(lambda: self._undo())
            self._path.unlink(missing_ok=True)  # Ctrl-C may have interrupted an earlier start, but not the program
            self._engine.start(
                str(self._path),
                self._capacity,
                _running_stacks(),
                self._wants if tool is None else lambda code: self._wants_and_watches(tool, code),
                self._describe,
                self._new_thread,
                disable,
            )
            undo.callback(self._engine.stop)
            self._running = True
            if tool is None:
                self._trace()
            else:
                self._monitor(tool)
            undo.pop_all()

    def stop(self) -> None:
        """Stops the clock: removes its callbacks from Python, and closes its files."""
        self._undo()
        for thread in threading.enumerate():
            self._write({"python_thread": thread.native_id, "name": thread.name})
        self._written = self._engine.stop()

    def flush(self) -> None:
        """Does nothing, because the clock buffers no data: its file `lines.bin` is mapped into memory."""

    def facts(self) -> dict[str, object]:
        """Returns facts about the recording, as a dict:

        - "entries": The number of entries written.
        - "capacity": The number of entries that the file `lines.bin` can hold.
        - "ended_by": The message of the error that stopped the clock early. The key is missing if
          there was no such error.
        """
        ended = {} if self._ended_by is None else {"ended_by": self._ended_by}
        return {"entries": self._written, "capacity": self._capacity, **ended}

    def forked(self) -> None:
        """Stops the clock in a child process that was forked while the clock ran. Removes the
        callbacks. The clock in the parent process continues.
        """
        self._engine.pause()
        self._undo()

    def _monitor(self, tool: int) -> None:
        if sys.version_info < (3, 12):
            return
        monitoring, engine = sys.monitoring, self._engine
        events = monitoring.events
        for event, callback in (
            (events.PY_START, engine.py_start),
            (events.PY_RESUME, engine.py_resume),
            (events.PY_THROW, engine.py_throw),
            (events.LINE, engine.line),
            (events.PY_RETURN, engine.py_return),
            (events.PY_YIELD, engine.py_return),
            (events.PY_UNWIND, engine.py_unwind),
        ):
            monitoring.register_callback(tool, event, callback)
        # Each code object is checked once, when it first runs. The user's code then gets local events.
        monitoring.set_events(tool, events.PY_START | events.PY_RESUME | events.PY_THROW | events.PY_UNWIND)
        # Re-enable events that an earlier tool with this id disabled.
        monitoring.restart_events()

    def _trace(self) -> None:
        if sys.gettrace() is not None:
            raise UnstallError("something else traces this program (sys.settrace): a debugger, or coverage")
        trace = self._engine.trace
        before = threading.gettrace()

        def undo() -> None:  # keep a tracer that the program set since; other threads end their tracing themselves
            if sys.gettrace() is trace:
                sys.settrace(None)
            if threading.gettrace() is trace:
                threading.settrace(before)

        self._undo = undo
        threading.settrace(trace)
        sys.settrace(trace)
        for frame in _outward(sys._getframe()):
            if self._wants(frame.f_code):
                frame.f_trace = trace

    def _wants(self, code: CodeType) -> bool:
        return self._wants_file(code.co_filename)

    def _wants_and_watches(self, tool: int, code: CodeType) -> bool:
        wanted = self._wants(code)
        if wanted and sys.version_info >= (3, 12):
            events = sys.monitoring.events
            self._watched.append(code)
            with suppress(ValueError):  # another thread stopped the clock meanwhile and freed the tool id
                sys.monitoring.set_local_events(tool, code, events.LINE | events.PY_RETURN | events.PY_YIELD)
        return wanted

    def _describe(self, place: int, code: CodeType, number: int) -> None:
        line = number if number > 0 else code.co_firstlineno if number == 0 else line_at(code, -1 - number)
        self._write({"place": place, "file": code.co_filename, "line": line, "function": code.co_name})

    def _new_thread(self, index: int, native_id: int) -> None:
        name = next((each.name for each in threading.enumerate() if each.native_id == native_id), "")
        self._write({"thread": index, "id": native_id, "name": name})

    def _write(self, what: dict[str, object]) -> None:
        """Writes `what`, the description of a place or a thread, to `places.jsonl`. If the disk is
        full, stops the clock; the program continues.
        """
        try:
            append_json_lines(self._places_path, [what])
        except OSError as error:
            if not self._running:
                raise
            self._engine.pause()
            self._ended_by = str(error)


def _running_stacks() -> list[tuple[int, list[tuple[CodeType, int]]]]:
    """Returns a pair (native thread id, frames) for every thread that runs Python. `frames` is a
    list of pairs (code object, line number), outermost frame first. `frames` does not include the
    frames of functions in `clock.py`.
    """
    native = {thread.ident: thread.native_id for thread in threading.enumerate()}
    stacks = []
    for ident, innermost in sys._current_frames().items():
        native_id = native.get(ident)
        frames = [(frame.f_code, frame.f_lineno or 0) for frame in _outward(innermost)]
        if native_id is not None:
            stacks.append((native_id, [each for each in frames[::-1] if each[0].co_filename != __file__]))
    return stacks


def running_frames() -> Iterator[FrameType]:
    """Yields all frames of every thread that runs Python, one thread after the other. Within a
    thread, the innermost frame comes first.
    """
    for innermost in sys._current_frames().values():
        yield from _outward(innermost)


def _outward(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def line_at(code: CodeType, offset: int) -> int:
    """Returns the number of the source line of one bytecode instruction of `code`. If this
    instruction has no source line, returns the number of the first line of the function.

    Args:
        code: The code object of the function.
        offset: The offset of the instruction in the function's bytecode, in bytes.
    """
    for start, end, line in code.co_lines():
        if start <= offset < end and line is not None:
            return line
    return code.co_firstlineno
