"""TorchScript, whose lists of indices have another type than those of C++, and whose traces lack `convolution`."""

from __future__ import annotations

import pytest
from virtual.operators.running import told_by

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("what", ["reads", "writes", "traced", "convolutions"])
def test_torchscript_computes_what_the_cpu_does(what: str) -> None:
    assert told_by("scripted")[what] is True
