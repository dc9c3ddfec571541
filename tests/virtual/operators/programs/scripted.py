"""Indexing and convolutions in TorchScript: scripted and traced, on the CPU and on the virtual GPU."""

import json

import torch


@torch.jit.script
def reads(x, rows, mask):
    return x[rows] + x[:, rows].t(), x[mask], x[1:3, rows]


@torch.jit.script
def writes(x, rows, mask):
    y = x.clone()
    y[rows] = x[rows] + 1
    y[mask] = 2.0
    y.index_put_([None, rows], torch.ones([], device=x.device))
    return y


def traced(x, rows, mask):
    y = x.clone()
    y[mask] = 0.0
    return x[mask].sum() + y[rows, rows]


def convolutions(device):
    """Returns what a traced net computes of a new input, and a gradient."""
    torch.manual_seed(1)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.ConvTranspose2d(4, 2, 2, 2)
    )
    images, others = torch.randn(2, 3, 6, 6), torch.randn(2, 3, 6, 6)
    net.to(device)
    ran = torch.jit.trace(net, images.to(device))(others.to(device))
    ran.square().sum().backward()
    return [ran.detach().cpu(), net[0].weight.grad.cpu()]


def main() -> None:
    torch.manual_seed(0)
    x, rows = torch.randn(4, 4), torch.tensor([0, 2])
    arguments = x, rows, x > 0
    on_device = [argument.cuda() for argument in arguments]
    told = {
        "reads": all(torch.equal(a.cpu(), b) for a, b in zip(reads(*on_device), reads(*arguments), strict=True)),
        "writes": torch.equal(writes(*on_device).cpu(), writes(*arguments)),
        "traced": torch.equal(torch.jit.trace(traced, tuple(on_device))(*on_device).cpu(), traced(*arguments)),
        "convolutions": all(
            torch.allclose(a, b, rtol=1e-3, atol=1e-5)
            for a, b in zip(convolutions("cuda"), convolutions("cpu"), strict=True)
        ),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
