"""Counts a program's step boundaries, separately for each source that sets them, such as an
optimizer. Also counts how many came since a helper of unstall (such as `graphed`) last checked a
CUDA graph.
"""

from __future__ import annotations

from unstall.guest import steps
from unstall.guest.step_source import StepSource, StepSources

_MOST_PROVING = 200  # boundaries by which proofs put off a recording; a program whose shapes keep changing has no end


class CountedSteps(StepSources):
    """Counts step boundaries, separately for each source that sets them, such as an optimizer. Also
    counts the boundaries since the last proof.

    In a proof, a helper of unstall such as `graphed` checks a CUDA graph (`steps.proving`). A step
    with a proof is slower than other steps.
    """

    def __init__(self) -> None:
        super().__init__()
        self._proofs = steps.proofs()
        self._proving: dict[StepSource, int] = {}  # boundaries up to the last step that proved a graph

    def since_proof(self, source: StepSource) -> int:
        """Returns how many step boundaries `source` has set since a helper of unstall last checked a CUDA graph."""
        return self.count(source) - self._proving.get(source, 0)

    def proved(self) -> bool:
        """Returns whether a helper of unstall has checked a CUDA graph since the previous call of this method."""
        proofs, before = steps.proofs(), self._proofs
        self._proofs = proofs
        return proofs != before

    def note_proofs(self, source: StepSource) -> bool:
        """Restarts the counts of `since_proof` if a helper of unstall has checked a CUDA graph
        since `proved` was last called.

        Returns whether the counts were restarted.
        """
        return self.proved() and self.begin_again(source)

    def begin_again(self, source: StepSource) -> bool:
        """Restarts the counts of `since_proof`, and returns True. If `source` has set more than 200
        boundaries, restarts nothing and returns False.
        """
        if self.count(source) > _MOST_PROVING:
            return False
        self._proving = self.counts()
        return True
