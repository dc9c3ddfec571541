"""A tensor is freed after its stream waits for the other one that reads it, and its memory is reused."""

import torch

side = torch.cuda.Stream()
for _ in range(3):
    features = torch.ones(10 << 20, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        total = features.sum()
    torch.cuda.current_stream().wait_stream(side)
    del features
print(total.item())
