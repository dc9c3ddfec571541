"""Trains a small classifier on a GPU. No step waits for the device, and CI checks that it stays so."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def batches(count: int, size: int = 64) -> DataLoader:
    images = torch.randn(count * size, 3, 32, 32)
    labels = torch.randint(0, 10, (count * size,))
    return DataLoader(TensorDataset(images, labels), batch_size=size, pin_memory=True)


def main(steps: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(10),
    ).cuda()
    model(torch.zeros(1, 3, 32, 32).cuda())  # tells the lazy layer its size
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    losses = []
    for images, labels in batches(steps):
        images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    print(f"loss: {torch.stack(losses).mean().item():.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    main(parser.parse_args().steps)
