"""A training loop with Accelerate."""

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration

import unstall

STEPS = 6


@pytest.fixture
def prepared():
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(non_blocking=True))
    net = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(3)])
    optimizer = torch.optim.AdamW(net.parameters())
    data = torch.utils.data.TensorDataset(torch.randn(4 * STEPS, 32))
    loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True)
    return accelerator, *accelerator.prepare(net, optimizer, loader)


def train(accelerator, net, optimizer, loader, see):
    for (x,) in loader:
        loss = net(x).square().mean()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        see(loss)


@pytest.mark.no_sync
def test_planted(prepared):
    seen = []
    train(*prepared, lambda loss: seen.append(loss.item()))  # planted


@pytest.mark.no_sync
def test_mended(prepared):
    seen = []
    train(*prepared, lambda loss: seen.append(loss.detach()))


def test_steps_are_found(prepared):
    seen = []
    with unstall.virtual_gpu("h200") as gpu:
        train(*prepared, lambda loss: seen.append(loss.detach()))
    assert gpu.explain().result.steps.count == STEPS
