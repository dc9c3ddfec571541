"""In which calls the host waits for the device: as on an H200, behind a kernel of 30 ms."""

from __future__ import annotations

import pytest
from virtual.operators.running import told_by

pytestmark = pytest.mark.slow

WAITING = (
    "eigvals",
    "eig",
    "eigh",
    "eigvalsh",
    "svd",
    "cholesky",
    "inv",
    "solve",
    "lu_factor",
    "ldl_factor",
    "lstsq",
    "matrix_rank",
    "pinv",
    "matrix_exp",
    "bincount",
    "bincount with minlength",
    "bincount with weights",
    "unique",
    "mode",
    "cov",
    "corrcoef",
    "tensor of a list",
    "allclose",
    "index by a mask",
    "one_hot",
    "ctc_loss",
    "histc without bounds",
)
RETURNING = (
    "lu",
    "qr",
    "geqrf",
    "slogdet",
    "kthvalue",
    "median",
    "quantile",
    "multinomial",
    "randperm",
    "repeat_interleave by a number",
    "cholesky_ex",
    "a number assigned to a mask",
    "one_hot of so many classes",
    "isclose",
    "cdist",
    "triu_indices",
    "pack_padded_sequence",
    "histc",
)


@pytest.mark.parametrize("call", WAITING)
def test_a_call_waits_for_the_device(call: str) -> None:
    assert told_by("waits")[call] is True


@pytest.mark.parametrize("call", RETURNING)
def test_a_call_returns_at_once(call: str) -> None:
    assert told_by("waits")[call] is False
