"""A function's device time by events, on a device that is not the current one. JSON in the last line."""

from __future__ import annotations

import json

import unstall
from unstall.virtual.entry import virtual_gpu

gpu = virtual_gpu("h200:2").start()
import torch  # noqa: E402

said = {}
for device in ("cuda:0", "cuda:1"):
    x = torch.randn(256, 256, device=device)
    measured = unstall.bench(torch.matmul, x, x, method="events", max_seconds=0.3)
    assert measured.device is not None
    said[device] = measured.device.median
print(json.dumps(said))
