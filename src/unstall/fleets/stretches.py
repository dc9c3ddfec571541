"""`Stretches`: numbers the stretches of all steps of a job."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from unstall.fleets.summary import Rank
from unstall.timeline.columns import I32, I64


class Stretches(msgspec.Struct, frozen=True, eq=False):
    """The stretches of a job's steps. A stretch is a part of a step: it lasts from one collective's launch to the next.
    Each stretch of each step has a number. A step has one stretch more than the most collectives that a rank calls in
    it, so there are at most as many stretches as collectives and steps.

    Attributes:
        first: For each step, the number of its first stretch. One value more than there are steps: the number of all
            stretches.
    """

    first: I64

    @classmethod
    def of(cls, ranks: Sequence[Rank]) -> Stretches:
        """Returns the stretches of all steps that some of these ranks have."""
        counts = np.ones(max((rank.steps for rank in ranks), default=0), dtype=np.int64)
        for rank in ranks:
            inside = rank.calls.step >= 0
            np.maximum.at(counts, rank.calls.step[inside], rank.calls.position[inside] + 2)
        return cls(np.append(0, np.cumsum(counts)))

    @property
    def counts(self) -> I64:
        """The number of stretches of each step."""
        return np.diff(self.first)

    def until(self, step: int) -> int:
        """Returns the number of stretches in the steps before the step with this index."""
        return int(self.first[step])

    def numbers(self, step: I64, stretch: I64) -> I32 | I64:
        """Returns the numbers of stretches. They are int32 if all of the job's numbers are.

        Args:
            step: For each, the index of its step, or -1.
            stretch: For each, the number of the stretch in the step. If the step has fewer, its last one counts.

        Returns:
            The number of each stretch. -1 if it is in no step.
        """
        last = self.first[1:][step] - 1
        found: I64 = np.where(step >= 0, np.minimum(self.first[:-1][step] + stretch, last), -1)
        return found if self.first[-1] >= 1 << 31 else found.astype(np.int32)

    def step_of(self, numbers: I32 | I64) -> I64:
        """Returns the index of the step of each stretch. `numbers` has the numbers of the stretches, or -1. -1 stays
        -1."""
        step: I64 = np.searchsorted(self.first, numbers, side="right") - 1
        return step
