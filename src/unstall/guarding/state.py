"""The functions that are called by a source of waits. A source is the virtual GPU, or hooks in a real GPU's driver.

A source adds itself by `regions.add_source` and calls `on_wait` only while the source is switched on. For each wait,
the source runs the following code in the thread that waits. The thread must have the GIL.

    pending = on_wait(kind, operator)  # right before the wait; may raise SyncError: then raise this error, do not wait
    ...  # the wait
    if pending is not None:
        pending.waited(duration_ns)  # right after; may raise, if the program turns warnings into errors

`kind` is one of `kinds.KINDS`. If the operator is not known, it is inferred from the call in the user's source line.
The search for this line starts at the caller's frame and goes outward. If the thread runs no Python code because it is
an autograd thread, the search starts at the frame that called backward().

`on_wait` and `waited` never wait for the GPU or for another thread, because a source may call them in the middle of a
driver call. A wait may contain another wait. For example, a blocking copy ends with a synchronization. In this case, a
source reports only the outer wait.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from unstall.guarding import backward, regions
from unstall.guarding.guard import Guard
from unstall.guarding.kinds import WORDS, Kind
from unstall.guarding.places import NOWHERE, Place, place_of
from unstall.guarding.wait import SyncWarning, Wait
from unstall.ways_to_wait import (
    CACHE_GROWS,
    CACHE_IS_EMPTIED,
    CACHE_IS_GIVEN_BACK,
    FROM_PYTHON_VALUES,
    LIBRARY_TAKES_MEMORY,
    PAGEABLE_UPLOAD,
    PINNED_UPLOAD,
    Way,
    called,
    is_known,
    is_ours,
    way_of,
)
from unstall.ways_to_wait import Wait as KnownWait

_ENGINE = re.compile(r"autograd::engine::|\w+Backward\d*$")  # what runs the operators of a backward pass


@dataclass(slots=True)
class Pending:
    """A wait for the GPU that has begun and has not ended.

    Attributes:
        guard: The guard to which the wait will be reported.
        wait: The wait, without its length.
        place: The position of the wait in the program's source.
    """

    guard: Guard
    wait: Wait
    place: Place

    def waited(self, duration_ns: int | None) -> None:
        """Reports the wait to its guard after the wait has ended. `duration_ns` is the length of the wait in ns, or
        None if the length is not known."""
        wait = replace(self.wait, duration_ns=duration_ns)
        self.guard.note(wait)
        if self.guard.mode == "warn":
            _warn(wait, self.place)


@dataclass(frozen=True, slots=True)
class Guarded:
    """A thread that is about to wait for the GPU under a guard.

    Attributes:
        guard: The guard that is active in the thread.
        place: The position of the wait in the program's source.
    """

    guard: Guard
    place: Place

    def begin(self, kind: Kind, operator: str | Sequence[str]) -> Pending | None:
        """Reports to the guard that the CPU is about to wait at `place`.

        Args:
            kind: What the CPU waits for: one of `unstall.guarding.kinds.KINDS`.
            operator: The torch operator that waits, such as "aten::item". If several nested operators are running in
                the thread, a sequence of all of them, outermost first. "" if no operator is known.

        Returns:
            An object whose `waited(duration_ns)` must be called after the wait. None if the guard ignores waits of this
            kind, or if the code that waits belongs to unstall.

        Raises:
            SyncError: The guard forbids waits. The caller must not wait.
        """
        if kind in self.guard.ignored or is_ours(self.place.frames):
            return None
        wait = _wait(kind, (operator,) if isinstance(operator, str) else tuple(operator), self.place)
        if self.guard.mode == "error":
            raise self.guard.refuse(wait)
        return Pending(self.guard, wait, self.place)


def guarded() -> Guarded | None:
    """Returns the guard that is active in the current thread and asyncio task, and the source line that is executing
    now. Returns None if no guard is active."""
    region = regions.innermost()
    if region is None or region.guard is None:
        return None
    place = place_of(sys._getframe(1))
    if place is NOWHERE:
        place = backward.place() or place
    return Guarded(region.guard, place)


def guarded_other(thread: int) -> Guarded | None:
    """Returns the guard that is active in another thread, and the source line that this thread is executing. Returns
    None if no guard is active there. `thread` is the `threading.get_ident()` of the other thread.

    The other thread must not run during the call.
    """
    region, frame = regions.innermost_of(thread), sys._current_frames().get(thread)
    if region is None and (caller := backward.caller_of(thread)) is not None:
        region, frame = caller.region, frame or caller.frame
    if region is None or region.guard is None:
        return None
    return Guarded(region.guard, place_of(frame))


def on_wait(kind: Kind, operator: str | Sequence[str] = "") -> Pending | None:
    """Reports to the active guard of the current thread and asyncio task that the CPU is about to wait.

    Args:
        kind: What the CPU waits for. The value is in `kinds.KINDS`.
        operator: The torch operator that waits, such as "aten::item". If several nested operators are running in this
            thread, a sequence of all of them, outermost first. "" if no operator is known.

    Returns:
        An object whose `waited(duration_ns)` must be called after the wait. None if the wait is not reported. This is
        the case if no guard is active, if the guard ignores waits of this kind, or if the code that waits belongs to
        unstall.

    Raises:
        SyncError: The guard forbids waits. The caller must not wait.
    """
    here = guarded()
    return here.begin(kind, operator) if here is not None else None


def _wait(kind: Kind, operators: tuple[str, ...], place: Place) -> Wait:
    way, operator = _way(kind, operators, place.frames)
    return Wait(
        kind=kind,
        operator=operator or WORDS[kind].operator or place.code,
        file=place.file,
        line=place.line,
        function=place.function,
        called_from=place.called_from,
        code=place.code,
        rule=way.rule,
        advice=way.fix,
    )


@lru_cache(4096)
def _way(kind: Kind, operators: tuple[str, ...], frames: str) -> tuple[Way, str]:
    """Returns (way, operator). `way` is the matching entry of the table of known waits. This entry contains the advice
    for the user. `operator` is the operator that waits.

    `operator` is the outermost operator that is known to wait. If no operator is known to wait, `operator` is the
    outermost operator that is not a part of autograd.
    """
    known = [name for name in operators if name]
    outermost = next((name for name in known if not _ENGINE.match(name)), "".join(known[:1]))
    if kind in ("upload", "pinned_upload"):
        made = KnownWait(op=outermost, frames=frames, call="")
        way = PAGEABLE_UPLOAD if kind == "upload" else PINNED_UPLOAD
        return (FROM_PYTHON_VALUES if FROM_PYTHON_VALUES.matches(made) else way), outermost
    if kind == "malloc":
        return CACHE_GROWS, outermost
    if kind == "library":
        return LIBRARY_TAKES_MEMORY, outermost
    if kind == "free":
        return (CACHE_IS_GIVEN_BACK if known else CACHE_IS_EMPTIED), outermost
    words = WORDS[kind]
    for operator in known or [called(frames)]:
        way = way_of(KnownWait(op=operator, frames=frames, call=words.call))
        if is_known(way):
            return way, operator
    return way_of(KnownWait(op="", frames=frames, call=words.call, read=words.read)), outermost


def _warn(wait: Wait, place: Place) -> None:
    warnings.warn_explicit(
        SyncWarning(str(wait), wait),
        SyncWarning,
        place.path,
        wait.line or 1,
        module=place.names.get("__name__"),
        registry=place.names.setdefault("__warningregistry__", {}),
    )
