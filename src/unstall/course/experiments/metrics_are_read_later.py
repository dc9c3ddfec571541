"""A loop that reads its loss in each step waits in each step. A loop that reads its losses later does not.

Three loops have the same losses: `.item()` in each step, a list of tensors that is read at the end, and a
`MetricBuffer`, which hands them over some steps later. Lines that wait end in `# waits`.
"""

import time

import torch

from unstall import MetricBuffer, no_sync

STEPS = 20
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024, device="cuda") for _ in range(4)])
batches = torch.randn(STEPS, 256, 1024, device="cuda")


def loss_of(batch):
    return model(batch).square().mean().detach()


def in_each_step():
    return [loss_of(batch).item() for batch in batches]  # waits


def at_the_end():
    kept = [loss_of(batch) for batch in batches]
    return torch.stack(kept).tolist()  # waits


def some_steps_later():
    rows = []
    with MetricBuffer(rows.append) as metrics:
        for batch in batches:
            metrics.add(loss=loss_of(batch))
    return [row.values["loss"] for row in rows]


losses = []
for loop in (in_each_step, at_the_end, some_steps_later):
    name = loop.__name__.replace("_", " ")
    loop()  # the first time takes memory and loads kernels
    torch.cuda.synchronize()  # waits
    begin = time.perf_counter()
    losses.append(loop())
    print(f"time, {name}: {(time.perf_counter() - begin) * 1e3:.2f} ms")
    with no_sync("count") as guard:
        loop()
    print(f"waits, {name}: {guard.count}")

print(f"loops with the losses of the first: {losses.count(losses[0])}")
