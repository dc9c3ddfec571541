"""A side stream sums what the default stream may still be writing."""

import torch

side = torch.cuda.Stream()
noise = torch.empty(1 << 16, device="cuda")
noise.normal_()  # race: first
with torch.cuda.stream(side):
    total = noise.sum()  # race: second
side.synchronize()
print(total.item() == total.item())
