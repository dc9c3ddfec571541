"""The interface of a recorder. Between `start` and `stop`, a recorder writes into a folder what a program does."""

from __future__ import annotations

from typing import Protocol


class Recorder(Protocol):
    """A recorder of the device's activity, or of the lines that run. It starts once and stops once."""

    name: str
    any_thread: bool
    """Whether any thread may start and stop the recorder. If false, only a thread of the program may do so."""

    def start(self) -> None:
        """Starts to record. If this fails, raises UnstallError and leaves the program as it was."""

    def stop(self) -> None:
        """Stops recording. All records are then in the folder, and the program is as it was before `start`."""

    def flush(self) -> None:
        """Writes the records to the folder without waiting for the device, because the process is about to end."""

    def forked(self) -> None:
        """Stops recording in a child process that was forked during the recording. Touches neither files nor the
        device.
        """

    def facts(self) -> dict[str, object]:
        """Returns facts for the journal: versions, limits, and the number of dropped records. The values of the facts
        are JSON types.
        """
        ...
