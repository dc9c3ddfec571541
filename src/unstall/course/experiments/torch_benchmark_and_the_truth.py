"""`torch.utils.benchmark` waits for the GPU, so its tables are right for calls back to back. `timeit` does not wait.

A fuzzer draws shapes, a timer runs each statement until its time is known, and `Compare` prints a table. `Timer`
fills the same table, and `bench` says what each figure is of.
"""

import timeit

import torch
from torch.utils import benchmark

from unstall import Timer, bench


def mul_sum(x):
    return x.mul(x).sum(-1)


def bmm(x):
    return torch.bmm(x.unsqueeze(1), x.unsqueeze(2))


sizes = [benchmark.FuzzedParameter(name, 2**12, 2**13, "loguniform") for name in ("rows", "columns")]
drawn = benchmark.FuzzedTensor("x", ("rows", "columns"), cuda=True, min_elements=2**22, probability_contiguous=1)
results = []
for tensors, _, size in benchmark.Fuzzer(sizes, [drawn], seed=1).take(2):
    for call in (mul_sum, bmm):
        what = {"stmt": "call(x)", "globals": {"call": call, "x": tensors["x"]}}
        told = {"label": "a call", "sub_label": f"{size['rows']} x {size['columns']}", "description": call.__name__}
        call(tensors["x"])  # the first call loads kernels
        results.append(benchmark.Timer(**what, **told, env="torch").blocked_autorange(min_run_time=0.1))
        results.append(Timer(**what, **told, env="unstall").blocked_autorange().to_torch())

# %% The table of torch's benchmark, with a line of unstall's below each of its own.
benchmark.Compare(results).print()
worst = max(abs(a.median / b.median - 1) for a, b in zip(results[::2], results[1::2], strict=True))
print(f"largest difference of the two timers: {worst:.1%}")

# %% What the figure is of: bench tells the four times apart.
x = tensors["x"]
times = bench(mul_sum, x, cache="hot")
print(times)
print(f"torch's Timer: {results[-4].median * 1e6:.1f} us")
print(f"bench, back to back: {times.throughput.median / 1e3:.1f} us")
print(f"bench, device: {times.device.median / 1e3:.1f} us")

# %% `%timeit` in a notebook, or timeit here, does not wait for the GPU: it sees the launches.
torch.cuda.synchronize()
print(f"timeit: {timeit.timeit(lambda: mul_sum(x), number=100) / 100 * 1e6:.1f} us")
torch.cuda.synchronize()
print(f"bench, host: {times.host.median / 1e3:.1f} us")
