"""A program sees the same of its loader with `prefetch` as without, on the CPU and on GPUs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fix.on_a_gpu import on_real_gpu, on_virtual_gpu
from fix.prefetch import loops

import unstall

PROGRAM = Path(loops.__file__).read_text()
KINDS = Path(loops.__file__).with_name("kinds.py").read_text()


@pytest.mark.parametrize("loop", loops.LOOPS)
@pytest.mark.parametrize("depth", ["auto", 3])
def test_a_loop_sees_on_the_cpu_what_the_plain_one_sees(loop: Callable[..., Any], depth: Any) -> None:
    assert loops.seen_by(loop, depth) == loops.seen_by(loop, "plain")


def test_nothing_is_lost_or_doubled_on_the_cpu_wherever_a_loop_is_left() -> None:
    loops.holds_for_any_script(30)


@pytest.mark.slow
def test_loops_see_on_the_virtual_gpu_what_the_plain_ones_see(tmp_path: Path) -> None:
    assert "ANY SCRIPT" in on_virtual_gpu(tmp_path, PROGRAM)


@pytest.mark.gpu
@pytest.mark.slow
def test_loops_see_on_a_real_gpu_what_the_plain_ones_see(tmp_path: Path) -> None:
    assert "ANY SCRIPT" in on_real_gpu(tmp_path, PROGRAM)


@pytest.mark.slow
def test_tensors_of_every_kind_come_as_by_a_plain_copy_on_the_virtual_gpu(tmp_path: Path) -> None:
    assert "KINDS" in on_virtual_gpu(tmp_path, KINDS)


@pytest.mark.gpu
@pytest.mark.slow
def test_tensors_of_every_kind_come_as_by_a_plain_copy_on_a_real_gpu(tmp_path: Path) -> None:
    assert "KINDS" in on_real_gpu(tmp_path, KINDS)


# The program captures a graph, in the mode that allows no other thread anything, while batches are fetched ahead.
CAPTURE = """
import torch
from unstall import prefetch

def batches():
    for number in range(60):
        yield torch.full((100_000 + number,), float(number))

graph, said, x = None, [], torch.zeros((), device="cuda")
for number, batch in enumerate(prefetch(batches(), depth=4)):
    if number % 10 == 9:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(50):
                y = x * 2
    if graph is not None:
        x.copy_(batch[0])
        graph.replay()
        said.append(float(y))
assert said == [2.0 * number for number in range(9, 60)], said
print("CAPTURED")
"""


@pytest.mark.gpu
@pytest.mark.slow
def test_a_program_captures_while_batches_are_fetched_on_a_real_gpu(tmp_path: Path) -> None:
    assert "CAPTURED" in on_real_gpu(tmp_path, CAPTURE)


# Nothing ahead where memory has no room for it, what is fetched is not lost when memory runs out, and a process that is
# forked while a lock is held ends.
MEMORY = """
import torch
from unstall import prefetch

SIZE = 10 << 20
torch.cuda.set_per_process_memory_fraction(170e6 / torch.cuda.mem_get_info()[1])

def growing(small):
    for number in range(14):
        yield torch.full((1000 if number < small else SIZE,), float(number))

def use(batch):
    return float((batch * 2)[-1])

for small in (0, 6):
    for depth in ("auto", 2):
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        used = [use(batch) for batch in prefetch(growing(small), depth=depth)]
        assert used == [2.0 * number for number in range(14)], (small, depth, used)
loader = prefetch(growing(6), depth=8)
kept = [batch for batch, _ in zip(loader, range(8), strict=False)]
assert [float(batch[-1]) for batch in kept] == [float(number) for number in range(8)]
print("FITS")
"""

FORKED = """
import atexit, os, signal, threading
import torch
from unstall import MetricBuffer, prefetch

rows = []
metrics = MetricBuffer(rows.append, max_lag=50)
batches = iter(prefetch((torch.full((10,), float(number)) for number in range(1000)), depth=3))
for _ in range(5):
    next(batches)
    metrics.add(loss=torch.ones((), device="cuda"))
torch.cuda.synchronize()
before = len(rows)
held, done = threading.Event(), threading.Event()

def hold():
    with batches._producer._shared.changed:
        held.set()
        done.wait()

threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(30)
    metrics.flush()
    batches.close()
    os._exit(0 if len(rows) == before else 7)
done.set()
assert os.waitpid(child, 0)[1] == 0
metrics.flush()
assert len(rows) == 5
print("FORKED")
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", [MEMORY, FORKED])
def test_memory_that_runs_out_and_forks_on_the_virtual_gpu(tmp_path: Path, program: str) -> None:
    assert on_virtual_gpu(tmp_path, program).split()[0] in ("FITS", "FORKED")


def test_what_it_prints_says_what_it_is_and_does() -> None:
    loader = unstall.prefetch([1, 2], depth=3)
    assert repr(loader).startswith("prefetch(list, device='cuda', depth=3): 0 batches")
    assert list(loader) == [1, 2]
    assert "2 batches" in repr(loader)
    assert "there is no cuda device with streams here: a plain loop" in repr(loader)
