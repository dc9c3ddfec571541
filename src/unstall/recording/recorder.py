"""What a recorder is: something that writes down what a program does, into a folder, between `start` and `stop`."""

from __future__ import annotations

from typing import Protocol


class Recorder(Protocol):
    """One recording of one kind: of the device's activity, or of the lines that run. It starts once and stops once."""

    name: str
    any_thread: bool
    """Whether a thread that is not the program's may start and stop it."""

    def start(self) -> None:
        """Record from now on. Raises UnstallError where it cannot, and has then changed nothing."""

    def stop(self) -> None:
        """Record no more. All that was recorded is in the folder, and the program is as it was before `start`."""

    def flush(self) -> None:
        """Bring what there is to the folder, without waiting for the device: the process is about to end."""

    def forked(self) -> None:
        """In a child that was forked while recording: record no more, and touch neither files nor device."""

    def facts(self) -> dict[str, object]:
        """What the journal should say of it: versions, limits, how much was dropped. JSON's own types only."""
        ...
