"""Builds the table `Collectives` of a timeline, and the process groups in its facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from unstall.timeline.columns import I64, Collectives
from unstall.virtual.log import LogCode
from unstall.virtual.simulation.collectives import Collective, Group
from unstall.virtual.simulation.history import Done, Happened, Ran

Groups = tuple[tuple[str, tuple[int, ...]], ...]


def collectives_table(
    collectives: Sequence[Collective],
    happened: Happened,
    done: Done,
    ran: Ran,
    order: I64,
    text: Callable[[str], int],
) -> Collectives:
    """Returns one row for each kernel of NCCL.

    Args:
        collectives: The collectives of the simulation.
        happened: The records of the log.
        done: The simulated instructions.
        ran: The simulated device ops.
        order: For each row of the table `Device`, its row in `ran`.
        text: Returns the index of a text in the timeline's strings.
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
    """Returns the process groups that this process used, as (name, ranks of the job)."""
    groups = dict.fromkeys(collective.group for collective in collectives)
    return tuple(dict.fromkeys((_label(group), group.members) for group in groups))


def _label(group: Group) -> str:
    """Returns the description of a group, or its name if it has none, as readers of Kineto's traces do."""
    return group.description if group.description not in ("", "undefined") else group.name
