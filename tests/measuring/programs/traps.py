"""Twelve mistakes that benchmarks of GPU code are made with, each planted: which verdicts do they get?

`python traps.py virtual|real` prints, by trap, the kinds of its verdicts and their places, as JSON in the last line.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from typing import Any

import unstall

if sys.argv[1] == "virtual":
    from unstall.virtual.entry import virtual_gpu

    gpu = virtual_gpu("h200").start()

import torch

x = torch.randn(256, 256, device="cuda")
w = torch.randn(256, 256)
zeros = torch.zeros(256, 256, device="cuda")
tiny = torch.full((256, 256), 1e-40, device="cuda")
counter = torch.randn(256, 256, device="cuda")
side = torch.cuda.Stream()
static = torch.randn(256, 256, device="cuda")
y = static @ static
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = static @ static


def sync_inside() -> Any:
    total = (x @ x).sum()
    return x / total.item()  # the place of the wait


def waits_itself() -> Any:
    z = x @ x
    torch.cuda.synchronize()
    return z


def on_a_side_stream() -> Any:
    with torch.cuda.stream(side):
        return x @ x


def forks_and_joins() -> Any:
    side.wait_stream(torch.cuda.current_stream())
    a = x @ x
    with torch.cuda.stream(side):
        b = x @ x
    torch.cuda.current_stream().wait_stream(side)
    return a, b


def unused() -> Any:
    x @ x


def allocates() -> Any:
    big = torch.empty(64 << 20, device="cuda")
    big[0] = 1
    result = x + big[0]
    del big
    return result


def asks_the_driver() -> Any:
    torch.cuda.empty_cache()
    return torch.empty(64 << 20, device="cuda")


first: list[int] = []


def slow_at_first() -> Any:
    if not first:
        first.append(1)
        time.sleep(0.05)
    return x @ x


def cpu_tensor() -> Any:
    return x @ w.cuda()


def changes_its_input() -> Any:
    return counter.mul_(0.5)


def plain() -> Any:
    return x @ x


def later() -> Any:
    def work() -> Any:
        time.sleep(0.02)
        x @ x

    threading.Thread(target=work).start()
    return x


def stale() -> Any:
    graph.replay()
    return y


def fresh() -> Any:
    static.copy_(x)
    graph.replay()
    return y


def of_zeros() -> Any:
    return zeros @ zeros


def of_subnormals() -> Any:
    return tiny * 2


dice = random.Random(1)


def random_clocks() -> Any:
    return [x @ x for _ in range(dice.choice([1, 2, 3, 4, 8]))]


cases: dict[str, Any] = {
    "sync inside": (sync_inside, {}),
    "waits itself": (waits_itself, {}),
    "side stream": (on_a_side_stream, {}),
    "forks and joins": (forks_and_joins, {}),
    "unused": (unused, {}),
    "allocates": (allocates, {}),
    "asks the driver": (asks_the_driver, {}),
    "first call": (slow_at_first, {}),
    "CPU tensor": (cpu_tensor, {}),
    "random clocks": (random_clocks, {}),
    "changes its input": (changes_its_input, {}),
    "warm L2": (plain, {"cache": "hot"}),
    "later": (later, {}),
    "stale graph": (stale, {}),
    "fresh graph": (fresh, {}),
    "zeros": (of_zeros, {}),
    "subnormals": (of_subnormals, {}),
    "none": (plain, {}),
}
chosen = sys.argv[2:] or list(cases)
said: dict[str, Any] = {}
for name in chosen:
    fn, options = cases[name]
    measured = unstall.bench(fn, label=name, max_seconds=0.4, **options)
    print(measured, flush=True)
    said[name] = {
        "method": measured.method,
        "serious": [each.kind for each in measured.verdicts if each.serious],
        "kinds": [each.kind for each in measured.verdicts],
        "places": {each.kind: each.place for each in measured.verdicts},
    }
print(json.dumps(said))
