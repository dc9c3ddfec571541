"""The function of torch by which Python begins backward passes."""

from __future__ import annotations

import pytest

from unstall.guest.backward_passes import ENGINE, engine_modules
from unstall.guest.patching import wrap_after

torch = pytest.importorskip("torch")


def test_each_pass_is_seen_once_also_after_torch_replaced_the_function() -> None:
    seen = []
    undo = [wrap_after(module, ENGINE, lambda *_, **__: seen.append(1)) for module in engine_modules()]
    weight = torch.ones(2, requires_grad=True)
    try:
        weight.sum().backward()
        with torch.compiler._patch_engine_backward():
            pass
        weight.sum().backward()
    finally:
        for each in undo:
            each()
    weight.sum().backward()
    assert len(seen) == 2
