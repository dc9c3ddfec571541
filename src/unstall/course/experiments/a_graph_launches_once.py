"""Many tiny kernels take as long as their launches. As a CUDA graph, all of them are launched by one call."""

import time

import torch
from torch.profiler import profile, record_function

from unstall import graphed, whatif

five, inputs, others = torch.randn(5, device="cuda"), *torch.randn(2, 1, 256, device="cuda")
weights = torch.randn(32, 256, 256, device="cuda") / 16


def rounds(x):
    for _ in range(500):
        x = torch.relu(torch.sigmoid(x * 2) + 5)
    return x


def model(x):
    for weight in weights:
        x = torch.relu(torch.nn.functional.linear(x, weight))
    return x


def milliseconds(call, *given):
    times = []
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call(*given), torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e3)
    return min(times)  # other programs of this machine can only add to it


# %% Capture it by hand, and replay it. Or let `graphed` do it: it copies inputs in and results out.
for name, function, x in (("", rounds, five), ("a small model, ", model, inputs)):
    function(x)  # the first time loads kernels
    print(f"{name}eager: {milliseconds(function, x):.2f} ms")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function(x)
    print(f"{name}graph: {milliseconds(graph.replay):.3f} ms")
    fast = graphed(function)
    fast(x), fast(x), fast(x), fast(x)  # it observes, captures, and proves that results are equal
    print(f"{name}graphed: {milliseconds(fast, x):.2f} ms")
    print(f"{name}graphed, results that are equal: {torch.equal(fast(x), function(x)):d}")
# %% What may go wrong: a graph reads and writes the memory that it was captured with.
graph.replay()
print(f"by hand, right results for a new tensor: {torch.allclose(result, model(others)):d}")
inputs.copy_(others), graph.replay()
print(f"by hand, right results if copied into the captured tensor: {torch.allclose(result, model(others)):d}")
print(f"graphed, right results for a new tensor: {torch.allclose(fast(others), model(others)):d}")
# %% Within a graph, nothing may be read on the host. `graphed` notices, says so, and runs the function as it is.
fast = graphed(lambda x: x if model(x).sum() > 0 else -x)
fast(inputs), fast(inputs), fast(inputs), fast(inputs)
print(f"graphed, graphs of a function that reads a value: {fast.stats().captures}")
print("graphed refuses it:", *(refusal.reason for refusal in fast.stats().refusals))
# %% Could the gain be known before? Record a run, and replay it. (Last, as the profiler slows down graphs after it.)
with profile(with_stack=True) as recorded:
    with record_function("rounds"):
        rounds(five)
    torch.cuda.synchronize()
print(f"graph, predicted: {whatif(recorded, 'graph', step='rounds').predicted_step_ns / 1e6:.2f} ms")
