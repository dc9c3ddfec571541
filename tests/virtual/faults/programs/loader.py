"""Batches come from a DataLoader's workers; one sample of the data set has a label too many."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        return torch.full((8,), i / 40), 3 if i == 26 else i % 3


def main():
    model = nn.Linear(8, 3).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_of = nn.CrossEntropyLoss()
    for x, label in DataLoader(Samples(), batch_size=4, num_workers=2):
        x, label = x.cuda(), label.cuda()
        loss = loss_of(model(x), label)  # FAULT
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(loss.item())


if __name__ == "__main__":
    main()
