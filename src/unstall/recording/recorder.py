"""The interface of a recorder. Between `start` and `stop`, a recorder writes into a folder what a program does."""

from __future__ import annotations

from typing import Protocol


class Recorder(Protocol):
    """A recorder of the device's activity, or of the source lines that run. It is started once and stopped once."""

    name: str
    any_thread: bool
    """Whether any thread may start and stop the recorder. If false, only a thread of the program may do so."""

    def start(self) -> None:
        """Starts to record.

        Raises:
            UnstallError: The recorder cannot start. The program is as it was before the call.
        """

    def stop(self) -> None:
        """Stops recording. After this, all records are in the recorder's folder, and the program is
        as it was before `start`.
        """

    def flush(self) -> None:
        """Writes the records to the recorder's folder, without waiting for the device. It is called
        because the process is about to end.
        """

    def forked(self) -> None:
        """Stops recording in a child process that was forked during the recording. Uses neither
        files nor the device.
        """

    def facts(self) -> dict[str, object]:
        """Returns facts for the journal, the recording's file of events: versions, limits, and the
        number of dropped records, by name. The values can be written as JSON.
        """
        ...
