"""The stack that each call to CUDA is made from, read off the calling thread at that moment.

It costs nothing per line of the program: where a thread is matters only when it calls CUDA, and then a callback in C
follows its chain of frames (`_frames.c`). It earned 2.5 µs a launch of a transformers model: 0.05 to 0.1 µs for 30
frames, where 13 line events of 0.2 µs come (`python -m benchmarks.cupti_parts`; docs/recording.md).

Code objects must be known beforehand. From Python 3.12 on `sys.monitoring` reports each once, as it first runs; before
that, all functions that exist are looked up when the recording starts.

`places.jsonl` gets a line for each stack: {"stack": number, "frames": [[file, line, function], …]}, innermost first.
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
from unstall.frameworks import is_left_out_of_stacks
from unstall.guest.monitoring import let_go, take
from unstall.guest.patching import unwrapped, wrap
from unstall.guest.threads import start_thread
from unstall.json_lines import append_json_lines
from unstall.lines.clock import PLACES, line_at, running_frames

try:
    from unstall.cupti import _cupti
except ImportError:
    _cupti = None  # type: ignore[assignment]  # built only on Linux, where there is a C compiler

BACKWARD, LOADING = "backward", "enumerate(DataLoader)#__next__"
_DESCRIBE_S = 0.5
# Calls of these are spans: (module, names to it, what the span is called).
_WATCHED = (
    ("torch.autograd", ("_engine_run_backward",), BACKWARD),  # of that name all callers take it
    ("torch.utils.data.dataloader", ("_BaseDataLoaderIter", "__next__"), LOADING),
)


@dataclass(frozen=True, slots=True)
class _Watched:
    """A function whose calls are spans: what it is of what, and its code without anybody's wrappers."""

    owner: object
    name: str
    code: CodeType
    span: str


class CallStacks:
    """Makes the stacks of calls known to the recorder `cupti`, and describes them in `folder`."""

    name = "calls"
    any_thread = True

    def __init__(self, folder: Path) -> None:
        """Raises UnstallError where stacks cannot be read."""
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
        """Know the code there is, and that which comes. Raises UnstallError where no tool of sys.monitoring is free."""
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
        """Watch no more, and describe the stacks that were seen."""
        self._leave()
        self.flush()
        with self._lock:
            _cupti.know([], [], None)  # it kept all code alive

    def flush(self) -> None:
        """Describe the stacks that are new, and Python's threads, which may have ended when recording does."""
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
        """In a forked child: watch no more."""
        self._leave()

    def facts(self) -> dict[str, object]:
        """How many different stacks there were."""
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
        # Events that an earlier recording disabled come again.
        monitoring.restart_events()

    def _wrap(self, watched: list[_Watched]) -> None:
        """Before Python 3.12: wrappers in place of sys.monitoring, for calls that are spans."""
        for each in watched:
            self._wrappers.callback(wrap(each.owner, each.name, _noted(each.code)))

    def _leave(self) -> None:
        self._over.set()
        self._wrappers.close()
        if self._tool is not None:
            let_go(self._tool, self._watched)
            self._tool = None

    def _keep_describing(self) -> None:
        """So that a process that is killed leaves its lines too."""
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
    """Why stacks cannot be read at calls here; None where they can."""
    if _cupti is None:
        return "the C extension is not built: install a C compiler, then unstall again"
    if not _cupti.frames_supported():
        return f"where frames are in Python {sys.version_info.major}.{sys.version_info.minor} is not known"
    return None if _reads_rightly() else "frames of this build of Python are not where they should be"


def _reads_rightly() -> bool:
    """Whether C finds the same frames as Python."""

    frame = sys._getframe()
    expected, outer = [], frame.f_back
    while outer is not None:
        expected.append((outer.f_code, outer.f_lineno or 0))
        outer = outer.f_back
    _cupti.know([frame.f_code, *(code for code, _ in expected)], [], None)
    # On one line, so that both see the same one.
    number, line = _cupti.here(), frame.f_lineno
    if number < 0:
        return False
    seen = [(code, line_at(code, offset)) for code, offset in _cupti.stacks(number)[0]]
    return seen == [(frame.f_code, line), *expected][:_MOST_FRAMES]


_MOST_FRAMES = 96


def _watched() -> Iterator[_Watched]:
    """The functions whose calls are spans, as far as the program has imported them."""
    for module, path, span in _WATCHED:
        owner: object = sys.modules.get(module)
        for part in path[:-1]:
            owner = getattr(owner, part, None)
        function = unwrapped(getattr(owner, path[-1], None))
        if function is not None:
            yield _Watched(owner, path[-1], function.__code__, span)


def _noted(code: CodeType) -> Callable[..., Any]:
    """A wrapper that notes for the recorder when a function begins and ends."""

    def call(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        _cupti.py_start(code, 0)
        try:
            return original(*args, **kwargs)
        finally:
            _cupti.py_end(code)

    return call


def _all_code() -> Iterator[CodeType]:
    """The code of all functions there are, and of those that they would make, and of frames that run; none of ours,
    whose wrappers are no part of the program's stacks."""
    seen: dict[int, CodeType] = {}  # by which object it is: code of two files may be equal
    # By type: isinstance would run the program's own __class__ properties.
    waiting = [each.__code__ for each in _objects() if type(each) is FunctionType]
    waiting += [frame.f_code for frame in running_frames()]
    while waiting:
        code = waiting.pop()
        if id(code) not in seen and not is_left_out_of_stacks(code.co_filename):
            seen[id(code)] = code
            yield code
            waiting += [each for each in code.co_consts if isinstance(each, CodeType)]


def _objects() -> list[object]:
    """All that the collector tells of, and of what `gc.freeze()` hid from it all that modules lead to."""
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
