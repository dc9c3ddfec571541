"""Joins the collectives of all ranks: finds which calls of which ranks belong to one operation.

Calls belong together if they have the same group and the same sequence number. Sends and receives have no common
sequence number. A send and a receive belong together if they have the same sender and the same receiver, and the same
position among such calls. A batch may send and receive: all calls that share messages are one operation. If a trace
has no sequence numbers, calls belong together if they have the same group and the same position in the step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from unstall.figures import counted
from unstall.fleets.summarise import KINDS
from unstall.fleets.summary import Group, Rank
from unstall.locate.collectives import Kind
from unstall.timeline.columns import I64
from unstall.timeline.grouping import components, ranges

SEND_RECEIVE = KINDS.index(Kind.SEND_RECEIVE)
"""The index of the kind of sends and receives in `KINDS`."""
_MOST_NAMED = 3


class Joined(msgspec.Struct, frozen=True, eq=False):
    """The operations of a job: collectives in which several ranks take part, in the order of their first call. A member
    is one rank's part of an operation.

    Attributes:
        group: For each operation, the index of its group in `groups`.
        kind: For each operation, the index of its kind in `unstall.fleets.summarise.KINDS`.
        first: Operation i has the members first[i] to first[i + 1] - 1. The array has one value more than there are
            operations.
        rank: For each member, the index of its rank in the list of ranks.
        row: For each member, the row number of its call in `Rank.calls`.
        groups: The process groups of all ranks, each once.
        notes: Sentences about calls that did not match.
    """

    group: I64
    kind: I64
    first: I64
    rank: I64
    row: I64
    groups: tuple[Group, ...]
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.group)

    @property
    def operation(self) -> I64:
        """For each member (one rank's part of an operation), the number of its operation."""
        return np.repeat(np.arange(len(self)), np.diff(self.first))

    def of_members(self, ranks: Sequence[Rank], column: str) -> I64:
        """Returns an array with one value for each member (one rank's part of an operation): the value that a column of
        `Calls` has for the member's call.

        Args:
            ranks: The ranks that were joined.
            column: The name of the column of `Calls`.
        """
        return self.of_rows([getattr(rank.calls, column) for rank in ranks])

    def of_rows(self, columns: Sequence[I64]) -> I64:
        """Returns an array with one value for each member (one rank's part of an operation). `columns` has one array
        for each rank, with one value for each call of this rank. The result has the value of the member's call."""
        first = np.cumsum([0, *map(len, columns)])
        found: I64 = np.concatenate([*columns, np.zeros(0, dtype=np.int64)])[first[self.rank] + self.row]
        return found


def join(ranks: Sequence[Rank]) -> Joined:
    """Joins the collectives of `ranks`: finds which calls of which ranks belong to one operation. Calls to which no
    call of another rank belongs are left out. `Joined.notes` says which calls are missing or do not fit."""
    groups, number_of = _groups(ranks)
    messages = _messages(ranks, number_of)
    keys = [_keys(rank, number_of[index], messages[index], groups) for index, rank in enumerate(ranks)]
    rank_of = np.concatenate([np.full(len(key[0]), index) for index, key in enumerate(keys)])
    columns = [np.concatenate(column) for column in zip(*keys, strict=True)]
    row, kind, enqueued, known = columns[0], columns[1], columns[2], columns[3:]
    order = np.lexsort((rank_of, *reversed(known)))
    changes = np.zeros(len(order), dtype=np.bool_)
    for column in known:
        changes |= np.diff(column[order], prepend=-2) != 0
    first = np.append(np.flatnonzero(changes), len(order))
    sizes = np.diff(first)

    lead = order[first[:-1]]
    alike = np.minimum.reduceat(kind[order], first[:-1]) == np.maximum.reduceat(kind[order], first[:-1])
    whole = (sizes > 1) & alike if len(sizes) else np.zeros(0, dtype=np.bool_)
    unknown = sum(
        int(((rank.calls.kind == SEND_RECEIVE) & (each < 0) & ((rank.calls.source < 0) | (rank.calls.step >= 0))).sum())
        for rank, each in zip(ranks, messages, strict=True)
    )
    notes = _notes(ranks, groups, (known[0][lead], sizes, alike), (first, order, rank_of, kind, row), unknown)
    chosen = np.flatnonzero(whole)
    chosen = chosen[np.argsort(np.minimum.reduceat(enqueued[order], first[:-1])[chosen], kind="stable")]
    counts = sizes[chosen]
    offset = np.append(0, np.cumsum(counts))
    at = order[ranges(first[:-1][chosen], counts)]
    return Joined(known[0][lead][chosen], kind[lead][chosen], offset, rank_of[at], row[at], tuple(groups), notes)


def _groups(ranks: Sequence[Rank]) -> tuple[list[Group], list[I64]]:
    """Returns `(groups, numbers)`. `groups` has the process groups of all ranks, each once. `numbers` has one array for
    each rank: for each group of the rank, its index in `groups`."""
    groups: list[Group] = []
    known: dict[tuple[str, tuple[int, ...], int], int] = {}
    numbers = []
    for rank in ranks:
        mine = []
        for group in rank.summary.groups:
            key = (group.name, group.ranks, group.size)
            if key not in known:
                known[key] = len(groups)
                groups.append(group)
            mine.append(known[key])
        numbers.append(np.array(mine, dtype=np.int64))
    return groups, numbers


def _messages(ranks: Sequence[Rank], numbers: Sequence[I64]) -> list[I64]:
    """Finds the sends and receives that belong together. Returns an array for each rank, with one value for each of its
    calls: a number that calls of one operation share, or -1 if the call is no send or receive of known peers.

    A rank takes part in an operation once. If batches would make an operation of several calls of one rank, such as a
    send and a receive that another rank has in one batch, these calls get -1.

    Args:
        ranks: The ranks.
        numbers: For each rank, for each of its groups, the index of this group in the groups of all ranks.
    """
    columns: list[tuple[I64, ...]] = []
    first = np.cumsum([0, *(len(rank.calls) for rank in ranks)])
    for index, rank in enumerate(ranks):
        calls = rank.calls
        known = (calls.kind == SEND_RECEIVE) & (calls.source >= 0) & (calls.target >= 0) & (calls.step >= 0)
        for side, peer in enumerate((calls.source, calls.target)):
            row = np.flatnonzero(known & (peer != rank.number))
            own, other = np.full(len(row), rank.number), peer[row]
            group = numbers[index][calls.group[row]]
            ends = (own, other) if side else (other, own)
            columns.append((first[index] + row, np.full(len(row), side), group, calls.step[row], *ends))
    call, is_sent, *way = (np.concatenate(column) for column in zip(*columns, strict=True))
    way.append(_occurrence([is_sent, *way]))
    order = np.lexsort((is_sent, *reversed(way)))
    same = np.ones(max(len(order) - 1, 0), dtype=np.bool_)
    for column in way:
        same &= np.diff(column[order]) == 0
    at = np.flatnonzero(same)
    joint = np.full(int(first[-1]), -1, dtype=np.int64)
    joint[call] = components(len(joint), call[order[at]], call[order[at + 1]])[call]
    rank_of = np.repeat(np.arange(len(ranks)), np.diff(first))
    is_known = joint >= 0
    pairs, counts = np.unique(joint[is_known] * len(ranks) + rank_of[is_known], return_counts=True)
    twice = np.isin(joint, pairs[counts > 1] // len(ranks))
    return np.split(np.where(twice, -1, joint), first[1:-1])


def _keys(rank: Rank, number_of: I64, messages: I64, groups: list[Group]) -> tuple[I64, ...]:
    """Returns a tuple of arrays, each with one value for each call of a rank that can be joined. The first three arrays
    are the row number of the call, its kind, and the time of the call in ns. Calls of several ranks belong to one
    operation if they are equal in all other arrays.

    Args:
        rank: The rank.
        number_of: For each group of the rank, its index in `groups`.
        messages: For each call of the rank, the number of the operation of sends and receives that it belongs to, or
            -1.
        groups: The process groups of all ranks.
    """
    calls = rank.calls
    group = number_of[calls.group] if len(calls) else calls.group
    paired = messages >= 0
    # Each rank numbers its own sends and receives, so equal numbers do not mean the same operation.
    alone = (calls.kind == SEND_RECEIVE) & ~paired
    several = np.array([each.size > 2 for each in groups], dtype=np.bool_)[group] if len(calls) else alone
    numbered = (calls.sequence >= 0) & ~paired & ~alone
    row = np.flatnonzero((numbered | (calls.step >= 0)) & ~(alone & several))
    enqueued = calls.enqueued + rank.summary.zero_ns
    way = np.where(numbered, 0, np.where(paired, 1, 2))
    one = np.where(numbered, calls.sequence, np.where(paired, messages, calls.step))
    two = np.where(numbered | paired, 0, calls.kind)
    parts = [column[row] for column in (group, way, one, two)]
    return (row, calls.kind[row], enqueued[row], *parts, _occurrence(parts))


def _occurrence(parts: list[I64]) -> I64:
    """Returns, for each row, the number of earlier rows that have the same values in all columns of `parts`."""
    order = np.lexsort(tuple(reversed(parts)))
    new = np.zeros(len(order), dtype=np.bool_)
    for column in parts:
        new |= np.diff(column[order], prepend=-2) != 0
    starts = np.flatnonzero(new)
    within = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    result = np.empty(len(order), dtype=np.int64)
    result[order] = within
    return result


def _notes(
    ranks: Sequence[Rank],
    groups: list[Group],
    found: tuple[I64, I64, np.ndarray],
    rows: tuple[I64, I64, I64, I64, I64],
    unknown: int,
) -> tuple[str, ...]:
    """Returns sentences about calls that do not match: collectives of different kinds, operations that a rank lacks,
    sends and receives with an unknown peer, and groups whose ranks are unknown."""
    group, sizes, alike = found
    first, order, rank_of, kind, row = rows
    loaded = {rank.number: index for index, rank in enumerate(ranks)}
    notes = []
    for at in np.flatnonzero(~alike)[:_MOST_NAMED].tolist():
        mine = order[first[at] : first[at + 1]]
        by_kind: dict[int, list[int]] = {}
        for each in mine.tolist():
            by_kind.setdefault(int(kind[each]), []).append(ranks[int(rank_of[each])].number)
        said = "; ".join(f"{ranks_text(each)} {KINDS[what].value}" for what, each in by_kind.items())
        notes.append(
            f"desync in {name_of(groups[int(group[at])])}: the same operation is {said}, so these ranks do not run "
            "the same program"
        )
    lacking: Counter[tuple[int, int]] = Counter()
    span = [_span(rank) for rank in ranks]
    for at in np.flatnonzero(alike).tolist():
        expected = [loaded[number] for number in groups[int(group[at])].ranks if number in loaded]
        if len(expected) <= sizes[at]:
            continue
        mine = order[first[at] : first[at + 1]]
        each, call = ranks[int(rank_of[mine[0]])], int(row[mine[0]])
        if int(kind[mine[0]]) == SEND_RECEIVE:
            peers = {int(each.calls.source[call]), int(each.calls.target[call])}
            expected = [index for index in expected if sizes[at] == 1 and ranks[index].number in peers]
        time = int(each.calls.started[call]) + each.summary.zero_ns
        present = set(rank_of[mine].tolist())
        for index in expected:
            if index not in present and span[index][0] < time < span[index][1]:
                lacking[int(group[at]), ranks[index].number] += 1
    for (number, rank), count in sorted(lacking.items())[: 2 * _MOST_NAMED]:
        notes.append(
            f"rank {rank} lacks {counted(count, 'operation')} that others have in {name_of(groups[number])}: they are "
            "replayed as recorded"
        )
    if unknown:
        notes.append(
            f"{unknown:,} sends and receives have an unknown peer: they are joined by their order if their group has "
            "two ranks, or else replayed as recorded"
        )
    if any(not each.ranks for each in groups):
        notes.append(
            "some traces do not say which ranks their groups have: operations of such groups are matched by their "
            "order in each step"
        )
    return tuple(notes)


def _span(rank: Rank) -> tuple[int, int]:
    calls, zero = rank.calls, rank.summary.zero_ns
    if not len(calls):
        return 0, 0
    return int(calls.started.min()) + zero, int(calls.ended.max()) + zero


def name_of(group: Group) -> str:
    """Returns a name for a process group, such as "dp (ranks 0-3)": the name that torch gave the group, and its ranks
    if they are known."""
    name = group.name or "an unnamed group"
    return f"{name} ({ranks_text(group.ranks)})" if group.ranks else name


def ranks_text(numbers: Sequence[int]) -> str:
    """Returns rank numbers as people write them, such as "rank 3" or "ranks 0-3, 8". After eight numbers and ranges,
    the text ends with an ellipsis."""
    distinct = sorted(set(numbers))
    parts: list[str] = []
    at = 0
    while at < len(distinct):
        end = at
        while end + 1 < len(distinct) and distinct[end + 1] == distinct[end] + 1:
            end += 1
        parts.append(f"{distinct[at]}" if end == at else f"{distinct[at]}-{distinct[end]}")
        at = end + 1
    shown = ", ".join(parts[:8]) + (", …" if len(parts) > 8 else "")
    return f"rank {shown}" if len(distinct) == 1 else f"ranks {shown}"
