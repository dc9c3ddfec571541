"""The backward pass of gather adds up by an index that was changed in between."""

import torch

table = torch.randn(6, 4, device="cuda", requires_grad=True)
index = torch.zeros(6, 1, dtype=torch.long, device="cuda")
picked = table.gather(1, index)  # FAULT
index.data.fill_(7)
loss = (picked * 2).sum()
loss.backward()
step = table.grad * 0.1
print(step.sum().item())
