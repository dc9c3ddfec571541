"""A Lightning Trainer."""

import lightning.pytorch as pl
import pytest
import torch

import unstall

STEPS = 6
OWN = 17  # Lightning's own waits: it moves the model to the GPU and back, and looks how long the loader is


class Mended(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(32, 32)

    def training_step(self, batch, number):
        return self.net(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


class Planted(Mended):
    def training_step(self, batch, number):
        loss = super().training_step(batch, number)
        return loss if loss.item() < 1e6 else None  # planted


def fit(model):
    data = torch.utils.data.TensorDataset(torch.randn(64, 32))
    trainer = pl.Trainer(
        max_steps=STEPS,
        accelerator="gpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True))


@pytest.mark.limit_syncs(OWN)
def test_planted():
    fit(Planted())


@pytest.mark.limit_syncs(OWN)
def test_mended():
    fit(Mended())


def test_steps_are_found():
    with unstall.virtual_gpu("h200") as gpu:
        fit(Mended())
    assert gpu.explain().result.steps.count == STEPS
