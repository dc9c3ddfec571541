"""A recorder that only writes down what is asked of it, a clock that is set by hand, and sessions of both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from unstall.cupti.trial import BEFORE_STEPS, FIRST_STEPS
from unstall.recording.first_steps import FirstSteps, settings_of, stand_in_settings_of
from unstall.recording.journal import Event, Journal, read
from unstall.recording.session import Session
from unstall.recording.settings import Settings


class Logging:
    """A recorder that logs its calls."""

    def __init__(self, log: list[str], name: str = "own", *, any_thread: bool = True, broken: str = "") -> None:
        """`broken` is a method that raises."""
        self.name, self.any_thread = name, any_thread
        self.log, self._broken = log, broken
        self.on_start: Callable[[], None] = lambda: None

    def _called(self, method: str) -> None:
        self.log.append(f"{self.name} {method}")
        if method == self._broken:
            raise RuntimeError(f"cannot {method}")

    def start(self) -> None:
        self._called("start")
        self.on_start()

    def stop(self) -> None:
        self._called("stop")

    def flush(self) -> None:
        self._called("flush")

    def forked(self) -> None:
        self._called("forked")

    def facts(self) -> dict[str, object]:
        return {"calls": len(self.log)}


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


class Driven:
    """A session in `folder`, to be driven by hand."""

    def __init__(
        self,
        folder: Path,
        recorder: Logging | None = None,
        lines: Logging | None = None,
        **settings: Any,
    ):
        self.log: list[str] = recorder.log if recorder is not None else []
        self.recorder = recorder if recorder is not None else Logging(self.log)
        self.clock = Clock()
        self._folder = folder
        self.options = Settings(str(folder), **settings)
        self.session = Session(
            self.options,
            Journal(folder),
            lambda: self.recorder,
            lambda: lines,
            now=self.clock,
        )

    def steps(self, count: int, took_ms: float, kind: str = "explicit", who: int = 0) -> None:
        """That many marks, each after a step of so many milliseconds."""
        for _ in range(count):
            self.clock.ns += round(took_ms * 1e6)
            self.session.step_boundary(kind, who)

    def events(self, name: str) -> list[Event]:
        """The journal's events of this name."""
        return [event for event in read(self._folder) if event["event"] == name]


class Begun(Driven):
    """A session that records its first steps, in a program that has just initialised CUDA."""

    def __init__(
        self, folder: Path, first: Logging | None = None, stand_in: Logging | None = None, **settings: Any
    ) -> None:
        super().__init__(folder, None, None, **settings)
        self.first = first or Logging(self.log, "first")
        before = None if stand_in is None else self._recorded(stand_in_settings_of(self.options), stand_in)
        self.session._first_steps = self._recorded(settings_of(self.options), self.first, before)
        self.session.begin()
        self.session._cuda_begins()

    def _recorded(self, settings: Settings, recorder: Logging, stand_in: FirstSteps | None = None) -> FirstSteps:
        return FirstSteps(settings, lambda of: Journal(of.folder), lambda: recorder, stand_in=stand_in, now=self.clock)

    def train(self, steps: int, micro_batches: int) -> None:
        """A training loop that accumulates gradients."""
        for _ in range(steps):
            self.steps(micro_batches, took_ms=10, kind="loader")
            self.steps(1, took_ms=10, kind="optimizer")

    def of_first(self, name: str) -> list[Event]:
        """The events of this name in the journal of the first steps."""
        return self._events_in(FIRST_STEPS, name)

    def before_steps(self, name: str) -> list[Event]:
        """The events of this name in the journal of the stand-in."""
        return self._events_in(BEFORE_STEPS, name)

    def _events_in(self, folder: str, name: str) -> list[Event]:
        return [event for event in read(self._folder / folder) if event["event"] == name]
