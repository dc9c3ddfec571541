"""Results are copied to the host without blocking, and read one step later, after their event."""

import torch

waiting = []
for step in range(6):
    result = torch.full((1 << 14,), float(step), device="cuda").square()
    host = result.to("cpu", non_blocking=True)
    done = torch.cuda.Event()
    done.record()
    waiting.append((host, done))
    if len(waiting) > 1:
        host, done = waiting.pop(0)
        done.synchronize()
        print(host.sum().item(), host.tolist()[0])
