"""Which kernels a module defines, and which of them can fail an assertion.

nvcc made the module from a file beside it (`nvcc -arch=sm_90 -cubin`).
"""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from unstall.virtual.costs.cubin import Cubin, read_cubin

CUBIN = (Path(__file__).parents[2] / "data" / "core_dumps" / "assertion.cubin").read_bytes()


def test_the_kernel_with_an_assertion_is_found_and_the_one_without_is_not() -> None:
    cubin = read_cubin(CUBIN)
    assert cubin.functions == {"adds", "checks"}
    assert cubin.asserting == {"checks"}


def test_an_assertion_in_a_function_that_a_kernel_calls_counts() -> None:
    adds, checks = 14, 15  # numbers of the symbols
    call, root = (adds).to_bytes(4, "little") + (checks).to_bytes(4, "little"), b"\0\0\0\0\xff\xff\xff\xff"
    assert root in CUBIN
    assert read_cubin(CUBIN.replace(root, call)).asserting == {"checks", "adds"}


def test_code_without_an_assertion_has_none() -> None:
    cubin = read_cubin(CUBIN.replace(b"__assertfail", b"__assertless"))
    assert cubin == Cubin(len(CUBIN), frozenset({"adds", "checks"}))


def test_code_that_is_no_cubin_defines_nothing() -> None:
    assert read_cubin(b".text.adds\0") == Cubin(11)


@given(st.data())
def test_damaged_code_is_no_error(data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(CUBIN)))
    at = data.draw(st.integers(0, len(CUBIN) - 1))
    byte = data.draw(st.binary(min_size=1, max_size=1))
    damaged = (CUBIN[:at] + byte + CUBIN[at + 1 :])[:end]
    assert read_cubin(damaged).size_bytes == len(damaged)
