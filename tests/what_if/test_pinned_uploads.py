"""What pinning is said to gain is what it gains, however the driver moves uploads of that size."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TypeAlias

import pytest
from processes import succeeded

pytest.importorskip("torch")
pytestmark = pytest.mark.ci

KIB, MIB = 1 << 10, 1 << 20
# In the launch queue, in one or two of the driver's buffers, piece by piece.
SIZES = (4 * KIB, 64 * KIB, 65 * KIB, 384 * KIB, 3 * MIB // 2, 10 * MIB, 40 * MIB)
Found: TypeAlias = dict[int, tuple[float, float, int, int]]


@pytest.fixture(scope="module")
def found() -> Found:
    """For each size: step with pageable uploads, step with pinned ones, promised gain, wait of the host."""
    program = Path(__file__).parent / "programs" / "uploads.py"
    printed = json.loads(succeeded([sys.executable, str(program), *map(str, SIZES)]).stdout)
    return {int(size): tuple(figures) for size, figures in printed.items()}


@pytest.mark.parametrize("size", SIZES)
def test_pinning_gains_what_was_promised(found: Found, size: int) -> None:
    pageable, pinned, promised, _ = found[size]
    assert promised == pytest.approx(pageable - pinned, rel=0.05, abs=1_000)


@pytest.mark.parametrize("size", SIZES)
def test_the_host_waits_while_data_are_staged(found: Found, size: int) -> None:
    pageable, pinned, _, wait = found[size]
    assert wait == pytest.approx(pageable - pinned, rel=0.25)
