"""The random numbers of the suite's cases."""

from __future__ import annotations

import pytest
import torch

from unstall.virtual.costs.suite import TensorPool


def test_a_case_that_writes_to_its_arguments_does_not_change_the_numbers_of_later_cases() -> None:
    pool = TensorPool("cpu", 1 << 20)
    for dtype in (torch.float32, torch.bfloat16):
        pool.begin()
        spoiled = [pool(1000, 300, dtype=dtype), pool(700, dtype=dtype)]
        for each in spoiled:
            each.zero_()
        pool.renew()
        pool.begin()
        for each in (pool(1000, 300, dtype=dtype), pool(700, dtype=dtype)):
            assert each.float().mean().abs() < 0.2
            assert 0.8 < each.float().std() < 1.2


def test_a_pool_on_the_meta_device_has_no_numbers_to_make_anew() -> None:
    pool = TensorPool("meta")
    assert pool(3, 4).is_meta
    pool.renew()


def test_numbers_are_renewed_after_an_operator_that_writes_and_only_then() -> None:
    pool = TensorPool("cpu", 1 << 12)
    numbers = pool(64)
    before = numbers.clone()
    pool.renew_after(torch.ops.aten.neg.default)
    assert torch.equal(numbers, before)
    pool.renew_after(torch.ops.aten.zero_.default)
    assert not torch.equal(numbers, before)


def test_tensors_of_a_case_never_have_the_same_memory() -> None:
    pool = TensorPool("cpu", 1 << 12)
    with pytest.raises(ValueError, match="larger than"):
        pool(1 << 13)
    assert pool(1 << 11).data_ptr() != pool(1 << 11).data_ptr()
    with pytest.raises(ValueError, match="larger than"):
        pool(1)
    pool.begin()
    pool(1 << 12)
