"""Finds the use of each group (data, tensor, pipeline, expert or sequence parallelism), and which ranks do the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unstall.fleets.join import Joined
from unstall.fleets.summarise import KINDS
from unstall.fleets.summary import Rank
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
_PAIRED = KINDS.index(Kind.SEND_RECEIVE)
_EXCHANGES = tuple(KINDS.index(kind) for kind in (Kind.ALL_TO_ALL, Kind.DISPATCH, Kind.COMBINE))
_TENSOR_TIMES = 2  # calls in a step, against those of the groups beside it


@dataclass(frozen=True, eq=False, slots=True)
class Roles:
    """The use of each group, and the role of each rank.

    Ranks of one role do the same work on different data, so they can be compared. A role is a stage of the pipeline; if
    there is no pipeline, all ranks have role 0.
    """

    use: tuple[str, ...]  # by group
    by_name: tuple[bool, ...]  # by group: whether its name told its use; if not, the pattern of its operations did
    role: I64  # by rank
    stages: int

    def members(self) -> list[I64]:
        """Returns the indices of the ranks of each role."""
        return [np.flatnonzero(self.role == role) for role in range(self.stages)]


def roles_of(ranks: Sequence[Rank], joined: Joined) -> Roles:
    """Finds the use of each group and the role of each rank."""
    told = [next((use for pattern, use in _BY_NAME if pattern.search(group.name)), None) for group in joined.groups]
    calls, kinds = _calls_of_groups(ranks, joined)
    use = []
    for number, by_name in enumerate(told):
        mine = kinds[number]
        if by_name:
            use.append(by_name)
        elif not joined.groups[number].ranks:
            use.append(OTHER)  # it may be several groups; a kernel that sends and receives may be an exchange
        elif mine.get(_PAIRED, 0) > sum(mine.values()) / 2:
            use.append(PIPELINE)
        elif any(mine.get(kind) for kind in _EXCHANGES):
            use.append(EXPERT)
        elif _is_innermost(number, joined, calls):
            use.append(TENSOR)
        else:
            use.append(DATA if mine else OTHER)
    role = _stages(ranks, [number for number, each in enumerate(use) if each == PIPELINE], joined)
    return Roles(tuple(use), tuple(each is not None for each in told), role, int(role.max(initial=0)) + 1)


def _calls_of_groups(ranks: Sequence[Rank], joined: Joined) -> tuple[list[float], list[dict[int, int]]]:
    kinds: list[dict[int, int]] = [{} for _ in joined.groups]
    for number in range(len(joined.groups)):
        mine, counts = np.unique(joined.kind[joined.group == number], return_counts=True)
        kinds[number] = dict(zip(mine.tolist(), counts.tolist(), strict=True))
    return [float(sum(each.values())) for each in kinds], kinds


def _is_innermost(number: int, joined: Joined, calls: list[float]) -> bool:
    """Returns whether a group has neighbouring ranks, and communicates far more often than the groups around it.

    Frameworks give tensor parallelism the innermost dimension, since its collectives run in every layer.
    """
    group = joined.groups[number]
    if len(group.ranks) < 2 or group.ranks[-1] - group.ranks[0] != len(group.ranks) - 1:
        return False
    others = [
        calls[other]
        for other, each in enumerate(joined.groups)
        if other != number and set(each.ranks) & set(group.ranks) and each.ranks != group.ranks and calls[other]
    ]
    return bool(others) and calls[number] >= _TENSOR_TIMES * max(others)


def _stages(ranks: Sequence[Rank], pipelines: list[int], joined: Joined) -> I64:
    """Returns the pipeline stage of each rank.

    The first call of a step decides. If it is a send, the rank is in the first stage. If not, the rank comes after the
    rank from which it first receives. If senders and receivers are unknown, the order of ranks in their group decides.
    """
    numbers = {rank.number: index for index, rank in enumerate(ranks)}
    before: dict[int, int] = {}
    for index, rank in enumerate(ranks):
        calls = rank.calls
        mine = np.flatnonzero((calls.kind == _PAIRED) & (calls.source >= 0) & (calls.step >= 0))
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
    for number in pipelines:
        for place, rank_number in enumerate(joined.groups[number].ranks):
            if rank_number in numbers:
                stage[numbers[rank_number]] = max(stage[numbers[rank_number]], place)
    return stage
