"""Six steps of training, the loss read in each."""

import sys

import torch

torch.manual_seed(0)
model = torch.nn.Linear(8, 4).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for _ in range(6):
    loss = model(torch.ones(16, 8).to("cuda")).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.4f}")
print(torch.cuda.device_count(), torch.cuda.get_device_name(), sys.argv[1:], __name__)
