"""`.item()` in each step makes the host and the GPU take turns. What that costs depends on how long each works."""

import time

import torch

from unstall import MetricBuffer, no_sync

torch.set_num_threads(1)  # of the CPU
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64, device="cuda") for _ in range(4)])
batches = torch.randn(20, 64, 64, device="cuda")
KINDS = {  # seconds in which the host prepares a batch, and clock cycles of more work for the GPU
    "GPU busy": (0, 4_000_000),
    "host busy, tiny kernels": (0, 0),
    "both busy": (0.002, 4_000_000),
}


def loss_of(batch):
    host_seconds, gpu_cycles = KINDS[kind]
    time.sleep(host_seconds)
    torch.cuda._sleep(gpu_cycles)
    return model(batch).square().mean().detach()


def in_each_step():
    return [loss_of(batch).item() for batch in batches]  # waits


def in_every_tenth_step():
    kept = []
    for number, batch in enumerate(batches, 1):
        kept.append(loss_of(batch))
        if number % 10 == 0:
            kept[-10:] = torch.stack(kept[-10:]).tolist()  # waits
    return kept


def at_the_end():
    return torch.stack([loss_of(batch) for batch in batches]).tolist()  # waits


def by_a_metric_buffer():
    with MetricBuffer() as metrics:
        for batch in batches:
            metrics.add(loss=loss_of(batch))
    return [row.values["loss"] for row in metrics.take()]


losses, waits = [], {}
for kind in KINDS:
    for loop in (in_each_step, in_every_tenth_step, at_the_end, by_a_metric_buffer):
        name = f"read {loop.__name__.replace('_', ' ')}"
        with no_sync("count") as guard:
            losses.append(loop())  # the first time takes memory and loads kernels
        waits[name], seconds = guard.count, []
        for _ in range(5):
            torch.cuda.synchronize()  # waits
            begin = time.perf_counter()
            loop()
            seconds.append(time.perf_counter() - begin)
        print(f"{kind}, {name}, a step: {min(seconds) / 20 * 1e6:.1f} us")
print("\n".join(f"waits, {name}: {count}" for name, count in list(waits.items())[:3]))
print(f"loops with the losses of the first: {losses.count(losses[0])}")
