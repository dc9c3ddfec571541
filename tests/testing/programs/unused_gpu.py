"""Counts a program that does not use its GPU by what a real one has, here on a virtual one."""

import json

from unstall.testing.sources import OfRealGpu, Wanted
from unstall.virtual.entry import virtual_gpu

gpu = virtual_gpu("h200").start()

import torch  # noqa: E402 - the virtual GPU comes first

seen = OfRealGpu(Wanted(memory=True)).end()
print(json.dumps({"gpu": seen.gpu, "launches": seen.launches, "is_initialized": torch.cuda.is_initialized()}))
