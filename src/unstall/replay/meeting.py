"""`Meeting`: the operations at which several programs wait for each other."""

from __future__ import annotations

import msgspec
import numpy as np

from unstall.timeline.columns import I8, I64, Bool


class Meeting(msgspec.Struct, frozen=True, eq=False):
    """The joint operations of several programs: collectives in which several ranks take part. A member is one program's
    part of a joint operation: one of its ops.

    Attributes:
        first: Joint operation i has the members first[i] to first[i + 1] - 1. The array has one value more than there
            are joint operations.
        rank: For each member, the index of its program in the list of programs.
        op: For each member, the index of its op in this program.
        waits: For each member, 1 if it waits until all members have arrived. 0 if it waits for nobody, such as the send
            of a message for which the receiver has room. The other members wait for it nonetheless.
        transfer: For each member, the time from the arrival of the last member to the end of this member, in ns. If the
            member waits for nobody, the time from its own arrival.
        member: For each member, its number where the operations come from.
    """

    first: I64
    rank: I64
    op: I64
    waits: I8
    transfer: I64
    member: I64

    def __len__(self) -> int:
        return len(self.first) - 1

    def only(self, kept: Bool) -> Meeting:
        """Returns some of the joint operations. `kept` is a mask with one value for each of them."""
        sizes = np.diff(self.first)
        of_member = np.repeat(kept, sizes)
        first = np.append(0, np.cumsum(sizes[kept]))
        columns = {name: getattr(self, name)[of_member] for name in self.__struct_fields__ if name != "first"}
        return Meeting(first, **columns)
