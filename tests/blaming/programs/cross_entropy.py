import torch
from torch import nn
from torch.nn.functional import cross_entropy

model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
ballast = torch.randn(4096, 4096, device="cuda")
losses = []
for step in range(40):
    x = torch.randn(64, 256, device="cuda")
    labels = torch.randint(0, 10 if step < 30 else 11, (64,), device="cuda")
    labels[0] = 10 if step == 30 else 0
    ballast = ballast @ ballast / 64
    logits = model(x)
    loss = cross_entropy(logits, labels)  # the fault
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
print(torch.stack(losses).mean().item())
