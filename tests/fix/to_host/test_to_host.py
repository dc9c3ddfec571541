"""`to_host` without a GPU, on the virtual one with its race finder, and on a real one."""

from __future__ import annotations

import asyncio
import subprocess
import sys
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
    assert "a plain copy" in future.stats().text


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


# Futures that are read twice, by many, in other threads, never, or whose reader is called off.
READERS = """
import asyncio, threading
import torch
from unstall import to_host

D = "cuda" if torch.cuda.is_available() else "cpu"
future = to_host(torch.arange(3.0, device=D))
assert future.result() is future.result() and "waited" in " ".join(repr(future).split())

async def value_of(future):
    return await future

async def readers():
    futures = [to_host(torch.full((4,), float(number), device=D)) for number in range(100)]
    values = await asyncio.gather(*map(value_of, futures))
    assert [float(value[0]) for value in values] == list(range(100))
    assert await futures[0] is await futures[0]
    called_off = to_host(torch.full((2_000_000,), 3.0, device=D))
    reader = asyncio.ensure_future(value_of(called_off))
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    assert float(called_off.result()[-1]) == 3.0
    return float(await asyncio.wait_for(to_host(torch.tensor(2.5, device=D)), 30))

assert asyncio.run(readers()) == 2.5
read, large = [], to_host(torch.ones(3_000_000, device=D))
thread = threading.Thread(target=lambda: read.append(large.result().sum()))
thread.start(), thread.join()
assert float(read[0]) == 3_000_000
for _ in range(20):
    dropped = torch.ones(3_000_000, device=D)
    to_host(dropped)
    dropped.fill_(5.0)
nothing = {"a": None, "b": ("text", 3)}
assert to_host(nothing).result() is nothing
learnt = torch.ones(3, device=D, requires_grad=True) * 2
for odd in (torch.ones(2, 1, device=D).expand(2, 3), torch.ones(0, 3, device=D), learnt):
    host = to_host(odd).result()
    assert torch.equal(host, odd.detach().cpu()) and not host.requires_grad
print("READ")
"""


@pytest.mark.slow
def test_futures_are_read_in_any_way_without_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(READERS)
    ran = subprocess.run([sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True, check=False)
    assert ran.stdout == "READ\n", ran.stderr


@pytest.mark.slow
def test_futures_are_read_in_any_way_on_the_virtual_gpu(tmp_path: Path) -> None:
    assert "READ" in on_virtual_gpu(tmp_path, READERS)


@pytest.mark.gpu
@pytest.mark.slow
def test_futures_are_read_in_any_way_on_a_real_gpu(tmp_path: Path) -> None:
    assert "READ" in on_real_gpu(tmp_path, READERS)


def test_what_a_future_prints_says_whether_it_is_there() -> None:
    future = unstall.to_host(torch.ones(4))
    assert repr(future) == "<HostFuture: there, 16 B by a plain copy, not read yet>"
    future.result()
    assert "the host went on for" in " ".join(repr(future).split())


def test_tensors_of_several_memories_are_counted_and_cloned() -> None:
    pair = torch.eye(3).to_sparse(), torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    future = unstall.to_host(pair)
    assert torch.equal(future.result()[0].to_dense(), torch.eye(3))
    assert torch.equal(future.result()[1].values(), torch.ones(5))
    assert future.stats().bytes >= 3 * 4 + 6 * 8 + 5 * 4
