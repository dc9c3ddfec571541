"""The line clock in Python: the reference implementation of `_lines.c`. unstall runs it only if
`_lines.c` was not built.
"""

from __future__ import annotations

import mmap
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

MAGIC = b"unstall1"
HEADER_BYTES = 4096
HEADER = struct.Struct("<8sQQ")  # magic, capacity and entries written in all
ENTRY = struct.Struct("<qiHH")  # time in ns, place, thread, depth
NOWHERE = -1
_WRITTEN = struct.Struct("<Q")
_WRITTEN_AT = 16
_MOST_DEPTH = 2**16 - 1

Stack = tuple[int, list[tuple[CodeType, int]]]
"""The stack of a running thread: (native id of the thread, frames). `frames` is a list of pairs
(code object, line number), outermost frame first.
"""


class ReferenceLineClock:
    """Records which line of the user's code each thread executes. Its methods `py_start`,
    `py_resume`, `py_throw`, `line`, `py_return` and `py_unwind` are callbacks for sys.monitoring;
    `trace` is the callback for sys.settrace.

    For each thread, the clock stores a stack of the user's frames. When the line of the innermost
    frame changes, the clock writes an entry to its file, with the time and the number of the new
    place. A place is a pair (code, number). The number is a line number, or 0 at the start of a
    function. When a generator resumes, the number is `-1 - offset`; `offset` is the offset, in
    bytes, of the bytecode instruction at which the generator resumes.
    """

    def __init__(self) -> None:
        self._on = False
        self._map: mmap.mmap | None = None
        self._codes: dict[int, CodeType] = {}  # by id(): code objects of two files may be equal
        self._users: dict[int, bool] = {}
        self._places: dict[tuple[int, int], int] = {}
        self._threads: dict[int, int] = {}
        self._stacks: dict[int, list[tuple[CodeType, int]]] = {}

    def start(
        self,
        path: str,
        capacity: int,
        stacks: list[Stack],
        wants: Callable[[CodeType], bool],
        describe: Callable[[int, CodeType, int], object],
        new_thread: Callable[[int, int], object],
        disable: object,
    ) -> None:
        """Starts to write entries to a new file.

        Args:
            path: The path of the file. The file must not exist yet.
            capacity: The number of entries that the file can hold. If the file is full, new entries
                overwrite the oldest entries.
            stacks: The stacks of the threads that are already running.
            wants: A function that returns whether a code object belongs to the user. The clock
                calls it only once for each code object.
            describe: A function that the clock calls with (index, code, number) when it meets a new
                place. `index` is the number by which entries name the place; the place is the pair
                (code, number).
            new_thread: A function that the clock calls with (index, native id) when it meets a new
                thread. `index` is the number by which entries name the thread.
            disable: `sys.monitoring.DISABLE`. A callback returns this object if sys.monitoring need
                not call it again for the same instruction.
        """
        if self._map is not None:
            raise RuntimeError("the line clock is running already")
        if not 1 <= capacity <= 2**32:
            raise ValueError("capacity must be from 1 to 2**32 entries")
        self.__init__()  # type: ignore[misc]
        self._wants, self._describe, self._new_thread, self._disable = wants, describe, new_thread, disable
        self._capacity, self._written = capacity, 0
        with Path(path).open("xb+") as file:
            file.truncate(HEADER_BYTES + capacity * ENTRY.size)
            self._map = mmap.mmap(file.fileno(), 0)
        HEADER.pack_into(self._map, 0, MAGIC, capacity, 0)
        self._lock = threading.Lock()
        self._on = True
        for native_id, frames in stacks:
            stack = self._stack(native_id)
            for code, number in frames:
                if self._is_users(code):
                    stack.append((code, self._place(code, number)))
                    self._note(native_id)  # one entry per frame

    def stop(self) -> int:
        """Closes the file of the clock. Returns the total number of entries written, overwritten ones included."""
        if self._map is None:
            raise RuntimeError("the line clock is not running")
        self._on = False
        with self._lock:
            self._map.close()
            self._map = None
        return self._written

    def pause(self) -> None:
        """Stops writing entries to the file of the clock, and leaves the file open. A forked child
        process calls this method: it shares the file with its parent process, which goes on
        writing.
        """
        self._on = False

    def py_start(self, code: CodeType, offset: int) -> object:
        return self._enter(code, 0)

    def py_resume(self, code: CodeType, offset: int) -> object:
        return self._enter(code, -1 - offset)

    def py_throw(self, code: CodeType, offset: int, exception: BaseException) -> None:
        self._enter(code, -1 - offset)

    def line(self, code: CodeType, line: int) -> None:
        if self._on:
            self._go_to(code, line)

    def py_return(self, code: CodeType, *_: object) -> None:
        if self._on:
            self._leave(code)

    def py_unwind(self, code: CodeType, *_: object) -> None:
        if self._on and self._is_users(code):
            self._leave(code)

    def trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        """The callback for sys.settrace. If the clock has stopped, this callback removes itself
        from the thread in which it is called.
        """
        if not self._on:
            if sys.gettrace() == self.trace:
                sys.settrace(None)
            return None
        code = frame.f_code
        if not self._is_users(code):
            return None
        if event == "call":
            self._enter(code, frame.f_lineno)
        elif event == "line":
            self._go_to(code, frame.f_lineno)
        elif event == "return":
            self._leave(code)
        return self.trace

    def _enter(self, code: CodeType, number: int) -> object:
        if not self._on:
            return None
        if not self._is_users(code):
            return self._disable
        native_id = threading.get_native_id()
        self._stack(native_id).append((code, self._place(code, number)))
        self._note(native_id)
        return None

    def _go_to(self, code: CodeType, line: int) -> None:
        """Sets the line of the innermost frame that runs `code`. Removes all frames that this frame
        has called: they must have ended.
        """
        native_id = threading.get_native_id()
        stack = self._stack(native_id)
        depth = self._depth(stack, code)
        place = (code, self._place(code, line))
        stack[max(depth - 1, 0) if depth else len(stack) :] = [place]
        self._note(native_id)

    def _leave(self, code: CodeType) -> None:
        native_id = threading.get_native_id()
        stack = self._stack(native_id)
        if depth := self._depth(stack, code):
            del stack[depth - 1 :]
            self._note(native_id)

    @staticmethod
    def _depth(stack: list[tuple[CodeType, int]], code: CodeType) -> int:
        """Returns the depth of the innermost frame that runs `code`. The outermost frame has depth 1. Returns 0 if no
        frame runs `code`.
        """
        return next((depth for depth in range(len(stack), 0, -1) if stack[depth - 1][0] is code), 0)

    def _is_users(self, code: CodeType) -> bool:
        number = self._number(code)
        users = self._users.get(number)
        if users is None:
            users = self._users[number] = self._wants(code)
        return users

    def _place(self, code: CodeType, number: int) -> int:
        key = (self._number(code), number)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self._places)
            self._describe(place, code, number)
        return place

    def _number(self, code: CodeType) -> int:
        """Returns a number for the code object: its `id()`. Keeps the code object alive, so that no other object gets
        the same `id()`.
        """
        self._codes.setdefault(id(code), code)
        return id(code)

    def _stack(self, native_id: int) -> list[tuple[CodeType, int]]:
        if native_id not in self._threads:
            self._threads[native_id] = len(self._threads)
            self._stacks[native_id] = []
            self._new_thread(self._threads[native_id], native_id)
        return self._stacks[native_id]

    def _note(self, native_id: int) -> None:
        stack = self._stacks[native_id]
        depth = min(len(stack), _MOST_DEPTH)
        place = stack[-1][1] if stack else NOWHERE
        with self._lock:
            if self._map is None:
                return
            at = HEADER_BYTES + self._written % self._capacity * ENTRY.size
            ENTRY.pack_into(self._map, at, time.perf_counter_ns(), place, self._threads[native_id], depth)
            self._written += 1
            _WRITTEN.pack_into(self._map, _WRITTEN_AT, self._written)
