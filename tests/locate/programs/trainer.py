"""The Trainer of transformers on a small BERT, with pageable batches and a log line for each step."""

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, number):
        tokens = torch.randint(0, 100, (16,), generator=torch.Generator().manual_seed(number))
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": torch.tensor(number % 2)}


config = BertConfig(vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
arguments = TrainingArguments(
    output_dir="unused",
    per_device_train_batch_size=4,
    max_steps=14,
    report_to=[],
    logging_steps=1,
    save_strategy="no",
    disable_tqdm=True,
    dataloader_pin_memory=False,
)
Trainer(model=BertForSequenceClassification(config), args=arguments, train_dataset=Data()).train()
