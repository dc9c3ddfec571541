import torch

counts = torch.zeros(256, device="cuda")
ballast = torch.randn(4096, 4096, device="cuda")


def count(tokens):
    ones = torch.ones_like(tokens, dtype=torch.float32)
    counts.scatter_add_(0, tokens, ones)  # the fault
    return counts / counts.sum()


for batch in range(10):
    tokens = torch.arange(4096, device="cuda") % 250 + batch
    for _ in range(3):
        ballast = ballast @ ballast / 64
    shares = count(tokens)
print(shares.max().item())
