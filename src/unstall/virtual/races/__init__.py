"""Finds data races of a virtual run, between streams, and between the device and the host.

The input is the log: the shim's records of what the program asks of its GPU, with the memory that
each uses. A race is found if the program does not order two accesses, even if they happen to run
apart in time.

Each stream has a vector clock: it says how much work of every other stream has ended before the
stream begins its next work. FastTrack uses vector clocks in the same way for threads (Flanagan and
Freund, https://doi.org/10.1145/1543135.1542490).
"""

from __future__ import annotations

from unstall.virtual.races.dependencies import Needs, dependencies_table
from unstall.virtual.races.find import find_races
from unstall.virtual.races.found import Access, Placement, Race
from unstall.virtual.races.record import RaceLog
from unstall.virtual.races.table import races_table

__all__ = ["Access", "Needs", "Placement", "Race", "RaceLog", "dependencies_table", "find_races", "races_table"]
