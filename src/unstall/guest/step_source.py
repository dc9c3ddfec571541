"""Which step boundaries are the program's: those of its optimizer, its DataLoader, its model, or its own."""

from __future__ import annotations

from typing import NamedTuple

EXPLICIT, OPTIMIZER, LOADER, FORWARD = KINDS = ("explicit", "optimizer", "loader", "forward")
"""In order of preference."""
AT_THE_END = (EXPLICIT, OPTIMIZER)
"""Kinds whose boundary ends a step; that of the others begins one."""

_PATIENCE = {OPTIMIZER: 200, LOADER: 50, FORWARD: 200}  # boundaries of each other source, after which one is silent
_WITHOUT_OPTIMIZER = 50


class StepSource(NamedTuple):
    """Where step boundaries come from: their kind, and which optimizer, data set or module (an `id`)."""

    kind: str
    who: int


class StepSources:
    """Counts step boundaries by their source. An iteration of a loader, or a call of a model, that may be a part of a
    training step (autograd is on) counts only if no optimizer has stepped for long."""

    def __init__(self) -> None:
        self._counts: dict[StepSource, int] = {}
        self._last: dict[StepSource, int] = {}
        self._total = 0
        self._since_optimizer = dict.fromkeys((LOADER, FORWARD), 0)

    def add(self, source: StepSource, *, may_train: bool = False) -> bool:
        """Count a boundary. Returns whether it is the first that counts of its source."""
        if source.kind == OPTIMIZER:
            self._since_optimizer = dict.fromkeys(self._since_optimizer, 0)
        elif source.kind in self._since_optimizer:
            self._since_optimizer[source.kind] += 1
            if may_train and self._since_optimizer[source.kind] <= _WITHOUT_OPTIMIZER:
                return False
        self._total += 1
        self._counts[source] = self._counts.get(source, 0) + 1
        self._last[source] = self._total
        return self._counts[source] == 1

    def count(self, source: StepSource) -> int:
        """How many boundaries of it counted."""
        return self._counts.get(source, 0)

    def silent(self, source: StepSource) -> bool:
        """Whether others have gone on without it. Boundaries set by `unstall.step()` are waited for, however long."""
        if source.kind == EXPLICIT:
            return False
        return self._total - self._last[source] > _PATIENCE[source.kind] * max(2, len(self._counts))

    def leader(self, latest: StepSource | None = None) -> StepSource | None:
        """The source of steps by what was counted; None before any counts.

        The optimizer that steps least often: of a GAN's two, one step of it is a step of the program. The loader or
        model that comes most often. Of equals it is the `latest`, as then all others have had their turn.
        """
        for kind in KINDS:
            live = [source for source in self._counts if source.kind == kind and not self.silent(source)]
            if live:
                sign = 1 if kind == OPTIMIZER else -1
                return min(live, key=lambda source: (sign * self._counts[source], source != latest))
        return None
