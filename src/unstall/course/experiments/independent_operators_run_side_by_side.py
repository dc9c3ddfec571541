"""Operators depend on each other through their tensors. Those that are independent may run side by side.

One stream runs all of them one after the other. `graphed` puts independent ones on streams of their own.
"""

import itertools
import time

import torch

import unstall
from unstall import graphed

x = torch.randn(128, 128, device="cuda")
weights = [torch.randn(128, 128, device="cuda") / 11 for _ in range(10)]


def chain(x):
    for weight in weights:  # each product needs the result of the last
        x = torch.relu(x @ weight)
    return x


def branches(x):
    return torch.stack([torch.relu(x @ a) @ b for a, b in itertools.pairwise(weights)])  # no pair needs another


def microseconds(call, calls=10):
    """Returns the time of a call, the least of five means, and the result."""
    means = []
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            result = call(x)
        torch.cuda.synchronize()
        means.append((time.perf_counter() - begin) / calls * 1e6)
    return min(means), result


# %% A step of each: `unstall draw` shows a step as a graph.
for function in (chain, branches):
    function(x)
    unstall.step()

# %% `graphed` captures on one stream and, if there are independent operators, on several. It keeps the fastest.
for function in (chain, branches):
    name = function.__name__
    one, best = graphed(function, streams=1), graphed(function)
    for _ in range(4):  # they observe, capture, and prove that results are equal
        function(x), one(x), best(x)
    eager, result = microseconds(function)
    print(f"{name}, eager: {eager:.1f} us")
    print(f"{name}, graph of one stream: {microseconds(one)[0]:.1f} us")
    print(f"{name}, best graph: {microseconds(best)[0]:.1f} us")
    print(f"{name}, streams of the best graph: {best.stats().graphs[0].lanes}")
    print(f"{name}, results that are equal: {torch.equal(result, best(x)):d}")
