"""Finds the use of each process group (data, tensor, pipeline, expert or sequence parallelism), and which ranks do the
same work on different data."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np

from unstall.fleets.join import SEND_RECEIVE, Joined
from unstall.fleets.summarise import KINDS
from unstall.fleets.summary import Group, Rank
from unstall.locate.collectives import Kind
from unstall.timeline.columns import I64

DATA, TENSOR, PIPELINE, EXPERT, SEQUENCE, OTHER = "data", "tensor", "pipeline", "expert", "sequence", "other"
_BY_NAME = tuple(
    (re.compile(rf"(?:^|[^a-z])(?:{pattern})(?:[^a-z]|$)", re.IGNORECASE), use)
    for pattern, use in (
        (r"pp|pipe\w*|pipeline\w*", PIPELINE),
        (r"ep|moe|expert\w*", EXPERT),
        (r"cp|sp|sequence\w*|context\w*|ulysses", SEQUENCE),
        (r"tp|tensor\w*|model_?parallel\w*", TENSOR),
        (r"dp|ddp|fsdp|hsdp|data\w*|replicate\w*|shard\w*|dp_\w+", DATA),
    )
)
EXCHANGES = tuple(KINDS.index(kind) for kind in (Kind.ALL_TO_ALL, Kind.DISPATCH, Kind.COMBINE))
"""The indices in `KINDS` of the collectives in which each rank sends something else to each other rank."""
_TENSOR_TIMES = 2  # calls in a step, against those of the groups beside it


class Roles(msgspec.Struct, frozen=True, eq=False):
    """The use of each process group of a job, and the role of each rank.

    Ranks of one role do the same work on different data, so they can be compared. Each stage of a pipeline is a role.
    If there is no pipeline, all ranks have the role 0.

    Attributes:
        use: For each group, its use: "data", "tensor", "pipeline", "expert", "sequence" or "other".
        by_name: For each group, True if the name of the group told its use. False if the pattern of its collectives
            did.
        role: For each rank, the number of its role, from 0.
        stages: The number of roles.
    """

    use: tuple[str, ...]
    by_name: tuple[bool, ...]
    role: I64
    stages: int

    @property
    def largest(self) -> int:
        """The number of ranks of the largest role."""
        return max(map(len, self.members()), default=0)

    def members(self) -> list[I64]:
        """Returns a list with one array for each role: the indices of the ranks that have this role."""
        return [np.flatnonzero(self.role == role) for role in range(self.stages)]


def roles_of(ranks: Sequence[Rank], joined: Joined) -> Roles:
    """Finds the use of each process group and the role of each rank.

    Args:
        ranks: The ranks of a job.
        joined: The collectives in which several of these ranks take part.
    """
    told = [next((use for pattern, use in _BY_NAME if pattern.search(group.name)), None) for group in joined.groups]
    calls, kinds = _calls_of_groups(ranks, joined)
    beside = _most_beside(joined.groups, calls)
    use = []
    for number, by_name in enumerate(told):
        mine = kinds[number]
        if by_name:
            use.append(by_name)
        elif not joined.groups[number].ranks:
            use.append(OTHER)  # it may be several groups; a kernel that sends and receives may be an exchange
        elif mine.get(SEND_RECEIVE, 0) > sum(mine.values()) / 2:
            use.append(PIPELINE)
        elif any(mine.get(kind) for kind in EXCHANGES):
            use.append(EXPERT)
        elif _is_innermost(joined.groups[number].ranks, calls[number], beside[number]):
            use.append(TENSOR)
        else:
            use.append(DATA if mine else OTHER)
    role = _stages(ranks, use, joined)
    return Roles(tuple(use), tuple(each is not None for each in told), role, int(role.max(initial=0)) + 1)


def _calls_of_groups(ranks: Sequence[Rank], joined: Joined) -> tuple[list[float], list[dict[int, int]]]:
    kinds: list[dict[int, int]] = [{} for _ in joined.groups]
    for number in range(len(joined.groups)):
        mine, counts = np.unique(joined.kind[joined.group == number], return_counts=True)
        kinds[number] = dict(zip(mine.tolist(), counts.tolist(), strict=True))
    return [float(sum(each.values())) for each in kinds], kinds


def _is_innermost(ranks: Sequence[int], calls: float, beside: float) -> bool:
    """Returns whether a group looks like tensor parallelism: its ranks have consecutive numbers, and it communicates at
    least twice as often as each other group that shares ranks with it.

    Frameworks give consecutive ranks to tensor parallelism, because its collectives run in every layer.

    Args:
        ranks: The ranks of the group, in ascending order.
        calls: The number of its collectives.
        beside: The largest number of collectives of a group that shares ranks with it, as `_most_beside` returns it.
    """
    if len(ranks) < 2 or ranks[-1] - ranks[0] != len(ranks) - 1:
        return False
    return beside > 0 and calls >= _TENSOR_TIMES * beside


def _most_beside(groups: Sequence[Group], calls: Sequence[float]) -> list[float]:
    """Returns, for each group, the largest number of collectives of a group that shares some of its ranks, and not just
    these. 0 if there is none. `calls` has the number of collectives of each group."""
    numbers: dict[tuple[int, ...], int] = {}
    like = [numbers.setdefault(group.ranks, len(numbers)) for group in groups]  # equal if the ranks are
    most: dict[int, tuple[float, int, float]] = {}  # by rank: of its busiest group, which that is, of the next other
    for number in sorted(range(len(groups)), key=calls.__getitem__):
        mine = like[number]
        for rank in groups[number].ranks:
            count, which, second = most.get(rank, (0, -1, 0))
            most[rank] = calls[number], mine, second if which == mine else count
    found = []
    for number, group in enumerate(groups):
        of_ranks = (most[rank] for rank in group.ranks)
        found.append(max((second if which == like[number] else count for count, which, second in of_ranks), default=0))
    return found


def _stages(ranks: Sequence[Rank], use: Sequence[str], joined: Joined) -> I64:
    """Returns the number of the pipeline stage of each rank, from 0.

    The first send or receive of a rank in a group that may be a pipeline decides; a batch of both does not tell. If it
    is a send, the rank is in the first stage. If it is a receive, the rank is in the stage after that of the sender. If
    no senders and receivers are known, a rank's stage is its position in its pipeline group.

    Args:
        ranks: The ranks of the job.
        use: The use of each group.
        joined: The collectives of the job.
    """
    numbers = {rank.number: index for index, rank in enumerate(ranks)}
    passing = {group for group, its in zip(joined.groups, use, strict=True) if its in (PIPELINE, OTHER)}
    before: dict[int, int] = {}
    for index, rank in enumerate(ranks):
        calls = rank.calls
        one_way = (calls.source == rank.number) != (calls.target == rank.number)
        passes = np.array([group in passing for group in rank.summary.groups], dtype=np.bool_)[calls.group]
        mine = np.flatnonzero((calls.kind == SEND_RECEIVE) & passes & (calls.source >= 0) & one_way & (calls.step >= 0))
        if len(mine) and calls.target[mine[0]] == rank.number:
            source = numbers.get(int(calls.source[mine[0]]))
            if source is not None:
                before[index] = source
    stage = np.zeros(len(ranks), dtype=np.int64)
    if before:
        for index in range(len(ranks)):
            at, depth = index, 0
            while at in before and depth <= len(ranks):
                at, depth = before[at], depth + 1
            stage[index] = depth if depth <= len(ranks) else 0
        return stage
    for group in (group for group, its in zip(joined.groups, use, strict=True) if its == PIPELINE):
        for place, rank_number in enumerate(group.ranks):
            if rank_number in numbers:
                stage[numbers[rank_number]] = max(stage[numbers[rank_number]], place)
    return stage
