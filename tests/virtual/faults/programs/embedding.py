"""The course's embedding: ids are off by one, and the error comes six lines later."""

import torch
from torch import nn

words = nn.Embedding(1024, 32).to("cuda")
weight = torch.randn(64, 64, device="cuda")
ids = torch.arange(1, 1025).to("cuda")
hidden = words(ids)  # FAULT
product = weight @ weight
result = torch.sigmoid(hidden)
loss = result.sum() + product.sum()
print(loss.item())
