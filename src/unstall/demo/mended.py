"""The training loop of train.py, fixed as unstall's report advises. To see the changes: diff train.py mended.py"""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import unstall

STEPS, BATCH = 10, 8


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(x + self.norms[1](self.second(y)))


def network() -> nn.Module:
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)]
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), *(Block(32) for _ in range(4)), *head)


def normalized(images: torch.Tensor) -> torch.Tensor:
    for image in images:  # small kernels by the hundred
        for channel in image:
            channel.sub_(channel.mean()).div_(channel.std())
    return images


def gradient_norm(model: nn.Module) -> torch.Tensor:
    return torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm()


def main() -> None:
    print(f"training on {torch.cuda.get_device_name()}")
    torch.manual_seed(0)
    model = network().to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)

    @unstall.graphed
    def train_step(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        loss = functional.cross_entropy(model(normalized(x)), y)
        optimizer.zero_grad()
        loss.backward()
        norm = gradient_norm(model)
        optimizer.step()
        return loss.detach(), norm

    images, labels = torch.randn(STEPS * BATCH, 3, 32, 32), torch.randint(0, 10, (STEPS * BATCH,))
    data = DataLoader(TensorDataset(images, labels), BATCH, pin_memory=True)
    for x, y in unstall.prefetch(data):
        loss, norm = train_step(x, y)
    print(f"after {STEPS} steps: loss {loss:.3f}, gradient norm {norm:.3f}")


if __name__ == "__main__":
    main()
