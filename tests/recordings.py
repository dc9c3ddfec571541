"""The recordings that tests read: those of `examples/`, and more of an H200 in `tests/data`."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "traces"
H200 = ROOT / "tests" / "data" / "h200"
FOLDERS = (EXAMPLES, H200 / "traces")
ALL = tuple(path for folder in FOLDERS for path in sorted(folder.glob("*.json.gz")))


def recording(name: str) -> Path:
    """The file of this name, in whichever folder it lies."""
    (path,) = (path for path in ALL if path.name == f"{name}.json.gz")
    return path
