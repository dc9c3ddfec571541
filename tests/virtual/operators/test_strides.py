"""Shapes under capture are those of eager calls, whatever the layout of what goes in."""

from __future__ import annotations

import pytest
from virtual.operators.running import told_by

DRAWN, OF_EACH = 10, 1
ALL = 3
# The share of samples that can be compared: the others are refused within a capture, on a real GPU too.
FEWEST_COMPARED = 4


@pytest.mark.ci
def test_a_drawn_part_of_torchs_operators_has_eager_strides_when_captured() -> None:
    told = told_by("strides", str(OF_EACH), str(DRAWN))
    assert told["wrong"] == {}
    assert told["compared"] > FEWEST_COMPARED * DRAWN


@pytest.mark.slow
def test_all_of_torchs_operators_have_eager_strides_when_captured() -> None:
    told = told_by("strides", str(ALL))
    assert told["wrong"] == {}
    assert told["compared"] > FEWEST_COMPARED * told["operators"]
