"""Ends a program on the virtual GPU after as many steps or seconds as `unstall run --stop` asks for."""

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
    """What this module uses of the virtual machine of a process.

    Attributes:
        on_step: A function `on_step(kind, who)` that the machine calls at step boundaries. Its
            arguments are the fields of `StepSource`.
    """

    on_step: Callable[[str, int], None]

    def now_ns(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Until:
    """The point at which a program is to end: after a number of steps, or after a time.

    Attributes:
        warmup: The number of warm-up steps.
        steps: The number of steps after the warm-up.
        after_s: The time of the virtual clock, in seconds, from which on steps and `for_s` are
            counted.
        for_s: How many seconds of the virtual clock after `after_s` the program ends. None: the
            number of steps decides.
    """

    warmup: int
    steps: int
    after_s: float
    for_s: float | None


def ask(folder: Path, until: Until) -> None:
    """Has a program end at the point `until` by itself. Call this before the program starts.

    Args:
        folder: The folder to which the program will write its run.
        until: The number of steps, or the time, after which it ends.
    """
    (folder / _ASKED).write_text(json.dumps(asdict(until)))


def stop_if_asked(machine: Machine, folder: Path) -> None:
    """Makes this program end at the point that `ask` wrote to `folder`. Does nothing if `ask` was
    not called for this folder. Call this when the program starts.

    Args:
        machine: The virtual machine of this process.
        folder: The folder to which the program writes its run.
    """
    try:
        until = Until(**json.loads((folder / _ASKED).read_text()))
    except FileNotFoundError:
        return
    _Stop(machine, folder, until)


def stopped_after(folder: Path) -> int | None:
    """Returns how many steps a program took until it was stopped as `ask` had requested. Returns
    None if it was not stopped. `folder` is the folder of its run.
    """
    return _number_in(folder / _STOPPED)


def steps_of_ended(folder: Path) -> int | None:
    """Returns how many steps a program took until it ended in any way except by being killed.
    Returns None if it was killed. `folder` is the folder of its run.
    """
    return _number_in(folder / _ENDED)


def _number_in(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


class _Stop:
    """Counts the steps of this program, and ends the program at the requested point."""

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
        leader = self._sources.leader_in_hindsight()
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
