"""A loop with Accelerate."""

import torch
from accelerate import Accelerator

accelerator = Accelerator()
net = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(6)])
optimizer = torch.optim.AdamW(net.parameters())
data = torch.utils.data.TensorDataset(torch.randn(64, 32))
net, optimizer, loader = accelerator.prepare(net, optimizer, torch.utils.data.DataLoader(data, batch_size=4))
for (x,) in loader:
    loss = net(x).square().mean()
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
