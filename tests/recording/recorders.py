"""A recorder that only writes down what is asked of it, a clock that is set by hand, and a session of both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

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
