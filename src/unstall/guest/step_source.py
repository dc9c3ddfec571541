"""Decides which step boundaries count as the program's steps: those of an optimizer, of a DataLoader, of a model, or of
`unstall.step()`.
"""

from __future__ import annotations

from typing import NamedTuple

EXPLICIT, OPTIMIZER, LOADER, FORWARD = KINDS = ("explicit", "optimizer", "loader", "forward")
"""The kinds of sources of step boundaries, in order of preference."""
AT_THE_END = (EXPLICIT, OPTIMIZER)
"""The kinds whose boundary is at the end of a step. A boundary of another kind is at the beginning of a step."""

_PATIENCE = {OPTIMIZER: 200, LOADER: 50, FORWARD: 200}  # boundaries of others until a source counts as silent
_WITHOUT_OPTIMIZER = 50


class StepSource(NamedTuple):
    """Something that sets step boundaries, such as an optimizer. `kind` is one of `KINDS`; `who` is the `id` of the
    optimizer, data set or module."""

    kind: str
    who: int


class StepSources:
    """Counts step boundaries by their source.

    If autograd is enabled, a boundary of a loader or a model may be part of a training step. Such a boundary is counted
    only if no optimizer has stepped for a long time.
    """

    def __init__(self) -> None:
        self._counts: dict[StepSource, int] = {}
        self._last: dict[StepSource, int] = {}
        self._total = 0
        self._since_optimizer = dict.fromkeys((LOADER, FORWARD), 0)

    def add(self, source: StepSource, *, may_train: bool = False) -> bool:
        """Counts a boundary of `source`. Returns whether this is the first counted boundary of `source`.

        If `may_train` is true, the first 50 loader boundaries after an optimizer's step are not counted. The first 50
        model boundaries after an optimizer's step are not counted either.
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
        """Returns the number of counted boundaries of `source`."""
        return self._counts.get(source, 0)

    def counts(self) -> dict[StepSource, int]:
        """Returns the number of counted boundaries of each source."""
        return dict(self._counts)

    def silent(self, source: StepSource) -> bool:
        """Returns whether `source` has stopped setting boundaries while other sources have continued. Always returns
        False for `unstall.step()`."""
        if source.kind == EXPLICIT:
            return False
        return self._total - self._last[source] > _PATIENCE[source.kind] * max(2, len(self._counts))

    def leader(self, latest: StepSource | None = None) -> StepSource | None:
        """Returns the source whose boundaries count as the program's steps. Returns None if no boundary has been
        counted.

        If there are several optimizers, returns the optimizer that steps least often. For example, a GAN's
        discriminator often steps several times for each step of the GAN's generator. If there are several loaders or
        models, returns the loader or model with the most boundaries. `latest` is the source of the newest boundary. If
        several sources qualify and `latest` is one of them, returns `latest`, because the other sources have already
        set their boundaries in this step.
        """
        for kind in KINDS:
            live = [source for source in self._counts if source.kind == kind and not self.silent(source)]
            if live:
                sign = 1 if kind == OPTIMIZER else -1
                return min(live, key=lambda source: (sign * self._counts[source], source != latest))
        return None
