"""An operator whose workspace finds no room."""

import json

import torch

MIB = 1 << 20
device = torch.cuda.get_device_properties(0)
torch.cuda.set_per_process_memory_fraction(44 * MIB / device.total_memory)
rest = torch.empty(22 * MIB, dtype=torch.uint8, device="cuda")  # 22 MiB are left, for less than cuBLAS keeps
matrix = torch.ones(1024, 1024, device="cuda")
told = ""
try:
    product = matrix @ matrix
except torch.OutOfMemoryError as error:
    told = str(error)
torch.cuda.synchronize()  # raises no more
print(json.dumps({"told": told}))
