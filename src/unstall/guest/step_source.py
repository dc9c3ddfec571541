"""Decides which step boundaries count as the program's steps: its optimizer's, its DataLoader's, its model's, or
`unstall.step()`.
"""

from __future__ import annotations

from typing import NamedTuple

EXPLICIT, OPTIMIZER, LOADER, FORWARD = KINDS = ("explicit", "optimizer", "loader", "forward")
"""In order of preference."""
AT_THE_END = (EXPLICIT, OPTIMIZER)
"""Kinds whose boundary ends a step; boundaries of the other kinds begin one."""

_PATIENCE = {OPTIMIZER: 200, LOADER: 50, FORWARD: 200}  # boundaries of others until a source counts as silent
_WITHOUT_OPTIMIZER = 50


class StepSource(NamedTuple):
    """Something that sets step boundaries, such as an optimizer. `kind` is one of `KINDS`; `who` is the `id` of the
    optimizer, data set or module."""

    kind: str
    who: int


class StepSources:
    """Counts step boundaries by their source.

    If autograd is on, a boundary of a loader or a model may be part of a training step. It is then counted only if no
    optimizer has stepped for a long time.
    """

    def __init__(self) -> None:
        self._counts: dict[StepSource, int] = {}
        self._last: dict[StepSource, int] = {}
        self._total = 0
        self._since_optimizer = dict.fromkeys((LOADER, FORWARD), 0)

    def add(self, source: StepSource, *, may_train: bool = False) -> bool:
        """Counts a boundary of `source`. Returns whether it is the first one of this source that is counted.

        With `may_train`, the first 50 boundaries of loaders after an optimizer's step are not counted, and neither are
        the first 50 of models.
        """
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
        """Returns how many boundaries of this source have been counted."""
        return self._counts.get(source, 0)

    def counts(self) -> dict[StepSource, int]:
        """Returns the number of counted boundaries of each source."""
        return dict(self._counts)

    def silent(self, source: StepSource) -> bool:
        """Returns whether this source has stopped setting boundaries while other sources continued. Always false for
        `unstall.step()`."""
        if source.kind == EXPLICIT:
            return False
        return self._total - self._last[source] > _PATIENCE[source.kind] * max(2, len(self._counts))

    def leader(self, latest: StepSource | None = None) -> StepSource | None:
        """Returns the source whose boundaries are taken as the program's steps; None if no boundary has been counted.

        Of several optimizers, this is the one that steps least often. For example, a GAN's discriminator often steps
        several times for each step of its generator. Of several loaders or models, it is the one with the most
        boundaries. If several have the same count, it is `latest`, the source of the newest boundary, because the
        others have already had their boundary in this step.
        """
        for kind in KINDS:
            live = [source for source in self._counts if source.kind == kind and not self.silent(source)]
            if live:
                sign = 1 if kind == OPTIMIZER else -1
                return min(live, key=lambda source: (sign * self._counts[source], source != latest))
        return None
