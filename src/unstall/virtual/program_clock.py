"""Lets a program on the virtual GPU see virtual times: replaces `time.perf_counter`, `time.time`
and `time.sleep`.

`time.monotonic` still returns real time, because threads, queues and locks use it. `datetime`,
`time.process_time` and `time.clock_gettime` also return real time.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import FrameType, FunctionType, ModuleType
from typing import Protocol

from unstall.figures import duration
from unstall.frameworks import OURS, is_framework, is_users
from unstall.guest import instants
from unstall.guest.instants import LateRead
from unstall.guest.patching import followed
from unstall.guest.ranks import speaker
from unstall.virtual.clock_log import ClockLog, reader

_NS = 1_000_000_000
_WORTH_TELLING_NS = 10_000_000
_TAKING_COPIES = ("timeit",)
_WITH_TIMERS = ("Timer", "timeit", "repeat")  # in timeit: their default timers were bound at import


class Clock(Protocol):
    """A virtual clock of the host that the program can read."""

    def now_ns(self) -> int:
        """Returns the virtual time of the calling thread: the ns since the clock began. For each
        thread, it never decreases.
        """

    def read_late(self, offset_ns: int) -> LateRead:
        """Reads this clock for the calling thread, without waiting for the simulation. The read
        that it returns finds out its time, plus `offset_ns`, only when it is asked for the time.
        """

    def advance(self, ns: int) -> None:
        """Adds `ns` to the virtual time of the calling thread."""

    def not_charged_ns(self) -> int:
        """Returns for how long, in ns of real time, the main thread has worked so far without advancing this clock."""


class _StandIn:
    """A replacement for a built-in function. It behaves as one in two ways: as an attribute of a
    class, it does not become a method; and pickle stores only its name.
    """

    def __init__(self, function: Callable[[], float], instead: Callable[[], float]) -> None:
        functools.update_wrapper(self, function)
        self._instead = instead

    def __call__(self) -> float:
        return self._instead()

    def __reduce__(self) -> str:
        name: str = vars(self)["__qualname__"]
        return name


class ProgramClock:
    """Replaces functions of the module `time` by `install`, and restores them by `remove`.

    Before `start`, the replacements return real times. After `start`, they return virtual times
    that continue from the last real time. After `remove`, a replacement to which the program kept a
    reference returns real times.

    Attributes:
        log: Where the program read the virtual clock.
    """

    def __init__(self) -> None:
        self._clock: Clock | None = None
        self._undo = ExitStack()
        self._within = threading.local()
        self._offsets = (0, 0)  # ns, (perf_counter, time): added to the virtual clock if it runs, else to the real
        self._not_charged, self._told = -1, False  # as of the main thread's last read; -1 before it
        self._began = 0  # the virtual time in ns of threads that have not read the clock
        self._perf_counter_ns, self._time_ns = time.perf_counter_ns, time.time_ns
        self.log = ClockLog()

    def install(self) -> None:
        """Replaces the functions in `time`, as default timers in `timeit`, and in the user's
        modules that imported them by name.
        """
        originals: dict[object, object] = {
            function: _StandIn(function, instead)
            for function, instead in (
                (time.perf_counter, lambda: self._perf_counter() / _NS),
                (time.perf_counter_ns, lambda: self._perf_counter()),
                (time.time, lambda: self._time() / _NS),
                (time.time_ns, lambda: self._time()),
            )
        }
        originals[time.sleep] = followed(time.sleep, self._slept)  # keeps our frames out of a Ctrl-C's traceback
        for module in (time, *_holders()):
            for name, value in list(vars(module).items()):
                if _is_any(value, originals):
                    self._put(module, name, originals[value])
        timeit = sys.modules.get("timeit")
        for name in _WITH_TIMERS if timeit is not None else ():
            function = getattr(timeit, name)
            self._put_default(vars(function)["__init__"] if isinstance(function, type) else function, originals)

    def start(self, clock: Clock) -> None:
        """Lets the replaced functions return times of `clock` from now on. The times continue from
        the last real ones.
        """
        self._within.last = self._began = clock.now_ns()
        self._shift(-self._began, 1)
        self._clock = clock
        instants.read_late = lambda: clock.read_late(self._offsets[0])

    def stop(self) -> None:
        """Lets the replaced functions return real times again. They continue from the last virtual ones."""
        if self._clock is not None:
            last, self._clock = self._virtual(), None
            instants.read_late = None
            self._shift(last, -1)

    def remove(self) -> None:
        """Puts the original functions back. Replacements to which the program kept a reference
        return real times from now on.
        """
        self._undo.close()
        if self._clock is not None:
            instants.read_late = None
        self._clock, self._offsets = None, (0, 0)

    def _shift(self, virtual_ns: int, sign: int) -> None:
        """Changes the offsets of this clock, so that `time.perf_counter` and `time.time` do not
        jump when virtual time begins or ends.

        Args:
            virtual_ns: The current virtual time: negative when it begins, positive when it ends.
            sign: 1 when virtual time begins, -1 when it ends.
        """
        perf_counter, wall = self._offsets
        self._offsets = (
            perf_counter + virtual_ns + sign * self._perf_counter_ns(),
            wall + virtual_ns + sign * self._time_ns(),
        )

    def _perf_counter(self) -> int:
        return self._offsets[0] + (self._read() if self._clock else self._perf_counter_ns())

    def _time(self) -> int:
        return self._offsets[1] + (self._read() if self._clock else self._time_ns())

    def _read(self) -> int:
        """Returns the virtual time of the calling thread in ns, and notes that the program read it."""
        asked = not getattr(self._within, "asking", False)
        now = self._virtual()
        if asked:
            self.log.add(now)
        return now

    def _virtual(self) -> int:
        """Returns the virtual time of the calling thread in ns. If it is the simulation that reads
        the clock, returns the time of the thread's last read.
        """
        clock, within = self._clock, self._within
        last: int = max(getattr(within, "last", 0), self._began)
        if clock is None or getattr(within, "asking", False):
            return last
        within.asking = True
        try:
            within.last = max(last, clock.now_ns())
            if threading.current_thread() is threading.main_thread():
                self._tell_of_free_work(int(within.last) - last, clock.not_charged_ns())
        finally:
            within.asking = False
        return int(within.last)

    def _tell_of_free_work(self, passed_ns: int, not_charged_ns: int) -> None:
        """Warns the user if, between two reads of the clock, at least 10 ms of work took no virtual
        time, and this was more than the virtual time between them. Does so at most once. Ignores reads
        by unstall, except those for the program, such as by `Stopwatch`.

        Args:
            passed_ns: The virtual time between the reads.
            not_charged_ns: What `Clock.not_charged_ns` returned at the second read.
        """
        before, self._not_charged = self._not_charged, not_charged_ns
        free = not_charged_ns - before
        if self._told or before < 0 or free < max(_WORTH_TELLING_NS, passed_ns):
            return
        frame = reader()
        if frame is None or _is_own_time(frame):
            return
        self._told = True
        print(
            f"{speaker(os.environ)}{_where()}: before this read of the clock, {duration(free)} of work here took no "
            "time on the virtual clock, whose model does not know it (NumPy, loops, other libraries): --host mixed "
            "charges it",
            file=sys.stderr,
            flush=True,
        )

    def _slept(self, seconds: float) -> None:
        if self._clock is not None:
            self._clock.advance(round(seconds * _NS))

    def _put(self, module: ModuleType, name: str, value: object) -> None:
        before = getattr(module, name)
        setattr(module, name, value)

        def undo() -> None:
            if getattr(module, name, None) is value:
                setattr(module, name, before)

        self._undo.callback(undo)

    def _put_default(self, function: FunctionType, originals: dict[object, object]) -> None:
        """Replaces those default arguments of `function` that are functions of `time`.

        Args:
            function: The function whose defaults are replaced.
            originals: The replacement of each function of `time`.
        """
        before = function.__defaults__
        function.__defaults__ = tuple(
            originals[value] if _is_any(value, originals) else value for value in before or ()
        )
        self._undo.callback(setattr, function, "__defaults__", before)


def _is_any(value: object, originals: dict[object, object]) -> bool:
    """Returns whether `value` is a key of `originals`. The keys are built-in functions such as
    `time.time`. Only a built-in function is looked up, because other values may not be hashable.
    """
    return type(value) is type(time.monotonic) and value in originals


def _is_own_time(frame: FrameType) -> bool:
    """Returns whether the frame, which reads the clock, is of unstall and reads it for unstall's own use."""
    return frame.f_code.co_filename.startswith(OURS) and frame.f_code is not instants.for_program.__code__


def _where() -> str:
    """Returns `file:line` of the innermost frame that is the user's, such as that of a profiler's block if torch's
    profiler reads the clock. If there is none, returns that of the innermost frame outside of unstall.
    """
    frames = [frame for frame in _outward(sys._getframe()) if not frame.f_code.co_filename.startswith(OURS)]
    found = next((frame for frame in frames if is_users(frame.f_code.co_filename)), frames[0])
    return f"{found.f_code.co_filename}:{found.f_lineno}"


def _outward(frame: FrameType | None) -> Iterator[FrameType]:
    """Yields a frame and its callers, the innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _holders() -> Iterator[ModuleType]:
    """Yields the modules that may hold a function of `time` under a name of their own, for example
    after `from time import perf_counter`: the user's modules, and `timeit`.
    """
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and (name in _TAKING_COPIES or _is_users(module)):
            yield module


def _is_users(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ == "__main__"  # a notebook or an interactive session
    return not is_framework(file) and "site-packages" not in file and "dist-packages" not in file
