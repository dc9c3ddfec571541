"""The interface of a recorder: it writes what a program does into a folder, between `start` and `stop`."""

from __future__ import annotations

from typing import Protocol


class Recorder(Protocol):
    """A recorder of one kind: of the device's activity, or of the lines that run. It starts once and stops once."""

    name: str
    any_thread: bool
    """Whether a thread other than the program's may start and stop it."""

    def start(self) -> None:
        """Starts to record. If it cannot, raises UnstallError and changes nothing."""

    def stop(self) -> None:
        """Stops recording. Everything recorded is then in the folder, and the program is as it was before `start`."""

    def flush(self) -> None:
        """Writes the recorded data to the folder without waiting for the device, because the process is about to
        end."""

    def forked(self) -> None:
        """In a child that was forked while recording: stops recording, and touches neither files nor the device."""

    def facts(self) -> dict[str, object]:
        """Returns facts for the journal: versions, limits, the number of dropped records. JSON types only."""
        ...
