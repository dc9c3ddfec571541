"""A folder for the launched program's recording."""

from recording.conftest import folder

__all__ = ["folder"]
