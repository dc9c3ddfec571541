"""Blocks of four branches that are concatenated, as in GoogLeNet, by a graph on several streams."""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn

import unstall


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        quarter = width // 4
        self.branches = nn.ModuleList(
            (
                nn.Conv2d(width, quarter, 1),
                nn.Sequential(nn.Conv2d(width, quarter, 1), nn.ReLU(), nn.Conv2d(quarter, quarter, 3, padding=1)),
                nn.Sequential(nn.Conv2d(width, quarter, 1), nn.ReLU(), nn.Conv2d(quarter, quarter, 5, padding=2)),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(width, quarter, 1)),
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(torch.cat([branch(x) for branch in self.branches], 1))


def main(streams: str, waits: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(64) for _ in range(2))).to("cuda").eval()
    infer = unstall.graphed(model, streams="auto" if streams == "auto" else int(streams))
    batch = torch.randn(8, 64, 28, 28, device="cuda")
    with torch.no_grad():
        for _ in range(16):
            result = infer(batch)
            if waits:
                result.sum().item()
            unstall.step()
    print(infer.stats())


main(sys.argv[1], "waits" in sys.argv)
