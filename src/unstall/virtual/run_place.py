"""Says where a program writes what it did on the virtual GPU, for `unstall run`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

TIMELINE = "run.timeline"
FAILED = "failed.txt"


@dataclass(frozen=True, slots=True)
class RunPlace:
    """The two places to which a program can write its run: a folder, and a file in memory. The file
    is used if writing to the folder fails, for example because the disk is full.

    Attributes:
        folder: The path of the folder.
        spare: The path of the file in memory. `unstall run` creates it, and it is gone when
            `unstall run` ends. None if there is no such file.
    """

    folder: str
    spare: str | None = None

    @property
    def timeline(self) -> Path:
        """The path, in the folder, of the file that has the timeline of the run."""
        return Path(self.folder) / TIMELINE

    @property
    def failed(self) -> Path:
        """The path, in the folder, of the text file that says why the run could not be written."""
        return Path(self.folder) / FAILED

    def written(self) -> Path | None:
        """Returns the path of the file that has the timeline of the run: in the folder, or the file
        in memory. Returns None if the program has written to neither.
        """
        if self.timeline.exists():
            return self.timeline
        spare = Path(self.spare) if self.spare else None
        return spare if spare and spare.exists() and spare.stat().st_size else None

    def to_json(self) -> str:
        """Returns both paths as one line of ASCII that fits into an environment variable."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> RunPlace:
        """Returns the object for which `to_json` returned `text`."""
        return cls(**json.loads(text))
