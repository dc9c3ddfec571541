"""A pinned buffer gets the next batch, while the copy of the last one may still read it."""

import torch

staging = torch.empty(1 << 16, pin_memory=True)
batches = []
for step in range(12):
    staging.fill_(step)  # race: second
    batches.append(staging.to("cuda", non_blocking=True))  # race: first
torch.cuda.synchronize()
print(len(batches))
