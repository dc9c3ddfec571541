"""Three ways to time a call agree on the CPU. On a GPU, a timer that waits shows the slower of host and GPU."""

import timeit

import torch
from torch.utils import benchmark


def mul_sum(x):
    return x.mul(x).sum(-1)


def bmm(x):
    columns = x.shape[-1]
    return torch.bmm(x.reshape(-1, 1, columns), x.reshape(-1, columns, 1))


def by_timeit(function, x):
    function(x)  # the first call is not timed
    return timeit.timeit(lambda: function(x), number=100) / 100


def by_percent_timeit(function, x):
    """As IPython's `%timeit`: chooses the number of calls itself, and repeats."""
    timer = timeit.Timer(lambda: function(x))
    number, _ = timer.autorange()
    return min(timer.repeat(3, number)) / number


def by_timer(function, x, threads=1):
    names = {"function": function, "x": x}
    return benchmark.Timer("function(x)", globals=names, num_threads=threads).timeit(100).mean


# %% On the CPU. `Timer` sets the number of threads; it is 1 unless you say more.
torch.set_num_threads(1)
x = torch.randn(10000, 64)
for function in (mul_sum, bmm):
    name = f"{function.__name__} on the CPU"
    print(f"{name}, timeit: {by_timeit(function, x) * 1e6:.1f} us")
    print(f"{name}, %timeit: {by_percent_timeit(function, x) * 1e6:.1f} us")
    print(f"{name}, Timer: {by_timer(function, x) * 1e6:.1f} us")
    print(f"{name}, Timer with 2 threads: {by_timer(function, x, threads=2) * 1e6:.1f} us")

# %% On the GPU. `timeit` returns when the last call is launched; `Timer` waits for the GPU.
x = torch.randn(10000, 1024, device="cuda")
for function in (mul_sum, bmm):
    name = f"{function.__name__} on the GPU"
    print(f"{name}, timeit: {by_timeit(function, x) * 1e6:.1f} us")
    torch.cuda.synchronize()
    print(f"{name}, Timer: {by_timer(function, x) * 1e6:.1f} us")
