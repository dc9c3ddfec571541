"""Sources of waits for one test. A program has its sources until it ends."""

from __future__ import annotations

from unstall.guarding import regions


def remove_source(source: regions.Source) -> None:
    """Undoes `regions.add_source`."""
    regions._sources.remove(source)
    regions._switches.remove(source.switch)
