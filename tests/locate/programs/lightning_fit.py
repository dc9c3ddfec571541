"""Lightning with a progress bar that shows the loss, and with detect_anomaly."""

import lightning.pytorch as pl
import torch


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(6)])

    def training_step(self, batch, number):
        loss = self.net(batch[0]).square().mean()
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


data = torch.utils.data.TensorDataset(torch.randn(64, 32))
trainer = pl.Trainer(
    max_steps=14, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False, detect_anomaly=True
)
trainer.fit(Net(), torch.utils.data.DataLoader(data, batch_size=4))
