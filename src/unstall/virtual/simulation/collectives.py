"""The collectives of NCCL in which this rank took part: their names, the data that they move, and when they end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from unstall.virtual.costs.collectives import Operation
from unstall.virtual.costs.model import Costs


class Call(NamedTuple):
    """A call of torch's process group. If several calls are batched, they together are one
    operation of NCCL.

    Attributes:
        name: torch's name of the collective, as in Kineto's traces.
        dtype: The type of the elements, such as "float32".
        reduction: "sum", "avg", "product", "min", "max" or "premul_sum"; "" if nothing is reduced.
        sent: How many bytes the call reads on this rank.
        received: How many bytes the call writes on this rank.
        peer: For a send or a receive, the rank of the other side within the group; else -1.
    """

    name: str
    dtype: str
    reduction: str
    sent: int
    received: int
    peer: int


class Group(NamedTuple):
    """A process group.

    Attributes:
        name: The name that torch gives it.
        description: What torch says it is for.
        rank: This process's rank in the group.
        members: The ranks of the group, as ranks of the job.
    """

    name: str
    description: str
    rank: int
    members: tuple[int, ...]


class Meeting(NamedTuple):
    """When the ranks of a group were ready for an operation, in ns of the virtual time that all
    ranks share.

    Attributes:
        ready: When this rank was ready.
        all_ready: When the last rank was ready.
        sender_ready: When the last of the ranks that send a message to this rank was ready.
    """

    ready: int
    all_ready: int
    sender_ready: int


@dataclass(frozen=True, slots=True)
class Collective:
    """An operation of NCCL, as this rank took part in it.

    Attributes:
        calls: The calls that make up the operation: one, or several that were batched.
        group: The process group.
        sequence: The number of the operation in its group.
        meeting: When the ranks were ready for it.
    """

    calls: tuple[Call, ...]
    group: Group
    sequence: int
    meeting: Meeting

    @property
    def name(self) -> str:
        """torch's name of the collective; "coalesced" if the calls have several names."""
        names = {call.name for call in self.calls}
        return names.pop() if len(names) == 1 else "coalesced"

    @property
    def sent(self) -> int:
        """How many bytes all calls together read on this rank."""
        return sum(call.sent for call in self.calls)

    @property
    def received(self) -> int:
        """How many bytes all calls together write on this rank."""
        return sum(call.received for call in self.calls)

    def peers(self) -> tuple[int, int]:
        """Returns which rank of the job sends and which receives, if this is a send, a receive, or a
        batch of these that has at most one sender and one receiver beside this rank. Of a batch that
        does both, these are the rank that sends to this one, and the rank that this one sends to.
        Returns `(-1, -1)` if it is anything else.
        """
        to = {call.peer for call in self.calls if call.name == "send"}
        come = {call.peer for call in self.calls if call.name == "recv"}
        if any(call.peer < 0 for call in self.calls) or max(len(to), len(come)) > 1:
            return -1, -1
        own, members = self.group.rank, self.group.members
        return members[next(iter(come), own)], members[next(iter(to), own)]

    def kernel(self, costs: Costs) -> str:
        """Returns the name of NCCL's kernel for this operation. For reductions, the name says "Sum"
        and "LL" whatever the reduction and the protocol are: NCCL compiles only these kernels, and
        uses them for all (`best_kernel` of src/device/generate.py).
        """
        call = self.calls[0]
        operation = _OPERATIONS[call.name]
        if operation == "SendRecv":
            return _KERNEL.format("SendRecv")
        if operation in ("AllGather", "Broadcast"):
            return _KERNEL.format(f"{operation}_RING_LL")
        ranks = len(self.group.members)
        is_tree = ranks > 1 and costs.transfer(operation, _bytes(call, self.group), ranks).algorithm == "Tree"
        return _KERNEL.format(f"{operation}_Sum_{_TYPES.get(call.dtype, 'u8')}_{'TREE' if is_tree else 'RING'}_LL")

    def end_ns(self, costs: Costs) -> int:
        """Returns when the operation ends on this rank, in ns of the virtual time that all ranks
        share. The calls of one operation share the links: in one direction, their data moves one
        after the other.
        """
        meeting, ranks = self.meeting, len(self.group.members)
        if ranks < 2:
            return meeting.ready
        moved: dict[tuple[str, int, Operation], int] = {}
        for call in self.calls:
            lane = call.name if call.peer >= 0 else ""  # links carry both directions at the same time
            key = lane, _begins(call, meeting), _OPERATIONS[call.name]
            moved[key] = moved.get(key, 0) + _bytes(call, self.group)
        ends: dict[tuple[str, int], int] = {}
        for (lane, begins, operation), size in moved.items():
            ends[lane, begins] = ends.get((lane, begins), begins) + costs.transfer(operation, size, ranks).ns
        return max(ends.values())


_KERNEL = "ncclDevKernel_{}(ncclDevKernelArgsStorage<4096ul>)"
_OPERATIONS: dict[str, Operation] = {
    **dict.fromkeys(("allreduce", "allreduce_coalesced", "barrier"), "AllReduce"),
    **dict.fromkeys(("all_gather", "_allgather_base", "allgather_into_tensor_coalesced"), "AllGather"),
    **dict.fromkeys(("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced"), "ReduceScatter"),
    **dict.fromkeys(("gather", "scatter", "all_to_all", "all_to_allv", "send", "recv"), "SendRecv"),
    "broadcast": "Broadcast",
    "reduce": "Reduce",
}
_TYPES = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "int32": "u32",
    "uint32": "u32",
    "int64": "u64",
    "uint64": "u64",
}


def _begins(call: Call, meeting: Meeting) -> int:
    """Returns when the data of `call` begins to move. A send waits for no other rank, since the
    receiver has room for the message.
    """
    if call.name == "send":
        return meeting.ready
    return max(meeting.ready, meeting.sender_ready) if call.name == "recv" else meeting.all_ready


def _bytes(call: Call, group: Group) -> int:
    """Returns how many bytes the formulas of `costs.collectives` take for `call`. In a gather, a
    scatter and an all-to-all, the part that stays on its rank does not count.
    """
    others = (len(group.members) - 1) / len(group.members)
    if call.name in ("gather", "scatter", "all_to_all", "all_to_allv"):
        return round(max(call.sent, call.received) * others)
    return max(call.sent, call.received)


def collective_of(
    calls: Sequence[tuple[str, str, str, int, int, int]], group: Group, sequence: int, meeting: Meeting
) -> Collective:
    """Returns the collective that the shim describes.

    Args:
        calls: For each call, the fields of `Call`.
        group: The process group.
        sequence: The number of the operation in its group.
        meeting: When the ranks were ready for it.
    """
    return Collective(tuple(Call(*call) for call in calls), group, sequence, meeting)
