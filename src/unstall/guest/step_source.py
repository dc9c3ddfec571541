"""Decides which step boundaries count as the program's steps: those of an optimizer, of a DataLoader, of a model, or of
`unstall.step()`.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

EXPLICIT, OPTIMIZER, LOADER, FORWARD = KINDS = ("explicit", "optimizer", "loader", "forward")
"""The kinds of objects that set step boundaries, in order of preference. "explicit" stands for `unstall.step()`, and
"forward" for a call of a model."""
AT_THE_END = (EXPLICIT, OPTIMIZER)
"""The kinds whose step boundaries are at the end of a step. Step boundaries of the other kinds are at the beginning of
a step."""

USUAL_WARMUP = 3
"""How many steps are skipped as warm-up, unless the user asks for another number."""

_PATIENCE = {OPTIMIZER: 200, LOADER: 50, FORWARD: 200}  # boundaries of others until a source counts as silent
_WITHOUT_OPTIMIZER = 50
_SHORT_LOOP = 3  # a loop of fewer steps is more likely a part of what repeats


class StepSource(NamedTuple):
    """Something that sets step boundaries, such as an optimizer.

    Attributes:
        kind: What it is: one of `KINDS`.
        who: The `id` of the optimizer, data set or module. 0 for `unstall.step()`.
    """

    kind: str
    who: int


class StepSources:
    """Counts the step boundaries of a program by their source: an optimizer, a DataLoader, a model, or
    `unstall.step()`. Decides which source's boundaries are the program's steps.

    If autograd is enabled, a boundary of a DataLoader or a model may be part of a training step. Such a boundary is
    counted only after more than 50 boundaries of this kind without a step of an optimizer.
    """

    def __init__(self) -> None:
        self._counts: dict[StepSource, int] = {}
        self._first: dict[StepSource, int] = {}
        self._last: dict[StepSource, int] = {}
        self._total = 0
        self._since_optimizer = dict.fromkeys((LOADER, FORWARD), 0)

    def add(self, source: StepSource, *, may_train: bool = False) -> bool:
        """Counts a step boundary of `source`. Returns True if it is the first boundary of `source` that is counted.

        If `may_train` is True, the boundary may be part of a training step. In this case, the first 50 DataLoader
        boundaries and the first 50 model boundaries after an optimizer's step are not counted.
        """
        if source.kind == OPTIMIZER:
            self._since_optimizer = dict.fromkeys(self._since_optimizer, 0)
        elif source.kind in self._since_optimizer:
            self._since_optimizer[source.kind] += 1
            if may_train and self._since_optimizer[source.kind] <= _WITHOUT_OPTIMIZER:
                return False
        self._total += 1
        self._counts[source] = self._counts.get(source, 0) + 1
        self._first.setdefault(source, self._total)
        self._last[source] = self._total
        return self._counts[source] == 1

    def count(self, source: StepSource) -> int:
        """Returns how many step boundaries of `source` have been counted."""
        return self._counts.get(source, 0)

    def counts(self) -> dict[StepSource, int]:
        """Returns a dict that maps each source to the number of its step boundaries that have been counted."""
        return dict(self._counts)

    def silent(self, source: StepSource) -> bool:
        """Returns whether `source` has stopped setting step boundaries while other sources have continued. Always
        returns False for `unstall.step()`."""
        if source.kind == EXPLICIT:
            return False
        return self._total - self._last[source] > _PATIENCE[source.kind] * max(2, len(self._counts))

    def leader(self, latest: StepSource | None = None) -> StepSource | None:
        """Returns the source whose step boundaries are the program's steps, as far as is known while it runs. Returns
        None if no boundary has been counted.

        If the program calls `unstall.step()`, this is the source. Otherwise it is an optimizer, or else a DataLoader,
        or else a model. Of several optimizers, it is the one that steps least often. For example, a GAN's discriminator
        often steps several times for each step of the GAN's generator. Of several DataLoaders or models, it is the one
        with the most boundaries.

        `latest` is the source of the newest boundary. If several sources qualify and `latest` is one of them, returns
        `latest`, because the other sources have already set their boundaries in this step.
        """
        live = self._of_the_best_kind()
        sign = 1 if live and live[0].kind == OPTIMIZER else -1
        return min(live, key=lambda source: (sign * self._counts[source], source != latest), default=None)

    def leader_in_hindsight(self) -> StepSource | None:
        """Returns the source whose step boundaries were the program's steps. Call this when no more boundaries come.

        It is that of `leader`, unless optimizers have stepped one after the other, such as Adam in a first loop and
        LBFGS in a second one. Then it is that of the longest loop; of equally long ones, that of the last.
        """
        live = self._of_the_best_kind()
        if not live or live[0].kind != OPTIMIZER:
            return self.leader()
        rarest = [min(loop, key=self._counts.__getitem__) for loop in self._loops(live)]
        return max(reversed(rarest), key=self._counts.__getitem__)

    def _of_the_best_kind(self) -> list[StepSource]:
        live = [source for source in self._counts if not self.silent(source)]
        best = min((KINDS.index(source.kind) for source in live), default=0)
        return [source for source in live if source.kind == KINDS[best]]

    def _loops(self, sources: list[StepSource]) -> list[list[StepSource]]:
        """Returns the sources in lists, in order of time. Those in one list take turns: the first boundary of each
        comes before the last one of those before it.
        """
        loops: list[list[StepSource]] = []
        reach = 0
        for source in sorted(sources, key=self._first.__getitem__):
            if self._first[source] > reach:
                loops.append([])
            loops[-1].append(source)
            reach = max(reach, self._last[source])
        return loops


def step_spans(boundaries: Sequence[int], loop_ends: Sequence[int]) -> list[tuple[int, int]]:
    """Returns the steps as (start, end). Each lasts to the next boundary, or to the end of its loop if this comes
    first. After the last boundary, there is a step only if a loop ends there.

    If all loops have only one or two steps, and there are more loops than that, the loops themselves are what repeats.
    Then what is between them belongs to the steps.

    Args:
        boundaries: When steps begin or end, in ns, ascending.
        loop_ends: When the loops end, in ns, ascending. A loop ends its last step.
    """
    spans = list(_spans(boundaries, loop_ends))
    first_of_loops = [number for number, (one, next_) in enumerate(pairwise(spans), 1) if one[1] < next_[0]]
    lengths = [stop - first for first, stop in pairwise((0, *first_of_loops, len(spans)))]
    if not spans or max(lengths) >= min(_SHORT_LOOP, len(lengths)):
        return spans
    starts = [start for start, _ in spans]
    return [*pairwise(starts), spans[-1]]


def _spans(boundaries: Sequence[int], loop_ends: Sequence[int]) -> Iterator[tuple[int, int]]:
    for number, start in enumerate(boundaries):
        place = bisect.bisect_right(loop_ends, start)
        ends = (*boundaries[number + 1 : number + 2], *loop_ends[place : place + 1])
        if ends:
            yield start, min(ends)
