"""`stream_map` without a GPU, on the virtual one with its race finder, and on a real one."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
import torch
from fix.on_a_gpu import on_real_gpu, on_virtual_gpu

import unstall
from unstall.errors import UsageError
from unstall.fix.items.trial import best_of, why

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

# An item that is too large for the device, and results of which that has room for one alone.
TOO_LARGE = """
import torch
from unstall import stream_map

torch.cuda.set_per_process_memory_fraction(1e-3)
total = torch.cuda.get_device_properties(0).total_memory * 1e-3
calls = []
def hungry(x):
    calls.append(len(x))
    assert len(calls) < 40, "it is called again and again"
    return torch.empty(int(total * (2 if len(x) == 7 else 0.6)), dtype=torch.uint8, device="cuda")[:len(x)]

items = [torch.ones(length) for length in {lengths}]
results, lengths, error = stream_map(hungry, items, out="{out}", strategy="{strategy}"), [], None
try:
    for result in results:
        lengths.append(len(result))
        del result
except torch.OutOfMemoryError as raised:
    error = len(lengths)
assert (lengths, error) == {expected}, (lengths, error)
print("TOLD")
"""


def test_without_a_gpu_it_is_a_plain_loop_that_says_so() -> None:
    results = unstall.stream_map(lambda x: x + 1, [torch.tensor([number]) for number in range(4)])
    assert [int(result) for result in results] == [1, 2, 3, 4]
    assert results.stats().strategy == "plain"
    assert "there is no cuda device with streams here" in results.stats().text


@pytest.mark.parametrize("out", ["pinned", "cpu", "device"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_results_without_a_gpu_are_the_programs_own(out: Literal["pinned", "cpu", "device"], device: str) -> None:
    total = torch.zeros(4)

    def adds(item: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"itself": total.add_(item), "a view": total[1:3]}

    results = list(unstall.stream_map(adds, [torch.ones(1)] * 4, device=device, out=out))
    assert [float(each["itself"][0]) for each in results] == [1, 2, 3, 4]
    assert [float(each["a view"][0]) for each in results] == [1, 2, 3, 4]


def test_results_left_on_the_device_have_their_graph_without_a_gpu_too() -> None:
    weight = torch.ones(3, requires_grad=True)
    results = unstall.stream_map(lambda item: item * weight, [torch.ones(3)] * 2, device="cpu", out="device")
    torch.stack([each.sum() for each in results]).sum().backward()
    assert weight.grad is not None
    assert float(weight.grad[0]) == 2


@pytest.mark.parametrize("wrong", [{"strategy": "fast"}, {"out": "gpu"}, {"in_flight": 0}, {"in_flight": True}])
def test_options_that_make_no_sense_are_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        unstall.stream_map(lambda x: x, [], **wrong)  # type: ignore[arg-type]


def test_a_function_and_items_are_asked_for() -> None:
    with pytest.raises(UsageError, match="5 is none"):
        unstall.stream_map(5, [])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="not 7"):
        unstall.stream_map(print, 7)  # type: ignore[arg-type]


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


# Each stream with a matrix product on it keeps a workspace of cuBLAS for good: 32 MiB on an H200.
SHORT_OF_MEMORY = """
import torch
from unstall import stream_map

weights = torch.randn(10240, 16, device="cuda")

def fn(item):
    torch.cuda._sleep(20_000_000)  # longer than the copies
    twice, few = item * 2, item @ weights
    return twice + few.sum()

total = torch.cuda.get_device_properties(0).total_memory
torch.cuda.set_per_process_memory_fraction((360 << 20) / total)
mapped = stream_map(fn, [torch.ones(2560, 10240)] * 24)
assert len(list(mapped)) == 24
assert mapped.stats().strategy == "engines" and "memory is short" in mapped.stats().note, mapped.stats()
print("ALL OF THEM")
"""


@pytest.mark.slow
def test_streams_for_each_item_are_not_tried_where_they_would_leave_no_memory(tmp_path: Path) -> None:
    assert "ALL OF THEM" in on_virtual_gpu(tmp_path, SHORT_OF_MEMORY)


@pytest.mark.slow
@pytest.mark.parametrize("out", ["pinned", "device"])
def test_an_item_that_never_fits_raises_after_the_results_before_it(tmp_path: Path, out: str) -> None:
    program = TOO_LARGE.format(lengths=[3, 4, 7, 5], out=out, strategy="engines", expected=([3, 4], 2))
    assert "TOLD" in on_virtual_gpu(tmp_path, program)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["engines", "streams", "auto"])
def test_an_item_for_which_results_leave_no_room_waits_until_they_are_taken(tmp_path: Path, strategy: str) -> None:
    program = TOO_LARGE.format(lengths=[3, 4, 5, 6], out="device", strategy=strategy, expected=([3, 4, 5, 6], None))
    assert "TOLD" in on_virtual_gpu(tmp_path, program)


FEW = """
import torch
from unstall import stream_map

few = stream_map(lambda item: item + 1, [torch.ones(4) for _ in range(4)])
assert "being measured" in few.stats().note, few.stats()
assert [float(result[0]) for result in few] == [2.0] * 4
assert "too few items" in few.stats().note, few.stats()
"""


def test_of_few_items_it_says_that_nothing_was_measured(tmp_path: Path) -> None:
    on_virtual_gpu(tmp_path, FEW)


def test_closed_it_ends_without_a_gpu_too() -> None:
    results = unstall.stream_map(lambda x: x + 1, [torch.tensor([number]) for number in range(4)], device="cpu")
    next(results)
    results.close()
    assert list(results) == []


@pytest.mark.gpu
@pytest.mark.slow
def test_results_are_right_on_a_real_gpu(tmp_path: Path) -> None:
    assert "ALL 1" in on_real_gpu(tmp_path, RESULTS.format(items=10_000, seed=9))


@pytest.mark.gpu
@pytest.mark.slow
def test_a_retry_draws_the_same_numbers_on_a_real_gpu(tmp_path: Path) -> None:
    assert "RETRIED" in on_real_gpu(tmp_path, OUT_OF_MEMORY.format(strategy="engines"))


# As `map` has it: results before an error come first, and items after it too where the iterator goes on. Items that
# are on the device already are let go of by nobody but this.
ERRORS = """
import random
import torch
from unstall import prefetch, stream_map

D = "cuda" if torch.cuda.is_available() else "cpu"

class Items:
    def __init__(self, count, bad):
        self.left, self.bad = list(range(count)), bad
    def __iter__(self):
        return self
    def __next__(self):
        if not self.left:
            raise StopIteration
        number = self.left.pop(0)
        if number in self.bad:
            raise LookupError(number)
        return torch.full((SIZE,), float(number), device=on)

def double(item):
    if float(item[0]) in fails:
        raise ValueError(int(item[0]))
    return item * 2

def seen(results):
    said = []
    while True:
        try:
            said.append(float(next(results)[-1]))
        except StopIteration:
            return said
        except Exception as error:
            said.append(repr(error))

dice = random.Random(1)
for turn in range(40):
    count, SIZE, on = dice.randrange(30), dice.choice([10, 3_000_000 if turn % 8 == 0 else 20]), dice.choice(["cpu", D])
    bad, fails = ({float(dice.randrange(30)) for _ in range(dice.randrange(3))} for _ in range(2))
    wanted = seen(map(lambda item: double(item.to(D)).cpu(), Items(count, bad)))
    for strategy in ("auto", "engines", "streams"):
        given = seen(stream_map(double, Items(count, bad), strategy=strategy))
        assert given == wanted, (strategy, count, bad, fails, given, wanted)

weights, fails, SIZE = torch.ones(512, 512, device=D), set(), 400_000
for strategy in ("auto", "engines", "streams"):
    def fresh():
        for number in range(40):
            yield torch.full((SIZE,), float(number), device=D)
    def slow(item):
        weights @ weights
        return item * 2
    for source in (fresh(), prefetch([torch.full((SIZE,), float(number)) for number in range(40)])):
        assert seen(stream_map(slow, source, strategy=strategy)) == [2.0 * number for number in range(40)]
print("AS MAP")
"""


def test_errors_come_where_map_has_them_without_a_gpu() -> None:
    exec(compile(ERRORS, "errors", "exec"), {"__name__": "errors"})


@pytest.mark.slow
def test_errors_come_where_map_has_them_on_the_virtual_gpu(tmp_path: Path) -> None:
    assert "AS MAP" in on_virtual_gpu(tmp_path, ERRORS)


@pytest.mark.gpu
@pytest.mark.slow
def test_errors_come_where_map_has_them_on_a_real_gpu(tmp_path: Path) -> None:
    assert "AS MAP" in on_real_gpu(tmp_path, ERRORS)


HOST_DRAWS = """
import random
import numpy, torch
from unstall import stream_map

calls = []

def draws(x):
    calls.append(len(x))
    host = random.random() + numpy.random.rand() + float(torch.rand(()))
    if len(calls) == 7:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate more than there is")
    return x + host

def seed():
    random.seed(1), numpy.random.seed(1), torch.manual_seed(1)

items = [torch.full((3_000_000,), float(number)) for number in range(12)]
seed()
wanted = [float((x.cuda() + (random.random() + numpy.random.rand() + float(torch.rand(()))))[0]) for x in items]
seed()
assert [float(result[0]) for result in stream_map(draws, items)] == wanted
assert len(calls) == 13
print("DRAWN AGAIN")
"""


@pytest.mark.slow
def test_a_call_that_is_made_again_draws_the_same_numbers_of_the_host(tmp_path: Path) -> None:
    assert "DRAWN AGAIN" in on_virtual_gpu(tmp_path, HOST_DRAWS)


def test_what_it_prints_names_the_function_and_where_it_is() -> None:
    results = unstall.stream_map(torch.relu, [torch.ones(1)] * 2)
    assert repr(results).startswith("stream_map(relu): 0 items")
    assert len(list(results)) == 2
    assert "2 items" in repr(results)


# Items of 4 MiB, pinned or not, of a list or a generator: never slower than the loop that copies them the quickest way.
MIDDLING = """
import time
import torch
import unstall

weights = torch.randn(1024, 1024, device="cuda")
plain = [torch.randn(1024, 1024) for _ in range(4)]
pinned = [item.pin_memory() for item in plain]

def work(x):
    for _ in range(3):
        x = x @ weights
    return x

def took(run):
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - start

def by_hand():
    copies = [unstall.to_host(work(pinned[n % 4].to("cuda", non_blocking=True))) for n in range(80)]
    copies[-1].result()

quickest = took(by_hand)
for source in (plain, pinned):
    for kind in (list, iter):
        mapped = unstall.stream_map(work, kind([source[n % 4] for n in range(80)]))
        assert took(lambda: [None for _ in mapped]) < quickest, (source is pinned, kind, mapped.stats())
        assert mapped.stats().strategy != "plain"
small = unstall.stream_map(lambda x: x * 2, [torch.ones(1024) for _ in range(80)])
list(small)
assert small.stats().strategy == "plain", small.stats()
print("QUICK")
"""


@pytest.mark.slow
def test_middling_items_overlap_whatever_memory_they_come_from(tmp_path: Path) -> None:
    assert "QUICK" in on_virtual_gpu(tmp_path, MIDDLING)


# Small items, of which nothing comes back that would wait: pinned buffers that a generator fills again and again are
# read before they are filled, and nobody waits for what is not.
NOTHING_BACK = """
import time
import torch
import unstall

total = torch.zeros(1024, device="cuda")
ring = [torch.empty(1024, pin_memory=True) for _ in range(2)]

def filled(count):
    for number in range(count):
        yield ring[number % 2].fill_(float(number))

def adds(x):
    total.add_(x)
    return x[:0]

assert all(result.numel() == 0 for result in unstall.stream_map(adds, filled(300)))
assert float(total[0]) == sum(range(300)), float(total[0])

def took(run):
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    spent = time.perf_counter() - start
    torch.cuda.synchronize()
    return spent

items = [torch.ones(1024) for _ in range(300)]

def none(x):
    total.add_(x)

plain = took(lambda: [none(item.to("cuda")) for item in items])
mapped = unstall.stream_map(none, items)
assert took(lambda: list(mapped)) < 1.02 * plain, mapped.stats()
print("NOTHING BACK")
"""


@pytest.mark.slow
def test_small_items_of_which_nothing_comes_back_are_waited_for_only_where_they_are_filled_anew(tmp_path: Path) -> None:
    assert "NOTHING BACK" in on_virtual_gpu(tmp_path, NOTHING_BACK)


@pytest.mark.parametrize(
    ("item_ns", "best", "said"),
    [
        ({"plain": 362, "engines": 289, "streams": 283}, "engines", "streams was faster by less than 3 %"),
        ({"plain": 362, "engines": 289, "streams": 290}, "engines", "plain and streams were not faster"),
        ({"engines": 300, "streams": 250}, "streams", "1.20 times as fast as engines"),
    ],
)
def test_what_is_said_of_a_choice_is_what_was_measured(item_ns: dict[str, int], best: str, said: str) -> None:
    assert best_of(item_ns) == best
    assert why(best, item_ns) == said


# 2 MiB there and back, pinned, through small kernels that the host bounds: whichever way is taken, no other is faster.
HOST_BOUND = """
import time
import torch
import unstall

layer = torch.nn.Linear(256, 256).cuda().requires_grad_(False)
items = [torch.randn(2048, 256).pin_memory() for _ in range(100)]

def model(x):
    for _ in range(5):
        x = layer(x)
    return x

def took(strategy):
    mapped = unstall.stream_map(model, items, strategy=strategy)
    torch.cuda.synchronize()
    start = time.perf_counter()
    list(mapped)
    return time.perf_counter() - start, mapped.stats()

took("auto")
(mine, stats), *others = (took(strategy) for strategy in ("auto", "engines", "streams"))
assert mine < 1.02 * min(took for took, _ in others), (mine, others, stats)
assert "small" not in stats.text and "up to 5 in flight" in " ".join(stats.text.split()), stats
print("QUICKEST")
"""


@pytest.mark.slow
def test_items_of_some_mib_that_the_host_bounds_stay_in_flight(tmp_path: Path) -> None:
    assert "QUICKEST" in on_virtual_gpu(tmp_path, HOST_BOUND)
