"""Each step sleeps in a function of its own, within an annotation."""

import time

import torch


def wait() -> None:
    time.sleep(0.01)


model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(12):
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    with torch.profiler.record_function("waiting"):
        wait()
