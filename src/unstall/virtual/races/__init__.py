"""Data races between streams, and between the device and the host, found by the order that a program asks for.

Whether a race shows depends on luck; whether two accesses are ordered does not. Clocks of positions in the log have,
for each stream, what of every other stream has ended before its next work starts, as in FastTrack for threads (Flanagan
and Freund, https://doi.org/10.1145/1543135.1542490).
"""

from __future__ import annotations

from unstall.virtual.races.find import find_races
from unstall.virtual.races.found import Access, Placement, Race
from unstall.virtual.races.record import RaceLog
from unstall.virtual.races.table import races_table

__all__ = ["Access", "Placement", "Race", "RaceLog", "find_races", "races_table"]
