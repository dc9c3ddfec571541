"""A loop that reads its loss in each step waits in each step. A loop that reads its losses later does not.

The losses are the same with `.item()` in each step, a list that is read at the end, and a `MetricBuffer`.
"""

import time

import torch

from unstall import MetricBuffer, no_sync

model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024, device="cuda") for _ in range(4)])
batches = torch.randn(20, 256, 1024, device="cuda")


def loss_of(batch):
    torch.cuda._sleep(400_000)  # clock cycles, as more layers would take: the GPU is behind
    return model(batch).square().mean().detach()


def in_each_step():
    return [loss_of(batch).item() for batch in batches]  # waits


def at_the_end():
    kept = [loss_of(batch) for batch in batches]
    return torch.stack(kept).tolist()  # waits


def some_steps_later():
    with MetricBuffer() as metrics:
        for batch in batches:
            metrics.add(loss=loss_of(batch))
        waited.append(metrics.stats().waited_ns)  # in the loop: the `with` block waits again where it ends
    return [row.values["loss"] for row in metrics.take()]


losses, waited = [], []
for loop in (in_each_step, at_the_end, some_steps_later):
    name = "read " + loop.__name__.replace("_", " ")
    losses.append(loop())  # the first time takes memory and loads kernels
    seconds = []
    for _ in range(5):
        torch.cuda.synchronize()  # waits
        begin = time.perf_counter()
        loop()
        seconds.append(time.perf_counter() - begin)
    print(f"20 steps, {name}: {min(seconds) * 1e3:.2f} ms\na step, {name}: {min(seconds) / 20 * 1e6:.1f} us")
    if loop is not some_steps_later:
        with no_sync("count") as guard:
            loop()
        print(f"waits, {name}: {guard.count}")
print(f"waited in the loop, read some steps later: {max(waited) / 1e6:.2f} ms")  # `no_sync` leaves these waits out
print(f"loops with the losses of the first: {losses.count(losses[0])}")
