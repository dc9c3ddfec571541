"""Results come by `unstall.stream_map`, whose copies and computation overlap."""

import torch

import unstall

weight = torch.ones(256, 256, device="cuda")
total = 0.0
for result in unstall.stream_map(lambda x: x @ weight, [torch.ones(64, 256) for _ in range(8)], strategy="engines"):
    total += result.sum().item()
print(total)
