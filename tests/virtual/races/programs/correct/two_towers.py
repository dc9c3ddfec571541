"""Two parts of a model run on two streams, forward and backward; the optimizer runs behind both."""

import torch
from torch import nn

torch.manual_seed(0)
side = torch.cuda.Stream()
left, right = nn.Linear(128, 32).cuda(), nn.Linear(128, 32).cuda()
optimizer = torch.optim.SGD([*left.parameters(), *right.parameters()], lr=0.1)
x = torch.randn(64, 128).pin_memory()
for _ in range(4):
    batch = x.to("cuda", non_blocking=True)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        b = right(batch)
    a = left(batch)
    torch.cuda.current_stream().wait_stream(side)
    b.record_stream(torch.cuda.current_stream())
    loss = (a - b).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    batch.record_stream(side)
print(loss.item() >= 0)
