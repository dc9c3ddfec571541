import torch

table = torch.randn(10_000, 16, device="cuda")
total = torch.zeros(16, device="cuda")
for iteration in range(1, 10_001):
    start = iteration % 9_990 if iteration != 3_700 else 9_999
    index = torch.arange(start, start + 8, device="cuda")
    rows = table[index]  # the fault
    total = total * 0.9 + rows.sum(0)
    total = total.clamp(-100, 100)
print(total.tolist())
