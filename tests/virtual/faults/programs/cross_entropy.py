"""One label of a batch is a class that the last layer does not have."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(6):
    x, labels = torch.randn(16, 8), torch.randint(0, 10, (16,))
    if step == 3:
        labels[5] = 10
    loss = nn.functional.cross_entropy(model(x.cuda()), labels.cuda())  # FAULT
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
print(torch.stack(losses).tolist())
