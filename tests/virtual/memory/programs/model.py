"""Prints the memory of a model of transformers. MODE and BATCH are given."""

import json
import sys

import torch
import transformers

MODE, BATCH = sys.argv[1], int(sys.argv[2])
KEYS = (
    "allocated_bytes.all.peak",
    "reserved_bytes.all.peak",
    "allocation.all.allocated",
    "requested_bytes.all.peak",
)


def figures() -> dict[str, int]:
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    return {key: stats[key] for key in KEYS}


torch.manual_seed(0)
model = transformers.DistilBertForSequenceClassification(transformers.DistilBertConfig(num_labels=2)).cuda()
model.train(MODE == "train")
ids = torch.randint(0, 30522, (BATCH, 64))
labels = torch.randint(0, 2, (BATCH,))
ids, labels = ids.cuda(), labels.cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)


def step() -> None:
    if MODE == "train":
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    else:
        with torch.no_grad():
            model(input_ids=ids)


step()
first = figures()
for _ in range(3):
    step()
print(json.dumps({"first": first, "mem": figures()}))
