"""How the calls of the suite are made."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from unstall.virtual.costs.measure import MARKER_BYTES, CaseObservation, attribute_memory, multiplying, repeat
from unstall.virtual.costs.signature import Signature
from unstall.virtual.costs.suite import Case, TensorPool


@pytest.mark.parametrize("usual", [True, False])
def test_a_case_says_how_cudnn_multiplies_during_its_call(monkeypatch: pytest.MonkeyPatch, usual: bool) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", usual)
    found = []
    for precision in ("ieee", "tf32", ""):
        with multiplying(precision):
            found.append(torch.backends.cudnn.allow_tf32)
        assert torch.backends.cudnn.allow_tf32 is usual
    assert found == [False, True, usual]


def test_an_allocation_is_a_result_only_if_it_is_there_at_the_end() -> None:
    """A result may get the memory that a temporary allocation of the same call has given back."""

    def event(action: str, address: int, size: int) -> dict[str, object]:
        return {"action": action, "addr": address, "size": size}

    def marker() -> list[dict[str, object]]:
        return [event("alloc", 1, MARKER_BYTES), event("free_requested", 1, MARKER_BYTES)]

    call = [
        event("alloc", 100, 4096),
        event("free_requested", 100, 4096),
        event("alloc", 100, 1024),  # the result
        event("alloc", 200, 512),  # stays
    ]
    seen = CaseObservation(Case("convolution.default", lambda pool: ()), Signature("", "", (), ()))

    attribute_memory([*marker(), *call, *marker(), *marker()], [seen], [{100}])

    assert seen.taken == [4096, 512]
    assert seen.kept == [512]


@pytest.mark.parametrize(("precision", "allowed"), [("tf32", [True, True]), ("ieee", [False, False])])
def test_a_case_says_how_cudnn_and_cublas_multiply(precision: str, allowed: list[bool]) -> None:
    libraries: tuple[Any, ...] = torch.backends.cudnn, torch.backends.cuda.matmul
    usual = [library.allow_tf32 for library in libraries]

    with multiplying(precision):
        within = [library.allow_tf32 for library in libraries]

    assert within == allowed
    assert [library.allow_tf32 for library in libraries] == usual


def test_a_call_with_a_tensor_in_host_memory_is_not_captured() -> None:
    """Such as the backward of an attention with dropout, whose seed is there: an H200 read it in its own memory."""
    seen = CaseObservation(Case("add.Tensor", lambda pool: (pool(4), pool(4))), Signature("", "", (), ()))

    repeat(seen, TensorPool("cpu", 1 << 12), None)  # type: ignore[arg-type]

    assert seen.repeats is None
