"""Makes a `Races` table of a trace's metadata (the JSON members beside its list of events). The
metadata of a trace of a virtual GPU has the races under the key "unstall".

The metadata identifies a call by its correlation id, an operator by its external id, a stream by
its device and number.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
import numpy as np
from msgspec import Struct

from unstall.read.row_ids import rows_by_id, rows_of_streams
from unstall.timeline.columns import I8, I64, RaceKind, Races, Streams

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, lt=2**62)]
_KINDS = {kind.name.lower(): kind for kind in RaceKind}


class DescribedRace(Struct, frozen=True):
    """One row of the table `Races` as a trace file has it. Calls, operators and streams are given
    by their ids in the file.
    """

    kind: Literal["read_early", "written_twice", "overwritten_early", "reused", "taken_early"]
    earlier: _Number  # id of a call or an operator, -1 if unknown
    later: _Number
    earlier_stream: tuple[_Number, _Number] | None  # device and stream; None for the host itself
    later_stream: tuple[_Number, _Number] | None
    bytes: _Count
    count: _Count


class DescribesRaces(Struct):
    """The field of a trace file, under its key "unstall", that tells the races."""

    races: list[DescribedRace] = []


def races_of(told: list[DescribedRace], kind: I8, correlation: I64, external: I64, streams: Streams) -> Races:
    """Returns a table of the races that a trace file tells. Replaces ids of calls, operators and
    streams by rows of the timeline. Leaves out races on unknown streams.

    Args:
        told: The races as the trace file tells them.
        kind: The HostKind of each row of `timeline.host`.
        correlation: The correlation id of each row of `timeline.host`.
        external: The external id of each row of `timeline.host`.
        streams: The streams of the timeline.
    """
    if not told:
        return Races.none()
    row_of = rows_by_id(kind, correlation, external)
    stream_of = rows_of_streams(streams)

    def known(place: tuple[int, int] | None) -> bool:
        return place is None or place in stream_of

    def row(place: tuple[int, int] | None) -> int:
        return -1 if place is None else stream_of[place]

    rows = [race for race in told if known(race.earlier_stream) and known(race.later_stream)]
    return Races(
        kind=np.array([_KINDS[race.kind] for race in rows], np.int8),
        earlier=np.array([row_of.get(race.earlier, -1) for race in rows], np.int32),
        later=np.array([row_of.get(race.later, -1) for race in rows], np.int32),
        earlier_stream=np.array([row(race.earlier_stream) for race in rows], np.int32),
        later_stream=np.array([row(race.later_stream) for race in rows], np.int32),
        bytes=np.array([race.bytes for race in rows], np.int64),
        count=np.array([race.count for race in rows], np.int64),
    )
