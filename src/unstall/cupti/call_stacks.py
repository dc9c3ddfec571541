"""Records the Python stack of each call to CUDA. The stack is read on the calling thread during the
call.

There is no overhead per line of the program: a callback in C follows a thread's chain of frames
only when the thread calls CUDA (`_frames.c`). Reading 30 frames takes 0.05 to 0.1 µs. An event for
each line of Python would be slower: transformer models run about 13 lines between two kernel
launches, and each event takes 0.2 µs (`python -m benchmarks.cupti_parts`; docs/recording.md).

A code object must be registered before its frames can be read. From Python 3.12 on,
`sys.monitoring` reports each code object when the code first runs. Before Python 3.12, all existing
functions are registered when the recording starts.

The file `places.jsonl` gets a line for each stack: {"stack": number, "frames": [[file, line,
function], …]}. The innermost frame comes first.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from unstall.errors import UnstallError
from unstall.frameworks import PREFETCH_WAIT, is_left_out_of_stacks
from unstall.guest.backward_passes import ENGINE, ENGINE_MODULES
from unstall.guest.monitoring import let_go, take
from unstall.guest.patching import unwrapped, wrap
from unstall.guest.threads import start_thread
from unstall.json_lines import append_json_lines
from unstall.lines.clock import PLACES, line_at, running_frames

try:
    from unstall.cupti import _cupti
except ImportError:
    _cupti = None  # type: ignore[assignment]  # built only on Linux with a C compiler

BACKWARD, LOADING = "backward", "enumerate(DataLoader)#__next__"
_DESCRIBE_S = 0.5
# Calls of these functions are spans: (module, attribute path, name of the span).
_WATCHED = (
    *((module, (ENGINE,), BACKWARD) for module in ENGINE_MODULES),
    ("torch.utils.data.dataloader", ("_BaseDataLoaderIter", "__next__"), LOADING),
    ("unstall.guest.batch_waits", ("waited_for",), PREFETCH_WAIT),
)


@dataclass(frozen=True, slots=True)
class _Watched:
    """A function whose calls are recorded as spans.

    Attributes:
        owner: The module or class that has the function.
        name: The function's name in `owner`.
        code: The function's code without wrappers.
        span: The name of the spans.
    """

    owner: object
    name: str
    code: CodeType
    span: str


class CallStacks:
    """Records the Python stack of each CUDA call for the recorder `cupti`. Writes the frames of the
    stacks to a file in a folder.
    """

    name = "calls"
    any_thread = True

    def __init__(self, folder: Path) -> None:
        """Prepares to write stacks to a file in `folder`.

        Raises:
            UnstallError: Stacks cannot be read in this process.
        """
        why = unavailable()
        if why is not None:
            raise UnstallError(why)
        self._path = str(folder / PLACES)
        self._described = 0
        self._threads: set[tuple[int, str]] = set()
        self._lines: dict[tuple[CodeType, int], int] = {}
        self._tool: int | None = None
        self._watched: list[CodeType] = []
        self._wrappers = ExitStack()
        self._lock = threading.Lock()
        self._over = threading.Event()

    def start(self) -> None:
        """Begins to read the stack of each CUDA call.

        Raises:
            UnstallError: sys.monitoring has no free tool id: other tools, such as debuggers, use
                all of them.
        """
        watched = list(_watched())
        self._watched = [each.code for each in watched]
        self._write([{"span": number, "name": each.span} for number, each in enumerate(watched)])
        with ExitStack() as undo:
            undo.callback(self._leave)
            if sys.version_info >= (3, 12):
                self._monitor()
            else:
                _cupti.know(list(_all_code()), self._watched, None)
                self._wrap(watched)
            start_thread(self._keep_describing)
            undo.pop_all()

    def stop(self) -> None:
        """Stops reading stacks. Writes the frames of stacks that are not written yet."""
        self._leave()
        self.flush()
        with self._lock:
            _cupti.know([], [], None)  # it keeps all code alive

    def flush(self) -> None:
        """Writes the frames of stacks that are not written yet, and the names of new Python
        threads.

        Thread names are written each time, because a thread may end before the recording ends.
        """
        with self._lock:
            stacks = _cupti.stacks(self._described)
            self._write(
                [
                    {"stack": self._described + number, "frames": [self._frame(*frame) for frame in frames]}
                    for number, frames in enumerate(stacks)
                ]
            )
            self._described += len(stacks)
            threads = {(each.native_id, each.name) for each in threading.enumerate() if each.native_id is not None}
            new = sorted(threads - self._threads)
            self._write([{"python_thread": native_id, "name": name} for native_id, name in new])
            self._threads |= threads

    def forked(self) -> None:
        """Stops reading stacks in a forked child process. Called in that process."""
        self._leave()

    def facts(self) -> dict[str, object]:
        """Returns facts for the trace: a dict with the number of distinct stacks."""
        return {"stacks": self._described}

    def _monitor(self) -> None:
        if sys.version_info < (3, 12):
            return
        monitoring = sys.monitoring
        tool = self._tool = take("unstall stacks")
        running = [frame.f_code for frame in running_frames()]
        _cupti.know(running, self._watched, monitoring.DISABLE)
        events = monitoring.events
        for event, callback in (
            (events.PY_START, _cupti.py_start),
            (events.PY_RESUME, _cupti.py_start),
            (events.PY_THROW, _cupti.py_throw),
            (events.PY_RETURN, _cupti.py_end),
            (events.PY_UNWIND, _cupti.py_end),
        ):
            monitoring.register_callback(tool, event, callback)
        monitoring.set_events(tool, events.PY_START | events.PY_RESUME | events.PY_THROW | events.PY_UNWIND)
        for code in self._watched:
            monitoring.set_local_events(tool, code, events.PY_START | events.PY_RETURN)
        # Re-enable events that an earlier recording disabled.
        monitoring.restart_events()

    def _wrap(self, watched: list[_Watched]) -> None:
        """Wraps the functions whose calls are spans. Needed for versions of Python before 3.12, because these versions
        have no sys.monitoring.
        """
        for each in watched:
            self._wrappers.callback(wrap(each.owner, each.name, _noted(each.code)))

    def _leave(self) -> None:
        self._over.set()
        self._wrappers.close()
        if self._tool is not None:
            let_go(self._tool, self._watched)
            self._tool = None

    def _keep_describing(self) -> None:
        """Writes new stacks at regular intervals, so that the stacks are not lost if the process is killed."""
        while not self._over.wait(_DESCRIBE_S):
            with suppress(OSError):  # a disk that is full now may not be so at the end
                self.flush()

    def _frame(self, code: CodeType, offset: int) -> tuple[str, int, str]:
        line = self._lines.get((code, offset))
        if line is None:
            line = self._lines[code, offset] = line_at(code, offset)
        return code.co_filename, line, code.co_name

    def _write(self, entries: list[dict[str, object]]) -> None:
        append_json_lines(self._path, entries)


def unavailable() -> str | None:
    """Returns the reason why the stacks of CUDA calls cannot be read in this process; None if they can be read."""
    if _cupti is None:
        return "the C extension is not built: install a C compiler, then unstall again"
    if not _cupti.frames_supported():
        return f"where frames are in Python {sys.version_info.major}.{sys.version_info.minor} is not known"
    return None if _reads_rightly() else "frames of this build of Python are not where they should be"


def _reads_rightly() -> bool:
    """Returns whether the C extension reads the same frames as Python does."""

    frame = sys._getframe()
    expected, outer = [], frame.f_back
    while outer is not None:
        expected.append((outer.f_code, outer.f_lineno or 0))
        outer = outer.f_back
    _cupti.know([frame.f_code, *(code for code, _ in expected)], [], None)
    # On one line, so that both see the same line.
    number, line = _cupti.here(), frame.f_lineno
    if number < 0:
        return False
    seen = [(code, line_at(code, offset)) for code, offset in _cupti.stacks(number)[0]]
    return seen == [(frame.f_code, line), *expected][:_MOST_FRAMES]


_MOST_FRAMES = 96


def _watched() -> Iterator[_Watched]:
    """Of the functions whose calls are recorded as spans, yields those that the program has imported."""
    for module, path, span in _WATCHED:
        owner: object = sys.modules.get(module)
        for part in path[:-1]:
            owner = getattr(owner, part, None)
        function = unwrapped(getattr(owner, path[-1], None))
        if function is not None:
            yield _Watched(owner, path[-1], function.__code__, span)


def _noted(code: CodeType) -> Callable[..., Any]:
    """Returns a wrapper function for `wrap`. The wrapper function records the begin and the end of each call."""

    def call(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        _cupti.py_start(code, 0)
        try:
            return original(*args, **kwargs)
        finally:
            _cupti.py_end(code)

    return call


def _all_code() -> Iterator[CodeType]:
    """Yields the code objects of all existing functions, of their nested functions, and of all running frames.

    Omits unstall's own code, because unstall's wrappers are not part of the program's stacks.
    """
    seen: dict[int, CodeType] = {}  # by id(): code objects of two files may be equal
    # Uses type(): isinstance would run the program's own __class__ properties.
    waiting = [each.__code__ for each in _objects() if type(each) is FunctionType]
    waiting += [frame.f_code for frame in running_frames()]
    while waiting:
        code = waiting.pop()
        if id(code) not in seen and not is_left_out_of_stacks(code.co_filename):
            seen[id(code)] = code
            yield code
            waiting += [each for each in code.co_consts if isinstance(each, CodeType)]


def _objects() -> list[object]:
    """Returns all objects that the garbage collector tracks, including the objects that `gc.freeze()` hides.

    A hidden object is found only if a module or a tracked object refers to it, directly or through other objects.
    """
    found = gc.get_objects()
    if not gc.get_freeze_count():
        return found
    new: list[object] = [*found, sys.modules]
    seen = set(map(id, new))
    while new:
        referred = {id(each): each for each in gc.get_referents(*new) if gc.is_tracked(each)}
        new = [each for number, each in referred.items() if number not in seen]
        seen.update(referred)
        found += new
    return found
