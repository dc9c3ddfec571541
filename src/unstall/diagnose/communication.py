"""Groups collectives by process group and by kind of operation. Computes the bandwidth of each
group of collectives from their bytes and their time.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from unstall.locate.collectives import Kind, kind_of_kernel, kind_of_operation
from unstall.timeline.columns import I64, Timeline
from unstall.timeline.grouping import by_text, groups

_KINDS = tuple(Kind)
_CODE = {kind: code for code, kind in enumerate(_KINDS)}
_OTHER = _CODE[Kind.OTHER]
# The size of an operation is that of its larger side, except for these (nccl-tests, doc/PERFORMANCE.md).
_BY_SENT = (Kind.ALL_REDUCE, Kind.FUSED_ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL, Kind.DISPATCH, Kind.COMBINE)


class Alike(msgspec.Struct, frozen=True):
    """The collectives of one kind in one process group, added up.

    Attributes:
        kind: The kind of collective, such as an all-reduce.
        group: The process group; "" if it is not known.
        ranks: The number of ranks in the group; -1 if it is not known.
        ops: The collectives, as indices of rows of `timeline.device`.
        bytes: The bytes of all of them; -1 if those of one are not known.
        time_ns: The time of all of them, in ns.
    """

    kind: Kind
    group: str
    ranks: int
    ops: I64
    bytes: int
    time_ns: int

    @property
    def bandwidth(self) -> float | None:
        """The bytes of the collectives divided by their time, in GB/s. None if the number of bytes is unknown."""
        return self.bytes / self.time_ns if self.bytes > 0 and self.time_ns > 0 else None

    @property
    def bus_bandwidth(self) -> float | None:
        """The bytes that the link of each rank carries per ns (GB/s).

        The formulas are from nccl-tests (doc/PERFORMANCE.md). None if the number of ranks, the
        number of bytes, or the formula for this kind of collective is unknown.
        """
        if self.bandwidth is None or self.ranks < 2:
            return None
        others = (self.ranks - 1) / self.ranks
        if self.kind in (Kind.ALL_REDUCE, Kind.FUSED_ALL_REDUCE):
            return 2 * others * self.bandwidth
        if self.kind in (Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL):
            return others * self.bandwidth
        return self.bandwidth if self.kind in (Kind.BROADCAST, Kind.REDUCE, Kind.SEND_RECEIVE) else None


def alike(timeline: Timeline, ops: I64) -> Iterator[Alike]:
    """Yields one item for each process group and kind of collective. The item adds up the
    collectives of this group and kind.

    Args:
        timeline: The recorded run.
        ops: The rows of `timeline.device` that are collectives, in ascending order.
    """
    device, told = timeline.device, timeline.collectives
    row = np.searchsorted(told.op, ops)
    known = row < len(told)
    known[known] = told.op[row[known]] == ops[known]
    row = np.where(known, row, -1)

    def column(values: I64) -> I64:
        return np.where(known, values[row], -1) if len(told) else np.full(len(ops), -1)

    said = by_text(told.name, lambda index: _CODE[kind_of_operation(timeline.text(index))])
    by_name = by_text(device.name[ops], lambda index: _CODE[kind_of_kernel(timeline.text(index)) or Kind.OTHER])
    code = column(said)
    code = np.where((code < 0) | (code == _OTHER), by_name, code)
    group, ranks = column(told.group.astype(np.int64)), column(told.ranks)
    sent, received = column(told.sent), column(told.received)
    size = np.where(np.isin(code, [_CODE[kind] for kind in _BY_SENT]), sent, np.maximum(sent, received))
    length = (device.end - device.start)[ops]
    most_ranks, texts = int(ranks.max(initial=-1)) + 2, len(timeline.strings) + 1
    if most_ranks * texts * len(_KINDS) >= 2**62:  # such numbers of ranks are damage
        ranks, most_ranks = np.full(len(ops), -1), 1
    for _, mine in groups((code * texts + group + 1) * most_ranks + ranks + 1):
        first, sizes = mine[0], size[mine]
        yield Alike(
            kind=_KINDS[code[first]],
            group=timeline.text(int(group[first])),
            ranks=int(ranks[first]),
            ops=ops[mine],
            bytes=int(sizes.sum()) if (sizes > 0).all() else -1,
            time_ns=int(length[mine].sum()),
        )
