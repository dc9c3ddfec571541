"""How the calls of the suite are made."""

from __future__ import annotations

import pytest
import torch

from unstall.virtual.costs.measure import multiplying


@pytest.mark.parametrize("usual", [True, False])
def test_a_case_says_how_cudnn_multiplies_during_its_call(monkeypatch: pytest.MonkeyPatch, usual: bool) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", usual)
    found = []
    for precision in ("ieee", "tf32", ""):
        with multiplying(precision):
            found.append(torch.backends.cudnn.allow_tf32)
        assert torch.backends.cudnn.allow_tf32 is usual
    assert found == [False, True, usual]
