"""Finds data races between streams, and between device and host, from the order that a program requests.

Whether a race shows depends on timing; whether two accesses are ordered does not. A vector clock for each stream tells
how much work of every other stream has ended before its next work starts, as FastTrack does for threads (Flanagan and
Freund, https://doi.org/10.1145/1543135.1542490).
"""

from __future__ import annotations

from unstall.virtual.races.find import find_races
from unstall.virtual.races.found import Access, Placement, Race
from unstall.virtual.races.record import RaceLog
from unstall.virtual.races.table import races_table

__all__ = ["Access", "Placement", "Race", "RaceLog", "find_races", "races_table"]
