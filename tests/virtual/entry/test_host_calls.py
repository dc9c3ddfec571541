"""How long the virtual H200's host takes for calls of torch, beside a real one's."""

from __future__ import annotations

from typing import Any

import pytest
from virtual.entry.running import facts

pytestmark = pytest.mark.slow

_FACTOR = 1.3  # by which the virtual host may be faster than the fastest process, or slower than the slowest


@pytest.mark.parametrize(
    ("call", "least_us", "most_us"),
    [  # the fastest and the slowest of three processes on an H200, whose host changes its pace by 1.45
        ("zero_grad", 2.31, 2.88),  # for each of 48 gradients
        ("linear", 12.5, 18.4),
        ("softmax", 6.9, 10.1),
        ("layer_norm", 11.0, 17.4),
        ("t, recorded", 1.4, 2.7),
        ("linear, recorded", 15.5, 24.4),
    ],
)
def test_a_call_takes_the_host_as_long_as_a_real_one(call: str, least_us: float, most_us: float) -> None:
    assert least_us / _FACTOR <= _facts()[call] <= most_us * _FACTOR


@pytest.mark.parametrize(
    ("call", "least", "most"),
    [  # of the same three processes as benchmarks/results/host_calls_h200.json
        ("current_stream", 0.57, 0.72),
        ("with stream", 1.39, 1.65),
        ("memory_allocated", 11.6, 15.4),
        ("autocast", 0.67, 0.85),
        ("train", 0.29, 0.39),  # for each of the modules
        ("parameters", 0.126, 0.178),
        ("SGD", 0.22, 0.33),  # for each of the parameters
        ("_foreach_sqrt", 0.20, 0.30),
        # of that file and benchmarks/results/host_reuse_h200.json
        ("view", 0.170, 0.265),
        ("slice", 0.317, 0.427),
        ("detach", 0.064, 0.101),
        # of that file
        ("to, nothing to do", 0.13, 0.13),
        ("manual_seed", 16.7, 16.7),
        ("get_rng_state", 0.366, 0.366),
        ("no_grad", 0.271, 0.271),
        ("Identity", 0.171, 0.171),
    ],
)
def test_what_calls_no_operator_takes_the_host_as_long_as_a_real_one(call: str, least: float, most: float) -> None:
    assert least / _FACTOR <= _facts()["over add_"][call] <= most * _FACTOR


def _facts() -> dict[str, Any]:
    return facts("host_calls", "-m", "unstall.virtual", "--gpu", "h200")
