"""One id of a batch of sentences has no row, and the error comes four lines later."""

import torch
from torch import nn

words = nn.Embedding(100, 16).to("cuda")
ids = torch.zeros(8, 12, dtype=torch.long)
ids[3, 4] = 250
ids = ids.to("cuda")
hidden = words(ids)  # FAULT
mean = hidden.mean(1)
result = torch.sigmoid(mean)
print(result.sum().item())
