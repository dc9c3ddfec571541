"""Indexing in TorchScript, whose lists of indices have another type than those of C++."""

from __future__ import annotations

import pytest
from virtual.operators.running import told_by

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("what", ["reads", "writes", "traced"])
def test_indexing_in_torchscript_computes_what_the_cpu_does(what: str) -> None:
    assert told_by("scripted")[what] is True
