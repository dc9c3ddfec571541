"""A call on a GPU returns as soon as its work is launched.

A clock around 100 calls sees the launches. With a wait for the GPU after each call, it sees the work too. To time a
loop, wait before it and after it: without the wait before, the clock also sees work that was launched earlier.
"""

import time

import torch

from unstall import bench

CALLS = 100
x = torch.randn(10000, 1024, device="cuda")


def work():
    return x.mul(x).sum(-1)


def nothing():
    pass


def per_call(function, wait=nothing):
    torch.cuda.synchronize()  # the queue of the GPU is empty when the clock starts
    begin = time.perf_counter()
    for _ in range(CALLS):
        function()
        wait()
    return (time.perf_counter() - begin) / CALLS * 1e6


work()  # the first call also loads the kernels

# %% The clock says three different times of the same work.
print(f"empty loop: {per_call(nothing):.2f} us")
print(f"without synchronize: {per_call(work):.1f} us")
print(f"with synchronize: {per_call(work, wait=torch.cuda.synchronize):.1f} us")

# %% How to time a loop: warm up, wait, loop, wait. Without the first wait, the clock also sees the warm-up.
for wait, when in ((torch.cuda.synchronize, "before and after"), (nothing, "only after")):
    for _ in range(CALLS):
        work()
    wait()
    begin = time.perf_counter()
    for _ in range(CALLS):
        work()
    torch.cuda.synchronize()
    print(f"a wait {when} the loop: {(time.perf_counter() - begin) / CALLS * 1e6:.1f} us")

# %% Each time is right, and answers another question. `bench` names them.
times = bench(work, cache="hot")  # x stays in the GPU's cache, as in the loops; by default, it is flushed
print(f"bench, host: {times.host.median / 1e3:.1f} us")  # until the call returns
print(f"bench, device: {times.device.median / 1e3:.1f} us")  # how long the GPU works
print(f"bench, wall: {times.wall.median / 1e3:.1f} us")  # until the result is there
print(f"bench, back to back: {times.throughput.median / 1e3:.1f} us")  # of a call in a loop
