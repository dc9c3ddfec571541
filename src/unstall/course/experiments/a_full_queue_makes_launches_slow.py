"""Training steps of a deep convolutional net. Launching a forward pass takes longer without a wait after each step.

Without the wait, the queue of launches is full when the step begins. Each launch then waits for room, so the host goes
as slowly as the GPU. Nothing is wrong: the GPU always has work.
"""

import time

import torch
from torch import nn

STEPS = 6
CHANNELS = 256


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(CHANNELS)

    def forward(self, x):
        return x + torch.relu(self.norm(self.conv(x)))


net = nn.Sequential(*(Block() for _ in range(24))).cuda()
x = torch.randn(64, CHANNELS, 28, 28, device="cuda")


def last_step(wait):
    """Returns three times in ms: to launch the forward and the backward pass of the last step, and of a whole step."""
    start = time.perf_counter()
    for _ in range(STEPS):
        begin = time.perf_counter()
        loss = net(x).mean()
        forward = time.perf_counter()
        loss.backward()
        backward = time.perf_counter()
        if wait:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    return (forward - begin) * 1e3, (backward - forward) * 1e3, (time.perf_counter() - start) / STEPS * 1e3


last_step(wait=True)  # warm-up
for wait, when in ((False, "no synchronize"), (True, "synchronize after each step")):
    forward, backward, step = last_step(wait)
    print(f"forward, {when}: {forward:.1f} ms")
    print(f"backward, {when}: {backward:.1f} ms")
    print(f"a step, {when}: {step:.1f} ms")
