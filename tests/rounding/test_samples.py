"""What is kept of a tensor: elements, and a sum with random signs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fix.on_a_gpu import on_virtual_gpu
from hypothesis import given
from hypothesis import strategies as st

import unstall
from unstall.rounding import samples
from unstall.rounding.facts import real_parts
from unstall.rounding.operators import NOWHERE
from unstall.rounding.samples import ENDS, PIECE, SAMPLES, Kept, Seen


def kept(tensor: torch.Tensor, most: int = SAMPLES) -> Seen:
    keeps = Kept()
    keeps.keep("operator", "f", NOWHERE, tensor, most)
    (seen,) = keeps.seen()
    return seen


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.permutations(range(4)))
def test_what_is_kept_depends_on_values_and_not_on_their_layout(shape: list[int], order: list[int]) -> None:
    value = torch.arange(float(np.prod(shape))).reshape(shape)
    axes = [axis for axis in order if axis < len(shape)]
    back = [axes.index(axis) for axis in range(len(shape))]
    other = value.permute(axes).contiguous().permute(back)
    assert np.array_equal(kept(value).values, kept(other).values)
    assert kept(value).total == kept(other).total


@pytest.mark.parametrize("shape", [(3, PIECE // 2 + 5), (PIECE // 4, 9), (2, 2, PIECE + 7)])
def test_the_sum_of_a_large_tensor_depends_on_values_and_not_on_their_layout(shape: tuple[int, ...]) -> None:
    value = torch.randint(-9, 9, shape).float()
    other = value.transpose(0, -1).contiguous().transpose(0, -1)
    assert not other.is_contiguous()
    assert kept(value).total == kept(other).total


@pytest.mark.parametrize("count", [0, 1, SAMPLES, 10 * SAMPLES])
def test_so_many_elements_are_kept_at_most(count: int) -> None:
    seen = kept(torch.arange(float(count)))
    assert len(seen.values) <= SAMPLES
    assert set(seen.values) <= set(range(count))


def test_a_difference_in_one_element_of_a_large_result_is_found() -> None:
    value = torch.rand(4 * ENDS)

    def spoiled(given: torch.Tensor) -> torch.Tensor:
        result = given.exp()
        result[12_345] *= 1.5
        return result * 1

    assert not unstall.compare_numbers(torch.exp, value, across=[spoiled]).agrees


def test_tensors_are_handed_over_in_order() -> None:
    seen: list[Seen] = []
    keeps = Kept(seen.extend)
    for number in range(3000):
        keeps.keep("operator", str(number), NOWHERE, torch.tensor([float(number)]), SAMPLES)
    assert len(seen) >= 2048
    keeps.flush()
    assert [each.name for each in seen] == [str(number) for number in range(3000)]
    assert [each.values[0] for each in seen] == list(range(3000))


def test_the_least_integer_is_added_with_its_sign() -> None:
    least = torch.full((SAMPLES * 100,), torch.iinfo(torch.int8).min, dtype=torch.int8)
    assert kept(least).total == kept(least.double()).total


def any_values(dtype: torch.dtype, count: int) -> torch.Tensor:
    """Values of any size whose sums are exact in float64."""
    if dtype == torch.bool or dtype.is_floating_point or dtype.is_complex:
        return torch.randint(-100, 100, (count,)).to(dtype)
    limits = torch.iinfo(dtype)
    most = 1 << 24
    return torch.randint(max(limits.min, -most), min(limits.max, most) + 1, (count,), dtype=dtype)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[torch.dtype]:
    """The types of the tensors that the kernel samples."""
    seen: list[torch.dtype] = []
    find = samples._kernel

    def noted(dtype: torch.dtype, device: torch.device) -> Any:
        found = find(dtype, device)
        if found is not None:
            seen.append(dtype)
        return found

    monkeypatch.setattr(samples, "_kernel", noted)
    return seen


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", samples.SUMMED)
@pytest.mark.parametrize("count", [1, 4096, 4097, 3 * PIECE + 5])
def test_the_same_is_kept_on_a_gpu(dtype: torch.dtype, count: int, kernels: list[torch.dtype]) -> None:
    value = any_values(dtype, count)
    on_gpu, on_cpu = kept(value.cuda()), kept(value)
    assert np.array_equal(on_gpu.values, on_cpu.values)
    assert on_gpu.total == on_cpu.total
    assert bool(kernels) == (real_parts(value).numel() > 4096)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(300, 400), (PIECE // 4, 9)])
def test_the_same_is_kept_on_a_gpu_in_any_layout(shape: tuple[int, ...]) -> None:
    value = torch.randint(-9, 9, shape).float()
    other = value.t().contiguous().t().cuda()
    assert kept(other).total == kept(value).total
    assert np.array_equal(kept(other).values, kept(value).values)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", samples.SUMMED)
def test_without_triton_the_same_is_kept(
    dtype: torch.dtype, kernels: list[torch.dtype], monkeypatch: pytest.MonkeyPatch
) -> None:
    value = any_values(dtype, PIECE + 9).cuda()
    by_kernel = kept(value)
    assert kernels
    monkeypatch.setattr(samples, "_kernel", lambda dtype, device: None)
    assert np.array_equal(kept(value).values, by_kernel.values)
    assert kept(value).total == by_kernel.total


@pytest.mark.gpu
def test_nothing_is_kept_while_a_graph_is_captured() -> None:
    keeps, value = Kept(), torch.rand(9, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        keeps.keep("operator", "f", NOWHERE, value * 2, SAMPLES)
    assert not keeps.seen()


@pytest.mark.slow
def test_a_copy_to_the_host_that_may_be_on_its_way_is_not_read(tmp_path: Path) -> None:
    """The program waits before it reads the copy. Who reads it earlier, such as a sampler, has a race."""
    program = """
import torch
from unstall import compare_numbers

def there_and_back(x):
    back = torch.empty(4, 4, pin_memory=True)
    back.copy_(x.cuda() * 2, non_blocking=True)
    torch.cuda.synchronize()
    return back + 1

print(compare_numbers(there_and_back, torch.ones(4, 4), across=["repeat"])["repeat"].kind)
"""
    assert on_virtual_gpu(tmp_path, program).splitlines()[0] == "equal"


@pytest.mark.slow
def test_only_copies_from_a_device_that_do_not_wait_are_left_out(tmp_path: Path) -> None:
    """Operators of the CPU, and copies that wait, have written to pinned memory when they return."""
    program = """
import torch
from unstall.rounding.operators import Operators
from unstall.rounding.samples import Kept

x, on_device, kept = torch.ones(4), torch.ones(4, device="cuda"), Kept()
pinned = torch.empty(4, pin_memory=True)
with Operators(kept.of_operator):
    torch.mul(x, 3, out=pinned)
    pinned.copy_(x)
    pinned.copy_(on_device * 5)
    pinned.copy_(on_device, non_blocking=True)
    on_device.to("cpu", non_blocking=True)
    on_device.to("cpu")
torch.cuda.synchronize()
print([(each.name, each.values[0].item()) for each in kept.seen()])
"""
    seen = [("mul", 3.0), ("copy_", 1.0), ("mul", 5.0), ("copy_", 5.0), ("_to_copy", 1.0)]
    assert on_virtual_gpu(tmp_path, program).splitlines()[0] == str(seen)
