"""The event that the reader waits for is recorded before the write that it is to cover."""

import torch

side, ready = torch.cuda.Stream(), torch.cuda.Event()
weight = torch.ones(256, 256, device="cuda")
ready.record()
weight.mul_(2)  # race: first
side.wait_event(ready)
with torch.cuda.stream(side):
    product = weight @ weight  # race: second
side.synchronize()
print(product[0, 0].item() > 0)
