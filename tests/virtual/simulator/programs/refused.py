"""What a function holds after the device had no room for one of its tensors, and its caller caught that."""

import json

import torch

torch.cuda.set_per_process_memory_fraction((1 << 30) / torch.cuda.get_device_properties(0).total_memory)


def fills() -> None:
    one = torch.empty(300 << 20, dtype=torch.uint8, device="cuda")
    others = [torch.empty_like(one), torch.empty_like(one)]
    others.append(torch.empty_like(one))


refused = False
try:
    fills()
except torch.OutOfMemoryError:
    refused = True
print(json.dumps({"refused": refused, "held": torch.cuda.memory_allocated()}))
