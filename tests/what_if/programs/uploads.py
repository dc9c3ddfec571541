"""Training steps that upload a batch, from pageable and from pinned memory. Prints, as JSON, for each size in bytes:
how long a step takes with each of them, how much shorter pin-copies is said to make it, and how long the host waits."""

import json
import sys
import time

import unstall
from unstall.result import Result

STEPS = 8


def recorded(size_bytes: int, *, pinned: bool) -> tuple[float, Result]:
    with unstall.virtual_gpu("h200", numerics="skip", warm=True) as gpu:
        import torch

        model = torch.nn.Linear(256, 64).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        batches = [torch.ones(size_bytes // 4) for _ in range(STEPS)]
        for step, batch in enumerate([each.pin_memory() for each in batches] if pinned else batches):
            if step == 1:
                torch.cuda.synchronize()
                began = time.perf_counter()
            x = batch.to("cuda", non_blocking=pinned)
            optimizer.zero_grad()
            model(x[:1024].view(-1, 256)).sum().backward()
            optimizer.step()
        torch.cuda.synchronize()
        step_ns = 1e9 * (time.perf_counter() - began) / (STEPS - 1)
    return step_ns, gpu.explain().result


found = {}
for size in map(int, sys.argv[1:]):
    (before, result), (after, _) = (recorded(size, pinned=pinned) for pinned in (False, True))
    copy = max((each for each in result.findings if each.rule == "pageable-copy"), key=lambda each: each.gain_ns or 0)
    found[size] = (before, after, copy.gain_ns, copy.wait_ns)
print(json.dumps(found))
