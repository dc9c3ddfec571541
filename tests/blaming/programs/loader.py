import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    def __len__(self):
        return 640

    def __getitem__(self, number):
        label = number % 10 if number != 333 else 10
        return torch.full((64,), float(number % 7)), label


def main():
    model = nn.Linear(64, 10).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    total = torch.zeros((), device="cuda")
    for images, labels in DataLoader(Digits(), batch_size=32, num_workers=2, pin_memory=True):
        images = images.cuda(non_blocking=True)
        labels = labels.cuda(non_blocking=True)
        logits = model(images)
        loss = cross_entropy(logits, labels)  # the fault
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    print(total.item())


if __name__ == "__main__":
    main()
