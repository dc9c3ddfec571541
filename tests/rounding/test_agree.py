"""Whether rounding explains that two lists of tensors differ."""

from __future__ import annotations

from typing import Any

import torch

from unstall.rounding.agree import explain


class Subclass(torch.Tensor):
    """A tensor of which no elements are kept."""


def test_a_tensor_of_which_no_elements_are_kept_agrees_only_if_its_bits_do() -> None:
    one, other = (torch.full((4,), value).as_subclass(Subclass) for value in (1.0, 2.0))
    plain: Any = torch.ones(3)

    def again(number: int) -> Any:
        raise AssertionError(number)

    assert explain([plain, one], [plain, one.clone()], again).agrees
    found = explain([plain, one], [plain, other], again)
    assert not found.agrees
    assert found.first == 1
