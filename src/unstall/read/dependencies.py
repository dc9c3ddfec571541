"""Makes a `Dependencies` table of a trace's metadata (the JSON members beside its list of events).
The metadata of a trace of a virtual GPU has the dependencies under the key "unstall".

In a dependency, a later call or operator needs bytes that an earlier one used. A call is identified
by its correlation id, an operator by its external id. The metadata has three lists with one element
for each dependency. `back` has the later id minus the earlier id. `bytes` has the number of bytes.
`later` has the later id minus the later id of the dependency before; for example, the later ids 7,
9, 12 are stored as 7, 2, 3.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
import numpy as np
from msgspec import Struct

from unstall.read.row_ids import rows_by_id
from unstall.timeline.columns import I8, I64, Dependencies
from unstall.timeline.limits import MOST_DEPENDENCIES

_Number: TypeAlias = Annotated[int, msgspec.Meta(gt=-(2**40), lt=2**40)]
_Bytes: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=2**50)]
_SHORT = msgspec.Meta(max_length=MOST_DEPENDENCIES)


class DescribedDependencies(Struct, frozen=True):
    """The dependencies that a trace file tells, as three lists with one element for each
    dependency. In a dependency, a later call or operator needs bytes that an earlier one used. The
    docstring of this module says what the lists contain.
    """

    later: Annotated[list[_Number], _SHORT] = []
    back: Annotated[list[_Number], _SHORT] = []
    bytes: Annotated[list[_Bytes], _SHORT] = []


class DescribesDependencies(Struct):
    """The field of a trace file, under its key "unstall", that tells the dependencies between calls and operators."""

    dependencies: DescribedDependencies = DescribedDependencies()


def described(table: Dependencies, number: I64) -> dict[str, list[int]]:
    """Returns three lists, by name, that tell the dependencies of `table` in a trace file.
    `dependencies_of` makes the table of them again. In a dependency, a later call or operator needs
    bytes that an earlier one used.

    Returns {} if `table` has more than `MOST_DEPENDENCIES` rows.

    Args:
        table: The dependencies.
        number: For each row of `timeline.host`, the id of the call or operator in the trace file.
    """
    if not 0 < len(table) <= MOST_DEPENDENCIES:
        return {}
    earlier, later = number[table.earlier], number[table.later]
    return {
        "later": np.diff(later, prepend=0).tolist(),
        "back": (later - earlier).tolist(),
        "bytes": table.bytes.tolist(),
    }


def dependencies_of(told: DescribedDependencies, kind: I8, correlation: I64, external: I64) -> Dependencies:
    """Returns a table of the dependencies that a trace file tells. Leaves out dependencies of calls
    and operators that the trace file lacks. In a dependency, a later call or operator needs bytes
    that an earlier one used.

    Args:
        told: The lists that tell the dependencies.
        kind: The HostKind of each row of `timeline.host`.
        correlation: The correlation id of each row of `timeline.host`.
        external: The external id of each row of `timeline.host`.
    """
    if not told.later or not len(told.later) == len(told.back) == len(told.bytes):
        return Dependencies.none()
    later = np.cumsum(np.array(told.later, np.int64))
    earlier = later - np.array(told.back, np.int64)
    row_of = rows_by_id(kind, correlation, external)
    first, second = ([row_of.get(number, -1) for number in ids.tolist()] for ids in (earlier, later))
    table = Dependencies(np.array(first, np.int32), np.array(second, np.int32), np.array(told.bytes, np.int64))
    known = (table.earlier >= 0) & (table.later >= 0)
    return Dependencies(table.earlier[known], table.later[known], table.bytes[known])
