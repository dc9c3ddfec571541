"""A Linear layer, called 100 times: with no wait, with a wait after each call, and with one wait at the end.

Launches go into a queue, and the host runs ahead. The queue holds about a thousand launches. If it is full, a launch
waits until there is room.
"""

import time

import torch

x = torch.randn(10000, 512, device="cuda")
layer = torch.nn.Linear(512, 1024, bias=False, device="cuda")


@torch.no_grad()
def per_call(calls, wait_each=False, wait_last=False):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        layer(x)
        if wait_each:
            torch.cuda.synchronize()
    if wait_last:
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / calls * 1e3


print(f"first call: {per_call(1, wait_last=True):.2f} ms")
print(f"no synchronize: {per_call(100):.4f} ms")
print(f"synchronize after each: {per_call(100, wait_each=True):.4f} ms")
once = per_call(100, wait_last=True)
print(f"synchronize once: {once:.4f} ms")

# %% With 5000 calls the queue fills, and the host goes as slowly as the GPU, without any wait in the program.
held = per_call(5000)
print(f"no synchronize, each of 5000 calls: {held:.4f} ms")
print(f"launches that fit into the queue: {5000 - 5000 * held / once:.0f}")  # those that the GPU has not done yet
