"""Watches a program from another process. If the program hangs, finds out where. Can also end the
hanging program, if the user asked for that.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from msgspec.structs import replace

from unstall.blaming.child import RING
from unstall.blaming.hangs.processes import Found, effort_of, group_of, state_of
from unstall.blaming.hangs.room import remove_ring
from unstall.blaming.hangs.snapshot import snapshot
from unstall.blaming.result import Hang
from unstall.blaming.ring import pulse

LEAST_S, MOST_S, PAUSES = 60.0, 1800.0, 20
"""If the user sets no time-out, the time-out is PAUSES times the longest pause so far, but at least
LEAST_S and at most MOST_S, in seconds. A pause is a time in which no process of the program makes
progress.
"""
_TICK_S, _LONGEST_TICK_S = 0.5, 2.0
_BUSY = 0.1  # of a core: a process whose threads only poll uses less
_GRACE_S = 5.0
_LOOK_S = 1.0
_TOLD = "told"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user wants for programs that hang.

    Attributes:
        after_s: The time-out in seconds: a program that makes no progress for this long counts as
            hanging. Infinity turns the search for hangs off. If None, the time-out is derived from
            the program's pauses.
        end: Whether to end a program that hangs.
    """

    after_s: float | None = None
    end: bool = False

    @property
    def never(self) -> bool:
        """Whether the user has turned off the search for hangs."""
        return self.after_s == math.inf


def time_out_s(after_s: float | None, longest_s: float) -> float:
    """Returns the time-out in seconds: a program that makes no progress for this long counts as
    hanging.

    Args:
        after_s: The time-out that the user has set, in seconds; None if it is to be derived from
            `longest_s`.
        longest_s: The longest time in which the program has made no progress so far, in seconds.
    """
    return after_s if after_s is not None else min(max(LEAST_S, PAUSES * longest_s), MOST_S)


@dataclass(slots=True)
class _Watched:
    """A process that is watched for hangs.

    Attributes:
        found: The process and its folder.
        own: Whether the process belongs to this `unstall run`. If false, it is a rank that belongs
            to another `unstall run`.
        pulse: Bytes of the process's ring file at the last look. They change while the process
            makes progress.
        effort: The result of `effort_of` for the process at the last look.
        worked: Whether the process has put work on a device.
        failed: Whether a CUDA call that the process made has returned an error of the device.
        quiet_s: Time since the last progress of any watched process.
        idle_s: Time since this process last used the CPU.
        paused_s: Length of the last pause. A pause is a time in which no watched process makes
            progress.
        longest_s: Length of the longest pause after the process first put work on a device.
    """

    found: Found
    own: bool = True
    pulse: bytes = b""
    effort: tuple[float, int, int] = (0.0, 0, 0)
    worked: bool = False
    failed: bool = False
    quiet_s: float = 0.0
    idle_s: float = 0.0
    paused_s: float = 0.0
    longest_s: float = 0.0

    def runs(self) -> bool:
        return _runs(self.found)

    def moved(self, passed_s: float) -> bool:
        """Returns whether the process has made progress since the previous call, `passed_s` seconds ago."""
        before, had_worked = self.pulse, self.worked
        used, self.effort = self.effort, effort_of(self.found.who.pid)
        self.pulse, self.worked, self.failed = _pulse(self.found.folder)
        computed = self.effort[0] - used[0] > _BUSY * passed_s
        self.idle_s = 0.0 if computed else self.idle_s + passed_s
        if self.worked and not had_worked:
            self.quiet_s = 0.0  # pauses are counted from here
        if self.worked:
            return self.pulse != before
        return computed or self.effort[1:] != used[1:]  # a program that still starts computes or reads

    def go_on(self) -> None:
        """Ends the current pause, because this process or another process has made progress."""
        self.paused_s, self.quiet_s = self.quiet_s, 0.0
        self.longest_s = max(self.longest_s, self.paused_s) if self.worked else 0.0

    def limit_s(self, wanted: Wanted) -> float | None:
        """Returns the time-out of this process in s.

        Returns None if the process is not checked for hangs. This is so in three cases: a CUDA call of the process has
        returned an error; the process is a helper; or the process has not used a device yet and the user has set no
        time-out.
        """
        who = self.found.who
        if self.failed or not (self.worked or self.found.main or who.rank is not None):
            return None
        return time_out_s(wanted.after_s, self.longest_s) if self.worked or wanted.after_s is not None else None


@dataclass
class Watcher:
    """A context manager that watches the processes of one `unstall run` for hangs. It watches them
    in a separate thread, so that the main thread can pass signals to the program meanwhile.

    Attributes:
        folder: The folder of the `unstall run`.
        wanted: What the user wants for programs that hang.
        tell: A function that is called with each hang that is found.
        say: A function that is called with a sentence, for example if the program continues after a
            hang.
        hang: The last hang that was found; None if there was none.
    """

    folder: Path
    wanted: Wanted
    tell: Callable[[Hang], None]
    say: Callable[[str], None]
    hang: Hang | None = None
    _watched: dict[int, _Watched] = field(default_factory=dict)
    _stuck: frozenset[int] = frozenset()
    _looked: float = field(default_factory=time.monotonic)
    _kill_at: float | None = None
    _told: Path | None = None
    _ends: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    def __enter__(self) -> Self:
        """Starts the thread that watches the processes."""
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Ends the thread that watches the processes. If this thread is reporting a hang, waits
        until the report is complete.
        """
        self._ends.set()
        self._thread.join()

    def _watch(self) -> None:
        said = ""
        while not self._ends.wait(_TICK_S):
            try:
                self._tick()
            except Exception as error:
                why, before = f"whether the program hangs is not known: {type(error).__name__}: {error}", said
                said = why
                if why != before:  # it may be so each time
                    with suppress(OSError):
                        self.say(why)

    def _tick(self) -> None:
        passed = time.monotonic() - self._looked
        self._looked += passed
        if self._kill_at is not None:
            if self._looked >= self._kill_at:
                self._send(signal.SIGKILL)
                self._kill_at = None
            return
        self._look(min(passed, _LONGEST_TICK_S))  # longer if we were stopped, and the program with us
        if self.wanted.never:
            return
        if self._stuck:
            self._see_whether_it_moves()
        elif stuck := self._those_stuck():
            after_s = min(limit for pid in stuck if (limit := self._watched[pid].limit_s(self.wanted)))
            if not self._computes(after_s):
                self._report(stuck, after_s)

    def _look(self, passed_s: float) -> None:
        for found in group_of(self.folder):
            own = self.folder in (found.folder, found.folder.parent)
            self._watched.setdefault(found.who.pid, _Watched(found, own)).found = found
        for pid, each in list(self._watched.items()):
            if not (each.own and each.found.main) and not each.runs():
                self._forget(pid)
        moved = [each.moved(passed_s) for each in self._watched.values() if each.runs()]
        for each in self._watched.values():
            if any(moved):  # the others may wait for it
                each.go_on()
            else:
                each.quiet_s += passed_s

    def _computes(self, within_s: float) -> bool:
        """Returns whether some process has used the CPU in the last `within_s` seconds.

        A process with unfinished work on the device does not count.
        """
        idle = {pid: each.idle_s for pid, each in self._watched.items() if each.worked and each.idle_s < within_s}
        if not idle:
            return False
        processes = snapshot([self._watched[pid].found for pid in idle], {}, frozenset())
        computed = [idle[each.pid] for each in processes if each.state == "moves" and not each.streams]
        for each in self._watched.values():
            each.quiet_s = min([each.quiet_s, *computed])
        return bool(computed)

    def _forget(self, pid: int) -> None:
        """Removes the files of a process that has ended.

        The folder of a rank is not removed, because other ranks may wait for this rank.
        """
        gone = self._watched.pop(pid)
        if gone.own:
            remove_ring(gone.found.folder)
            if gone.found.who.rank is None:
                shutil.rmtree(gone.found.folder, ignore_errors=True)

    def _those_stuck(self) -> frozenset[int]:
        found = set()
        for pid, each in self._watched.items():
            limit = each.limit_s(self.wanted)
            if each.own and limit is not None and each.quiet_s >= limit and each.runs():
                found.add(pid)
        return frozenset(found)

    def _report(self, stuck: frozenset[int], after_s: float) -> None:
        self._stuck = stuck
        end = self.wanted.end and self.wanted.after_s is not None
        self.hang = Hang(after_ns=round(after_s * 1e9), ended=end)
        try:
            quiet = {pid: each.quiet_s for pid, each in self._watched.items()}
            waiting = frozenset(pid for pid, quiet_s in quiet.items() if quiet_s >= min(after_s / 2, _LOOK_S))
            group = group_of(self.folder)
            processes = snapshot(group, quiet, waiting)
            # without a time-out of the user's, a host that waits may be well
            end = end or (self.wanted.end and any(each.is_sure for process in processes for each in process.streams))
            self.hang = replace(self.hang, processes=processes, ended=end)
            if self._is_first_to_tell(group):
                self.tell(self.hang)
            else:
                self.say("this rank hangs, too: another rank's report has it")
        except Exception as error:
            self.say(f"the program hangs, but the report failed: {type(error).__name__}: {error}")
        finally:
            if end:
                self._send(signal.SIGTERM)
                self._kill_at = time.monotonic() + _GRACE_S

    def _is_first_to_tell(self, group: Sequence[Found]) -> bool:
        """Returns whether this `unstall run` is the first to report this hang.

        torchrun may start one `unstall run` for each rank, and each of them may find the same hang.
        """
        self._told = next((each.folder for each in group if each.main and _runs(each)), self.folder) / _TOLD
        with suppress(OSError, ValueError):
            if not state_of(int(self._told.read_text())):
                self._told.unlink()
        try:
            with self._told.open("x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            self._told = None
        except OSError:
            return True
        return self._told is not None

    def _see_whether_it_moves(self) -> None:
        self._stuck &= self._watched.keys()
        moving = [each for pid in self._stuck if not (each := self._watched[pid]).quiet_s and each.runs()]
        if moving:
            assert self.hang is not None
            after = max(each.paused_s for each in moving)
            self.hang = replace(self.hang, moved_ns=round(after * 1e9))
            self.say(f"the program moves again, after {after:.0f} s")
            self._stuck = frozenset()
            if self._told is not None:
                self._told.unlink(missing_ok=True)

    def _send(self, number: signal.Signals) -> None:
        for pid, each in self._watched.items():
            if each.own and each.runs():
                with suppress(OSError):
                    os.kill(pid, number)


def look_now(folder: Path) -> Hang:
    """Watches the processes of one `unstall run` for a second. Returns what each of them is doing,
    and which of them make progress.

    `folder` is the folder of the `unstall run`.
    """
    group = group_of(folder)
    quiet = _quiet(group)
    return Hang(after_ns=None, processes=snapshot(group, quiet, frozenset(quiet)))


def _quiet(group: Sequence[Found]) -> dict[int, float]:
    """Watches the processes for a second. Returns {process id: 1.0} for each process without progress."""
    watched = [_Watched(found) for found in group]
    for each in watched:
        each.moved(_LOOK_S)
    if watched:
        time.sleep(_LOOK_S)
    return {each.found.who.pid: _LOOK_S for each in watched if not each.moved(_LOOK_S)}


def _runs(found: Found) -> bool:
    return bool(state_of(found.who.pid, found.who.started))


def _pulse(folder: Path) -> tuple[bytes, bool, bool]:
    """Returns what `ring.pulse` returns for the ring file in this folder; (b"", False, False) if that fails."""
    try:
        return pulse(folder / RING)
    except (OSError, ValueError):
        return b"", False, False
