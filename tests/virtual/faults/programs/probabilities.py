"""binary_cross_entropy of logits, without a sigmoid."""

import torch
from torch.nn import functional

features = torch.linspace(-1, 1, 12, device="cuda").view(4, 3)
labels = torch.ones(4, device="cuda")
scores = features @ torch.ones(3, device="cuda")
loss = functional.binary_cross_entropy(scores, labels)  # FAULT
scaled = loss * 0.5
print(float(scaled))
