"""A tensor is freed while a side stream may still read it, and its memory goes to the next tensor."""

import torch

side = torch.cuda.Stream()
features = torch.ones(10 << 20, device="cuda")
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    total = features.sum()  # race: first
del features
others = torch.zeros(10 << 20, device="cuda")  # race: second
torch.cuda.synchronize()
print(total.item() >= 0)
