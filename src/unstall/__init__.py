"""See, fix and predict what stalls your GPU."""

from unstall._version import __version__

__all__ = ["__version__"]
