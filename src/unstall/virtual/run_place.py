"""Where a program writes its run on the virtual GPU, for `unstall run`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

TIMELINE = "run.timeline"
FAILED = "failed.txt"


@dataclass(frozen=True, slots=True)
class RunPlace:
    """The folder of a run, and a file in memory for a run that does not fit into the folder.

    Attributes:
        folder: The folder.
        spare: The path of the file in memory. It belongs to `unstall run`, and is gone when that process ends. None if
            there is no such file.
    """

    folder: str
    spare: str | None = None

    @property
    def timeline(self) -> Path:
        """The file of the run."""
        return Path(self.folder) / TIMELINE

    @property
    def failed(self) -> Path:
        """The file that says why there is no run."""
        return Path(self.folder) / FAILED

    def written(self) -> Path | None:
        """Returns the file that has the run, or None if the program has not written its run."""
        if self.timeline.exists():
            return self.timeline
        spare = Path(self.spare) if self.spare else None
        return spare if spare and spare.exists() and spare.stat().st_size else None

    def to_json(self) -> str:
        """Returns the place as one line of ASCII, for an environment variable."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> RunPlace:
        """Parses a text that `to_json` returned."""
        return cls(**json.loads(text))
