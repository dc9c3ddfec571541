"""What `bench` says on the virtual GPU, with time for all calls and with next to none. JSON in the last line."""

from __future__ import annotations

import json
import time
from typing import Any

import unstall
from unstall.virtual.entry import virtual_gpu

gpu = virtual_gpu("h200").start()
import torch  # noqa: E402

x = torch.randn(256, 256, device="cuda")
calls: list[int] = []


def product() -> torch.Tensor:
    calls[-1] += 1
    return x @ x


calls.append(0)
began = time.monotonic()  # real time, on which it depends how many calls there is time for
for _ in range(50):
    product()
    torch.cuda.synchronize()
each_s = (time.monotonic() - began) / 50

said: dict[str, Any] = {}
for name, seconds in (("enough", 60.0), ("little", 10 * each_s), ("none", 1e-6)):
    calls.append(0)
    measured = unstall.bench(product, max_seconds=seconds)
    figures = {each: getattr(measured, each) for each in ("device", "host", "wall", "throughput")}
    said[name] = {
        "calls": calls[-1],
        "n": {each: spread and spread.n for each, spread in figures.items()},
        "ns": {each: spread and spread.median for each, spread in figures.items()},
        "converged": not measured.has("not converged"),
        "text": str(measured),
    }
zeros = torch.zeros(256, 256, device="cuda")
rated = unstall.bench(torch.add, zeros, 1.0, cache="hot", bytes=2 * zeros.nbytes, max_seconds=0.02)
said["rated"] = {"text": str(rated), "of": rated.bandwidth and rated.bandwidth.of}
print(json.dumps(said))
