"""`to_host` without a GPU, on the virtual one with its race finder, and on a real one."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from fix.on_a_gpu import on_real_gpu, on_virtual_gpu

import unstall

# Small and large tensors, of odd strides and kinds, overwritten and freed right after they were asked for.
VALUES = """
import asyncio, random
import torch
from unstall import to_host

dice = random.Random(3)
for round in range(60):
    size = dice.choice([1, 1000, 2_000_000])
    x = torch.randn(size, device="cuda")
    y = torch.randn(6, 4, device="cuda").t()[::2]
    z = torch.randn(5, dtype=torch.complex64, device="cuda").conj()
    wanted = x.cpu(), y.cpu(), z.cpu()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side if dice.random() < 0.5 else torch.cuda.current_stream()):
        future = to_host({"x": x, "rest": (y, [z, 3])})
        x.fill_(7.0), y.zero_()
        del x
        fresh = torch.full((size,), 9.0, device="cuda")
    torch.cuda.current_stream().wait_stream(side)
    if dice.random() < 0.5:
        result = future.result()
    else:
        async def read():
            return await future
        result = asyncio.run(read())
    got = result["x"], result["rest"][0], result["rest"][1][0]
    assert future.done() and result["rest"][1][1] == 3
    for one, other in zip(got, wanted, strict=True):
        assert torch.equal(one, other.resolve_conj()) and one.is_pinned() and one.stride() == other.stride()
    torch.cuda.synchronize()
    by = future.stats().by
    assert ("a copy stream" in by) == (size == 2_000_000), by
print("SAME")
"""


def test_a_tensor_of_the_cpu_is_cloned_so_that_later_writes_do_not_count() -> None:
    x = torch.ones(3)
    future = unstall.to_host({"x": x})
    x.zero_()
    assert future.done()
    assert future.result()["x"].tolist() == [1, 1, 1]
    assert "a plain copy" in str(future.stats())


def test_it_can_be_awaited() -> None:
    async def read() -> float:
        return float(await unstall.to_host(torch.tensor(2.5)))

    with ThreadPoolExecutor(1) as other:  # this thread's loop may be that of a browser
        assert other.submit(lambda: asyncio.run(read())).result() == 2.5


def test_the_result_has_no_gradient() -> None:
    assert not unstall.to_host(torch.ones(2, requires_grad=True)).result().requires_grad


@pytest.mark.slow
def test_values_are_those_of_the_call_on_the_virtual_gpu(tmp_path: Path) -> None:
    assert "SAME" in on_virtual_gpu(tmp_path, VALUES)


@pytest.mark.gpu
@pytest.mark.slow
def test_values_are_those_of_the_call_on_a_real_gpu(tmp_path: Path) -> None:
    assert "SAME" in on_real_gpu(tmp_path, VALUES)
