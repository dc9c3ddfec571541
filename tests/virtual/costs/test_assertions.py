"""Which kernels can fail an assertion, read from the machine code of a module that nvcc made from a file beside it
(`nvcc -arch=sm_90 -cubin`).
"""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from unstall.virtual.costs.assertions import asserting

CUBIN = (Path(__file__).parents[2] / "data" / "core_dumps" / "assertion.cubin").read_bytes()


def test_the_kernel_with_an_assertion_is_found_and_the_one_without_is_not() -> None:
    assert asserting(CUBIN) == {"checks"}


def test_an_assertion_in_a_function_that_a_kernel_calls_counts() -> None:
    adds, checks = 14, 15  # numbers of the symbols
    call, root = (adds).to_bytes(4, "little") + (checks).to_bytes(4, "little"), b"\0\0\0\0\xff\xff\xff\xff"
    assert root in CUBIN
    assert asserting(CUBIN.replace(root, call)) == {"checks", "adds"}


def test_code_without_an_assertion_has_none() -> None:
    assert asserting(CUBIN.replace(b"__assertfail", b"__assertless")) == set()


@given(st.data())
def test_damaged_code_is_no_error(data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(CUBIN)))
    at = data.draw(st.integers(0, len(CUBIN) - 1))
    byte = data.draw(st.binary(min_size=1, max_size=1))
    damaged = (CUBIN[:at] + byte + CUBIN[at + 1 :])[:end]
    assert all(isinstance(name, str) for name in asserting(damaged))
