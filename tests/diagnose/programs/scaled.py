"""Training with a GradScaler; with the argument "graphed", as the report advises to mend it."""

from __future__ import annotations

import sys

import torch
from torch import nn

import unstall


def main(*, graphed: bool) -> None:
    model = nn.Sequential(*(each for _ in range(6) for each in (nn.Linear(64, 64), nn.GELU())), nn.Linear(64, 4)).cuda()
    if graphed:
        model.forward = unstall.graphed(model.forward)  # type: ignore[method-assign]
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    scaler = torch.amp.GradScaler("cuda")
    data, target = torch.randn(16, 64, device="cuda"), torch.randint(0, 4, (16,), device="cuda")
    for _ in range(20):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(data), target)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


main(graphed="graphed" in sys.argv)
