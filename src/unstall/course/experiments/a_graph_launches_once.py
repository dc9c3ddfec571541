"""Two thousand tiny kernels take as long as their launches. As a CUDA graph, they are launched by one call.

Each round is x * 2, sigmoid, + 5, relu of five numbers.
"""

import time

import torch
from torch.profiler import profile, record_function

from unstall import graphed, whatif

x = torch.randn(5, device="cuda")


def rounds(x):
    for _ in range(500):
        x = torch.relu(torch.sigmoid(x * 2) + 5)
    return x


def milliseconds(call):
    """Returns the least time of five calls: other programs of this machine can only add to it."""
    times = []
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e3)
    return min(times)


rounds(x)  # the first time loads kernels
print(f"eager: {milliseconds(lambda: rounds(x)):.2f} ms")

# %% Capture it by hand, and replay it.
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    rounds(x)
print(f"graph: {milliseconds(graph.replay):.2f} ms")

# %% Or let `graphed` do it: it copies inputs in and results out, and proves that results are the same.
fast = graphed(rounds)
for _ in range(4):
    fast(x)
print(f"graphed: {milliseconds(lambda: fast(x)):.2f} ms")
print(f"graphed, results that are equal: {torch.equal(fast(x), rounds(x)):d}")

# %% Could that be known before? Record the eager run, and replay it with that change.
# Last: the profiler stays attached to CUDA, and graphs then take longer to launch (this one 0.5 ms, on an H200).
with profile(with_stack=True) as recorded:
    with record_function("rounds"):
        rounds(x)
    torch.cuda.synchronize()
answer = whatif(recorded, "graph", step="rounds")
print(f"graph, predicted: {answer.predicted_step_ns / 1e6:.2f} ms")
print(answer)
