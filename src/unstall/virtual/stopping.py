"""Ends a program on the virtual GPU after the requested number of steps or seconds (`unstall run --stop`)."""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from unstall.guest import device, step_hooks
from unstall.guest.ending import end_here, may_end_here
from unstall.guest.imports import when_imported
from unstall.guest.step_source import AT_THE_END, FORWARD, LOADER, StepSource, StepSources

_ASKED, _STOPPED, _ENDED = "stop.json", "stopped.txt", "ended.txt"


class Machine(Protocol):
    """The process's virtual machine."""

    on_step: Callable[[str, int], None]

    def now_ns(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Until:
    """The point at which the program ends: after a number of steps, or after a time.

    Attributes:
        warmup: The number of warm-up steps.
        steps: The number of steps after the warm-up.
        after_s: A time of the virtual clock, in seconds. Steps and `for_s` are counted from this time.
        for_s: The number of seconds of the virtual clock, counted from `after_s`, after which the program ends. If
            None, the number of steps decides.
    """

    warmup: int
    steps: int
    after_s: float
    for_s: float | None


def ask(folder: Path, until: Until) -> None:
    """Requests that a program ends at the point `until`. The program writes its run to `folder`. Call this function
    before the program starts.
    """
    (folder / _ASKED).write_text(json.dumps(asdict(until)))


def stop_if_asked(machine: Machine, folder: Path) -> None:
    """Ends the program at the point that `ask` requested for `folder`. Does nothing if `ask` was not called. Call this
    function at the start of the program.
    """
    try:
        until = Until(**json.loads((folder / _ASKED).read_text()))
    except FileNotFoundError:
        return
    _Stop(machine, folder, until)


def stopped_after(folder: Path) -> int | None:
    """Returns the number of steps after which the program was stopped, or None if the program was not stopped."""
    return _number_in(folder / _STOPPED)


def steps_of_ended(folder: Path) -> int | None:
    """Returns the number of steps that the program took until it ended. Returns None if the program was killed."""
    return _number_in(folder / _ENDED)


def _number_in(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


class _Stop:
    """Counts the program's steps. Ends the program when it reaches the requested number of steps or the requested
    time.
    """

    def __init__(self, machine: Machine, folder: Path, until: Until) -> None:
        self._machine, self._folder, self._until = machine, folder, until
        self._process = os.getpid()
        self._sources = StepSources()
        self._begun_with: dict[StepSource, int] = {}
        self._hooks: step_hooks.StepHooks | None = None
        self._over = False
        machine.on_step = self._boundary
        when_imported("torch", self._watch)
        atexit.register(self._tell)

    def _watch(self) -> None:
        self._hooks = step_hooks.install(self._boundary)

    def _tell(self) -> None:
        leader = self._sources.leader()
        if os.getpid() == self._process:
            with suppress(OSError):
                (self._folder / _ENDED).write_text(str(self._sources.count(leader) if leader else 0))

    def _boundary(self, kind: str, who: int) -> None:
        if self._over or os.getpid() != self._process:
            return
        source = StepSource(kind, who)
        self._sources.add(source, may_train=kind in (LOADER, FORWARD) and device.grad_enabled())
        if source != self._sources.leader(source) or self._machine.now_ns() < self._until.after_s * 1e9:
            self._begun_with[source] = self._sources.count(source)
            return
        steps = self._sources.count(source)
        if self._until.for_s is not None:
            enough = self._machine.now_ns() >= (self._until.after_s + self._until.for_s) * 1e9
        else:  # one more, since the time before the first boundary may be no step, and others begin one
            since = steps - self._begun_with.get(source, 0) if self._until.after_s else steps
            enough = since > self._until.warmup + self._until.steps + (kind not in AT_THE_END)
        if enough and may_end_here():
            self._over = True
            if self._hooks is not None:
                self._hooks.remove()
            with suppress(OSError):  # of a full disk, say: the program is ended all the same
                (self._folder / _STOPPED).write_text(str(steps))
            end_here()
