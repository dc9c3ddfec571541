"""What `compare_numbers` says of functions on a virtual GPU that rounds as a GPU does."""

import json

import torch
from torch.nn import functional

import unstall


def products(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.relu(x @ weight).sum(1)


def convolution(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.conv2d(x, weight).mean((2, 3))


def adds(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return x.new_zeros(7).index_add(0, index, x)


def kinds(fn, *inputs: torch.Tensor, across: tuple[str, ...] = ("cpu", "cuda")) -> dict[str, str]:
    on_gpu = [each.cuda() for each in inputs]
    return {row.way: row.kind for row in unstall.compare_numbers(fn, *on_gpu, across=list(across))}


torch.manual_seed(0)
x, weight = torch.randn(64, 512), torch.randn(512, 64)
told = {"products": kinds(products, x, weight)}
torch.backends.cuda.matmul.allow_tf32 = True
told["products in TF32"] = kinds(products, x, weight)
told["convolution in TF32"] = kinds(convolution, torch.randn(2, 16, 12, 12), torch.randn(8, 16, 3, 3))
told["atomics"] = kinds(adds, torch.randn(5000), torch.arange(5000) % 7, across=("repeat",))
print(json.dumps(told))
