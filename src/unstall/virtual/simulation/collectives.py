"""The collectives of NCCL in which a rank took part: their names, the data that they move, and when they end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from unstall.virtual.costs.collectives import Operation
from unstall.virtual.costs.model import Costs


class Call(NamedTuple):
    """One call of torch's process group. Several calls of a batch are one operation of NCCL.

    Attributes:
        name: torch's name of the collective, as in Kineto's traces.
        dtype: The type of the elements, such as "float32".
        reduction: "sum", "avg", "product", "min", "max", "premul_sum", or "" if nothing is added up.
        sent: The bytes that the call reads on this rank.
        received: The bytes that the call writes on this rank.
        peer: The other rank of a message within the group, or -1.
    """

    name: str
    dtype: str
    reduction: str
    sent: int
    received: int
    peer: int


class Group(NamedTuple):
    """A process group: its name, its description, this rank's number in it, and its ranks as ranks of the job."""

    name: str
    description: str
    rank: int
    members: tuple[int, ...]


class Meeting(NamedTuple):
    """When an operation could begin, in ns of the virtual time that all ranks share.

    Attributes:
        ready: When this rank is ready.
        all_ready: When all ranks are ready.
        sender_ready: When all ranks that send a message to this rank are ready.
    """

    ready: int
    all_ready: int
    sender_ready: int


@dataclass(frozen=True, slots=True)
class Collective:
    """One operation of NCCL on this rank. `sequence` is its number in its group."""

    calls: tuple[Call, ...]
    group: Group
    sequence: int
    meeting: Meeting

    @property
    def name(self) -> str:
        names = {call.name for call in self.calls}
        return names.pop() if len(names) == 1 else "coalesced"

    @property
    def sent(self) -> int:
        return sum(call.sent for call in self.calls)

    @property
    def received(self) -> int:
        return sum(call.received for call in self.calls)

    def peers(self) -> tuple[int, int]:
        """Returns the ranks of the job that send and receive a message. Returns (-1, -1) for anything else."""
        if len(self.calls) != 1 or self.calls[0].peer < 0:
            return -1, -1
        own, other = (self.group.members[rank] for rank in (self.group.rank, self.calls[0].peer))
        return (own, other) if self.calls[0].name == "send" else (other, own)

    def kernel(self, costs: Costs) -> str:
        """Returns the name of the kernel. NCCL compiles kernels for sums with the protocol LL, and uses these
        kernels for other reductions and protocols too (`best_kernel` of src/device/generate.py).
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
        """Returns when the operation ends on this rank. Calls of one operation share the links."""
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
    """Returns when the bytes of a call begin to move. A send waits for nobody, since the receiver has room for the
    message.
    """
    if call.name == "send":
        return meeting.ready
    return max(meeting.ready, meeting.sender_ready) if call.name == "recv" else meeting.all_ready


def _bytes(call: Call, group: Group) -> int:
    """Returns the bytes of a call as the model of its operation counts them. In a gather, a scatter and an all-to-all,
    the part that a rank keeps does not count.
    """
    others = (len(group.members) - 1) / len(group.members)
    if call.name in ("gather", "scatter", "all_to_all", "all_to_allv"):
        return round(max(call.sent, call.received) * others)
    return max(call.sent, call.received)


def collective_of(
    calls: Sequence[tuple[str, str, str, int, int, int]], group: Group, sequence: int, meeting: Meeting
) -> Collective:
    """Returns the collective that the shim describes."""
    return Collective(tuple(Call(*call) for call in calls), group, sequence, meeting)
