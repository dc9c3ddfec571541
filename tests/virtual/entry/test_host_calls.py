"""How long the virtual H200's host takes for calls of torch, beside a real one's."""

from __future__ import annotations

import pytest
from virtual.entry.running import facts

pytestmark = pytest.mark.slow


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
    found = facts("host_calls", "-m", "unstall.virtual", "--gpu", "h200")[call]
    assert least_us / 1.2 <= found <= most_us * 1.2
