"""The training loop of train.py without its stalls: nothing in a step waits for the GPU."""

import torch
from torch import nn
from torch.nn import functional
from train import BATCH, STEPS, network


def normalized(images: torch.Tensor) -> torch.Tensor:
    std, mean = torch.std_mean(images, dim=(2, 3), keepdim=True)
    return images.sub_(mean).div_(std)


def gradient_norm(model: nn.Module) -> torch.Tensor:
    norms = torch._foreach_norm([parameter.grad for parameter in model.parameters()])
    return torch.linalg.vector_norm(torch.stack(norms))


def main() -> None:
    torch.manual_seed(0)
    model = network().to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    images, labels = torch.randn(STEPS * BATCH, 3, 32, 32), torch.randint(0, 10, (STEPS * BATCH,))
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), BATCH, pin_memory=True)
    history = []
    for x, y in data:
        x, y = x.to("cuda", non_blocking=True), y.to("cuda", non_blocking=True)
        loss = functional.cross_entropy(model(normalized(x)), y)
        optimizer.zero_grad()
        loss.backward()
        history.append(torch.stack((loss.detach(), gradient_norm(model))))
        optimizer.step()
    for step, (value, norm) in enumerate(torch.stack(history).tolist()):  # one wait, at the end
        print(f"step {step} loss {value:.4f} gradient {norm:.3f}")


if __name__ == "__main__":
    main()
