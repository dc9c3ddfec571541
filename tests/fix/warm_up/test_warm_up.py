"""`warm_up`: what growing shapes reserve by the allocator model, and what the largest first do."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from fix.on_a_gpu import on_real_gpu, on_virtual_gpu

import unstall
from unstall.errors import UsageError
from unstall.fix.warm_up import replay_reserved

MIB = 1 << 20

TRUTH = """
import torch
from unstall import warm_up

def step(x):
    return (x * 2).relu().sum()

inputs = [torch.ones(n * 3 << 20, device="cuda") for n in range(4, 16)]
stats = warm_up(step, *inputs)
torch.cuda.empty_cache()

def reserved(inputs):
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    for x in inputs:
        step(x)
    return torch.cuda.memory_reserved() - before

assert stats.reserved_bytes == reserved(inputs[::-1]), (stats, reserved(inputs[::-1]))
assert stats.reserved_rising_bytes == reserved(inputs), (stats, reserved(inputs))
assert stats.reserved_rising_bytes > 4 * stats.reserved_bytes, stats
print(stats)
"""


def test_growing_requests_reserve_the_sum_of_all_and_the_largest_first_only_itself() -> None:
    sizes = [20 * MIB * step for step in range(1, 11)]
    calls = [[("alloc", 1, size, 0), ("free", 1, size, 0)] for size in sizes]
    assert replay_reserved(calls, 1 << 40) == (sum(sizes), sizes[-1])
    assert replay_reserved(calls[::-1], 1 << 40) == (sizes[-1], sizes[-1])


def test_what_the_device_has_no_room_for_is_none() -> None:
    assert replay_reserved([[("alloc", 1, 100 * MIB, 0)]], 50 * MIB) == (None, None)


def test_without_a_gpu_the_largest_comes_first_and_random_numbers_stay() -> None:
    torch.manual_seed(1)
    expected = torch.rand(()).item()
    torch.manual_seed(1)
    seen: list[int] = []
    stats = unstall.warm_up(lambda x: seen.append(len(x + torch.rand(()))), torch.ones(2), torch.ones(9), torch.ones(5))
    assert seen == [9, 5, 2]
    assert torch.rand(()).item() == expected
    assert "there is no CUDA device" in stats.text


def test_whole_numbers_and_shapes_say_which_input_is_the_largest() -> None:
    seen: list[object] = []
    stats = unstall.warm_up(lambda *given: seen.append(given), 8, (16, True), 64, [4, 8], {"tokens": 3})
    assert seen == [(64,), ([4, 8],), (16, True), (8,), ({"tokens": 3},)]
    assert "inputs of up to" not in stats.text


SIZES = """
import torch
from unstall import warm_up

def work(n):
    x = torch.randn(n, 1 << 20, device="cuda")
    return x.sum()

stats = warm_up(work, *range(32, 257, 32))
assert stats.reserved_rising_bytes > 4 * stats.reserved_bytes, stats
print(stats)
print(warm_up(lambda n: work(300 - n), 32, 64, 128))
"""


@pytest.mark.ci
def test_sizes_are_called_largest_first_and_a_wrong_order_is_told(tmp_path: Path) -> None:
    largest_first, wrong = on_virtual_gpu(tmp_path, SIZES).replace("\n    ", " ").splitlines()[:2]
    assert "largest first, 1.00 GiB are reserved" in largest_first
    assert "saved" in largest_first
    assert "nothing saved" not in largest_first
    assert "more than the first call" in wrong


def test_no_function_and_no_input_are_refused() -> None:
    with pytest.raises(UsageError, match="calls a function, and 5 is none"):
        unstall.warm_up(5, torch.ones(2))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="at least one input"):
        unstall.warm_up(print)


@pytest.mark.slow
def test_the_model_says_what_is_reserved_on_the_virtual_gpu(tmp_path: Path) -> None:
    assert "saved" in on_virtual_gpu(tmp_path, TRUTH)


@pytest.mark.gpu
@pytest.mark.slow
def test_the_model_says_what_is_reserved_on_a_real_gpu(tmp_path: Path) -> None:
    assert "saved" in on_real_gpu(tmp_path, TRUTH)


def test_all_random_numbers_of_the_host_stay_by_an_error_too() -> None:
    def draws_and_fails(x: torch.Tensor) -> None:
        torch.rand(3), random.random(), np.random.rand()
        raise LookupError(len(x))

    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    expected = float(torch.rand(())), random.random(), np.random.rand()
    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    with pytest.raises(LookupError, match="9"):
        unstall.warm_up(draws_and_fails, torch.ones(2), torch.ones(9))
    assert (float(torch.rand(())), random.random(), np.random.rand()) == expected


HISTORY = """
import torch
from unstall import warm_up

def model(x):
    torch.nn.functional.dropout(x, 0.5)

torch.cuda.manual_seed(4)
wanted = float(torch.rand((), device="cuda"))
torch.cuda.manual_seed(4)
inputs = [torch.ones(n << 20, device="cuda") for n in (1, 3)]
assert warm_up(model, *inputs).reserved_bytes > 0
assert float(torch.rand((), device="cuda")) == wanted

torch.cuda.memory._record_memory_history("all", context=None, stacks="python")
stats = warm_up(model, *inputs)
assert stats.reserved_bytes is None and "records its own memory" in stats.text, stats
assert torch._C._cuda_isHistoryEnabled()
try:
    warm_up(lambda x: 1 / 0, *inputs)
except ZeroDivisionError:
    print("PUT BACK")
"""


@pytest.mark.slow
def test_random_numbers_and_the_programs_own_record_of_memory_stay_on_the_virtual_gpu(tmp_path: Path) -> None:
    assert "PUT BACK" in on_virtual_gpu(tmp_path, HISTORY)


@pytest.mark.gpu
@pytest.mark.slow
def test_random_numbers_and_the_programs_own_record_of_memory_stay_on_a_real_gpu(tmp_path: Path) -> None:
    assert "PUT BACK" in on_real_gpu(tmp_path, HISTORY)
