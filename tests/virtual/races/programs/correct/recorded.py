"""A tensor that a side stream reads is freed at once, which record_stream() allows."""

import torch

side = torch.cuda.Stream()
for _ in range(3):
    features = torch.ones(10 << 20, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        total = features.sum()
    features.record_stream(side)
    del features
torch.cuda.synchronize()
print(total.item())
