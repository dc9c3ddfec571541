"""`torch.backends.cudnn.benchmark`: a search for the fastest algorithm, before the first convolution of each shape."""

from __future__ import annotations

import functools
import json
import sys
from typing import Any

import pytest
from processes import succeeded
from virtual.torch_cuda.running import HERE

pytestmark = pytest.mark.slow


@functools.cache
def told() -> dict[str, Any]:
    """What the program printed, which ran on a virtual H200 with a clock of its own."""
    program = HERE / "programs" / "convolution_search.py"
    done = succeeded([sys.executable, "-m", "unstall.virtual", "--gpu", "h200", str(program)])
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


def test_it_takes_long_and_much_memory_once_for_each_shape() -> None:
    keys = "without", "searched", "again"
    (plain, needed, _), (searched, peak, _), (again, needed_again, _) = (told()[key] for key in keys)
    assert searched > 100 * max(plain, again)
    assert needed == needed_again
    assert peak > 5 * needed  # the transforms of an FFT


def test_its_memory_goes_back_to_the_driver() -> None:
    assert told()["searched"][2] == told()["again"][2] < told()["searched"][1]


def test_gradients_are_searched_for_too() -> None:
    seconds, peak = told()["gradients"]
    assert seconds > told()["searched"][0]
    assert peak > told()["searched"][1]


def test_torchs_own_kernels_are_not_searched_for() -> None:
    assert told()["depthwise"][0] < told()["searched"][0] / 2


def test_nothing_is_searched_for_if_it_is_off_or_while_a_graph_is_captured() -> None:
    assert told()["other shape"][0] < told()["searched"][0] / 10
    assert told()["replay"] < told()["searched"][0] / 100
