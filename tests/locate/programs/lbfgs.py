"""Six calls of torch's LBFGS, with a closure that reads nothing on the host."""

import torch

torch.manual_seed(0)
x = torch.nn.Parameter(torch.randn(1000, device="cuda"))
optimizer = torch.optim.LBFGS([x], lr=0.1, max_iter=3)


def closure() -> torch.Tensor:
    optimizer.zero_grad()
    loss = (x * x).sum().sin()
    loss.backward()
    return loss


for _ in range(6):
    optimizer.step(closure)
