"""Products of float16: added in float32 and rounded once, as on a GPU, and not by the CPU's slow kernels."""

from __future__ import annotations

import pytest
from virtual.operators.running import told_by

PRODUCTS = (
    *("mm", "mm out=", "addmm", "bmm", "baddbmm", "mv", "linear"),
    *("conv2d", "conv_transpose2d", "gradient of conv2d"),
)
HALF_UNIT = 2.0**-11  # of float16's 11 bits


@pytest.mark.parametrize("product", PRODUCTS)
def test_products_of_float16_are_those_of_float32_rounded_once(product: str) -> None:
    rounded_once, off = told_by("products_of_halves")[product]
    assert rounded_once
    assert off <= 1.01 * HALF_UNIT
