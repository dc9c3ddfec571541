"""Whether the kernels of a slow rank have more work than its peers'."""

from __future__ import annotations

import numpy as np
import pytest

from unstall.fleets.why import _grew_where_late


@pytest.mark.parametrize(
    ("mine", "theirs", "late", "grew"),
    [
        ([150, 100], [100, 100], [49, 51], 1.5),  # half of the time is lost where blocks do not grow
        ([150, 100], [100, 100], [10, 90], 1.0),
        ([150, 100, 400], [100, 100, 100], [90, 5, 5], 1.5),
        ([150, 300], [100, 100], [50, 0], 1.5),  # the other line takes no longer
        ([0, 300], [0, 100], [50, -5], 1.0),  # nothing is known of where it takes longer
    ],
)
def test_lines_that_take_longer_tell_how_much_more_work_there_is(
    mine: list[float], theirs: list[float], late: list[float], grew: float
) -> None:
    assert _grew_where_late(np.array(mine), np.array(theirs), np.array(late)) == grew
