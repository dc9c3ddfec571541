"""`stream_map` without a GPU, on the virtual one with its race finder, and on a real one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fix.on_a_gpu import on_real_gpu, on_virtual_gpu

import unstall
from unstall.errors import UsageError

# Items from buffers that are filled again, results that are kept for long, functions with a memory of their own.
RESULTS = """
import random
import torch
from unstall import stream_map

def items(count, kind, dice):
    ring = [torch.empty(dice.choice([8, 5000]), pin_memory=kind == "pinned") for _ in range(dice.choice([1, 3, 40]))]
    for number in range(count):
        ring[number % len(ring)].fill_(float(number))
        yield {{"x": ring[number % len(ring)]}}
        if len(ring) < 40:
            ring[number % len(ring)].fill_(-1.0)

static = torch.zeros((), device="cuda")
def pure(item): return item["x"] * 2 + 1, "text"
def same(item): return item["x"], None
def in_place(item): return item["x"].mul_(3), None
def counts(item):
    static.add_(1)
    return item["x"] + static, None
def keeps(item):
    static.copy_(item["x"].mean())
    return static, None
made = {{}}
def makes_and_keeps(item):
    if not made:
        made["y"] = torch.empty((), device="cuda")
    made["y"].copy_(item["x"].mean())
    return made["y"], None
EXPECTED = {{pure: lambda n: 2 * n + 1, same: lambda n: n, in_place: lambda n: 3 * n, counts: lambda n: 2 * n + 1,
            keeps: lambda n: n, makes_and_keeps: lambda n: n}}
seen, dice = 0, random.Random({seed})
while seen < {items}:
    fn, strategy = dice.choice(list(EXPECTED)), dice.choice(["auto", "streams", "engines"])
    count, out = dice.randrange(1, 150), dice.choice(["pinned", "cpu", "device"])
    static.zero_()
    made.clear()
    results, kept = stream_map(fn, items(count, dice.choice(["pinned", "pageable"]), dice), strategy=strategy,
                               in_flight=dice.choice(["auto", 1, 2, 7]), out=out), []
    stop = dice.choice([count, dice.randrange(count)])
    for number, (result, _) in enumerate(results):
        assert result.is_cuda == (out == "device")
        kept.append((number, result))
        if len(kept) > 5:
            before, old = kept.pop(0)
            assert bool((old == EXPECTED[fn](before)).all()), (fn, strategy, out, before, old)
            old.fill_(-5.0)
        if number == stop:
            break
    for before, old in kept:
        assert bool((old == EXPECTED[fn](before)).all()), (fn, strategy, out, before, old)
    if fn in (counts, keeps) or (fn is makes_and_keeps and count > 1 and number > 0):
        assert results.stats().strategy != "streams", results.stats()
    results.close()
    torch.cuda.synchronize()
    seen += number + 1
print("ALL", seen)
"""

OUT_OF_MEMORY = """
import torch
from unstall import stream_map

calls = []
def hungry(x):
    calls.append(len(x))
    if len(calls) == 6:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate more than there is")
    return x + torch.rand((), device="cuda")

def expected():
    torch.cuda.manual_seed(3)
    return [float((x.cuda() + torch.rand((), device="cuda"))[0]) for x in items]

items = [torch.full((10,), float(number)) for number in range(20)]
wanted = expected()
torch.cuda.manual_seed(3)
results = stream_map(hungry, items, strategy="{strategy}")
assert [float(result[0]) for result in results] == wanted
assert len(calls) == 21 and results.stats().shrunk == 1 and results.stats().in_flight == 2, results.stats()
print("RETRIED")
"""


def test_without_a_gpu_it_is_a_plain_loop_that_says_so() -> None:
    results = unstall.stream_map(lambda x: x + 1, [torch.tensor([number]) for number in range(4)])
    assert [int(result) for result in results] == [1, 2, 3, 4]
    assert results.stats().strategy == "plain"
    assert "there is no cuda device with streams here" in str(results.stats())


@pytest.mark.parametrize("wrong", [{"strategy": "fast"}, {"out": "gpu"}, {"in_flight": 0}])
def test_options_that_make_no_sense_are_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        unstall.stream_map(lambda x: x, [], **wrong)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_no_result_of_2500_is_wrong_whatever_happens_to_items_and_results(tmp_path: Path, seed: int) -> None:
    assert "ALL 2" in on_virtual_gpu(tmp_path, RESULTS.format(items=2500, seed=seed))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["engines", "streams"])
def test_an_item_that_ran_out_of_memory_is_called_again_with_the_same_random_numbers(
    tmp_path: Path, strategy: str
) -> None:
    assert "RETRIED" in on_virtual_gpu(tmp_path, OUT_OF_MEMORY.format(strategy=strategy))


@pytest.mark.gpu
@pytest.mark.slow
def test_results_are_right_on_a_real_gpu(tmp_path: Path) -> None:
    assert "ALL 1" in on_real_gpu(tmp_path, RESULTS.format(items=10_000, seed=9))


@pytest.mark.gpu
@pytest.mark.slow
def test_a_retry_draws_the_same_numbers_on_a_real_gpu(tmp_path: Path) -> None:
    assert "RETRIED" in on_real_gpu(tmp_path, OUT_OF_MEMORY.format(strategy="engines"))
