"""A convolution whose workspace finds no room, and an operator whose own memory finds none."""

import json

import torch
from torch.nn import functional

MIB = 1 << 20
torch.cuda.set_per_process_memory_fraction(1000 * MIB / torch.cuda.get_device_properties(0).total_memory)
image, weight = torch.ones(32, 256, 56, 56, device="cuda"), torch.ones(256, 256, 3, 3, device="cuda")
functional.conv2d(image, weight, padding=1)
torch.cuda.synchronize()
free = 1000 * MIB - torch.cuda.memory_reserved()
peak = torch.cuda.max_memory_allocated()
torch.cuda.empty_cache()
rest = torch.empty(1000 * MIB - 2 * image.nbytes - 60 * MIB, dtype=torch.uint8, device="cuda")
result = functional.conv2d(image, weight, padding=1)
torch.cuda.synchronize()
told = ""
del result
numbers = torch.ones(40 * MIB // 4, device="cuda")
try:
    numbers.sort()
except torch.OutOfMemoryError as error:
    told = str(error)
torch.cuda.synchronize()
later = torch.ones(1, device="cuda") + 1
torch.cuda.synchronize()
print(json.dumps({"workspace": peak - 2 * image.nbytes - weight.nbytes, "told": told, "fits": free > 0}))
