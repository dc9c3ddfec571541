"""Makes the table `Collectives` of a timeline, and the list of its process groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from unstall.timeline.columns import I64, Collectives
from unstall.virtual.log import LogCode
from unstall.virtual.simulation.collectives import Collective, Group
from unstall.virtual.simulation.history import Done, Happened, Ran

Groups = tuple[tuple[str, tuple[int, ...]], ...]
"""Process groups: the name of each, and its ranks in the job."""


def collectives_table(
    collectives: Sequence[Collective],
    happened: Happened,
    done: Done,
    ran: Ran,
    order: I64,
    text: Callable[[str], int],
) -> Collectives:
    """Returns the table `Collectives`: one row for each kernel of NCCL.

    Args:
        collectives: The simulated collectives.
        happened: The records of the log (what the program asked of its GPU).
        done: The simulated instructions.
        ran: The simulated ops.
        order: For each row of the table `Device`, its row in `ran`.
        text: A function that returns the index of a text in the timeline's strings.
    """
    record = done.record[ran.instruction[order]]
    ops = np.flatnonzero(happened.code[record] == LogCode.COLLECTIVE)
    if not len(ops):
        return Collectives.none()
    found = [collectives[number] for number in happened.a[record[ops]].tolist()]
    peers = [collective.peers() for collective in found]
    return Collectives(
        op=ops.astype(np.int32),
        name=np.array([text(collective.name) for collective in found], np.int32),
        group=np.array([text(_label(collective.group)) for collective in found], np.int32),
        ranks=np.array([len(collective.group.members) for collective in found], np.int64),
        sent=np.array([collective.sent for collective in found], np.int64),
        received=np.array([collective.received for collective in found], np.int64),
        members=np.array([text(str(list(collective.group.members))) for collective in found], np.int32),
        sequence=np.array([collective.sequence for collective in found], np.int64),
        source=np.array([source for source, _ in peers], np.int64),
        target=np.array([target for _, target in peers], np.int64),
    )


def groups_of(collectives: Sequence[Collective]) -> Groups:
    """Returns the process groups of these collectives: the name of each, and its ranks in the job."""
    groups = dict.fromkeys(collective.group for collective in collectives)
    return tuple(dict.fromkeys((_label(group), group.members) for group in groups))


def _label(group: Group) -> str:
    """Returns the description of a process group, or its name if it has no description, as readers
    of Kineto's traces do.
    """
    return group.description if group.description not in ("", "undefined") else group.name
