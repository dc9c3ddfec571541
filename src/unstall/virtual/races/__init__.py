"""Finds data races between streams, and between device and host. Whether there is a race depends only on the
order that the program requests.

Timing decides whether a data race has an effect. Timing does not decide whether the program orders two accesses. Each
stream has a vector clock. The vector clock tells how much work of every other stream has ended before the stream starts
its next work. FastTrack uses vector clocks in the same way for threads (Flanagan and Freund,
https://doi.org/10.1145/1543135.1542490).
"""

from __future__ import annotations

from unstall.virtual.races.dependencies import Needs, dependencies_table
from unstall.virtual.races.find import find_races
from unstall.virtual.races.found import Access, Placement, Race
from unstall.virtual.races.record import RaceLog
from unstall.virtual.races.table import races_table

__all__ = ["Access", "Needs", "Placement", "Race", "RaceLog", "dependencies_table", "find_races", "races_table"]
