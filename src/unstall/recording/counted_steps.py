"""Counts a program's step boundaries by source: all of them, and those after a helper last checked a graph."""

from __future__ import annotations

from unstall.guest import steps
from unstall.guest.step_source import StepSource, StepSources

_MOST_PROVING = 200  # boundaries by which proofs put off a recording; a program whose shapes keep changing has no end


class CountedSteps(StepSources):
    """Counts step boundaries by source like `StepSources`, and also those since the last proof (`steps.proving`)."""

    def __init__(self) -> None:
        super().__init__()
        self._proofs = steps.proofs()
        self._proving: dict[StepSource, int] = {}  # boundaries up to the last step that proved a graph

    def since_proof(self, source: StepSource) -> int:
        """Returns how many boundaries of the source counted after the last proof."""
        return self.count(source) - self._proving.get(source, 0)

    def proved(self) -> bool:
        """Returns whether a helper has checked a graph (`steps.proving`) since the last call of this method."""
        proofs, before = steps.proofs(), self._proofs
        self._proofs = proofs
        return proofs != before

    def note_proofs(self, source: StepSource) -> bool:
        """If a helper has proved something since the last check, restarts the counts of `since_proof`.

        Returns whether the counts were restarted.
        """
        return self.proved() and self.begin_again(source)

    def begin_again(self, source: StepSource) -> bool:
        """Restarts the counts of `since_proof`. After 200 boundaries of the source, does nothing and returns False."""
        if self.count(source) > _MOST_PROVING:
            return False
        self._proving = self.counts()
        return True
