"""The Trainer of transformers, with a small BERT."""

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import unstall

STEPS = 6
OWN = 2  # the Trainer's own waits: it puts its sum of losses on the GPU, and reads it at the end


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, number):
        tokens = torch.randint(0, 100, (16,), generator=torch.Generator().manual_seed(number))
        return {"input_ids": tokens, "labels": torch.tensor(number % 2)}


class Planted(Trainer):
    worst = 0.0

    def compute_loss(self, *args, **kwargs):
        loss = super().compute_loss(*args, **kwargs)
        self.worst = max(self.worst, loss.item())  # planted
        return loss


class Mended(Trainer):
    worst = None

    def compute_loss(self, *args, **kwargs):
        loss = super().compute_loss(*args, **kwargs)
        self.worst = loss.detach() if self.worst is None else torch.maximum(self.worst, loss.detach())
        return loss


@pytest.fixture
def model():
    config = BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    return BertForSequenceClassification(config).cuda()


def train(kind, model, folder):
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=4,
        max_steps=STEPS,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        logging_nan_inf_filter=False,
        accelerator_config={"non_blocking": True},
    )
    kind(model=model, args=arguments, train_dataset=Data()).train()


@pytest.mark.limit_syncs(OWN)
def test_planted(model, tmp_path):
    train(Planted, model, tmp_path)


@pytest.mark.limit_syncs(OWN)
def test_mended(model, tmp_path):
    train(Mended, model, tmp_path)


def test_steps_are_found(model, tmp_path):
    with unstall.virtual_gpu("h200") as gpu:
        train(Mended, model, tmp_path)
    assert gpu.explain().result.steps.count == STEPS
