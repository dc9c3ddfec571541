"""Without Numba, only the call fails."""

from __future__ import annotations

import sys

import pytest

from unstall.errors import UsageError
from unstall.kernels.inspect_kernel import inspect_kernel


def test_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(UsageError, match=r"cannot be imported .*: pip install numba$"):
        inspect_kernel(object(), 1, 1)
