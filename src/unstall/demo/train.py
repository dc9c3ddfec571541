"""A training loop with stalls of the usual kinds. mended.py is the same loop without these stalls."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

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


def gradient_norm(model: nn.Module) -> float:
    total = 0.0
    for parameter in model.parameters():
        total += parameter.grad.norm().item() ** 2  # the host waits once for each parameter
    return total**0.5


def main() -> None:
    print(f"training on {torch.cuda.get_device_name()}")
    torch.manual_seed(0)
    model = network().to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def train_step(x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
        loss = functional.cross_entropy(model(normalized(x)), y)
        optimizer.zero_grad()
        loss.backward()
        norm = gradient_norm(model)
        optimizer.step()
        return loss.item(), norm

    images, labels = torch.randn(STEPS * BATCH, 3, 32, 32), torch.randint(0, 10, (STEPS * BATCH,))
    data = DataLoader(TensorDataset(images, labels), BATCH)
    for x, y in data:
        loss, norm = train_step(x.to("cuda"), y.to("cuda"))  # from pageable memory
    print(f"after {STEPS} steps: loss {loss:.3f}, gradient norm {norm:.3f}")


if __name__ == "__main__":
    main()
