"""What graph networks and sparse embeddings compute, on the CPU and on the virtual GPU. Prints a JSON object."""

import json
import sys
import warnings
from collections.abc import Callable

import torch

warnings.simplefilter("ignore")  # of CSR tensors being in beta

ROWS, FEATURES = 6, 3


def adjacency(device: str) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.sparse_coo_tensor(torch.randint(0, ROWS, (2, 12)), torch.rand(12), (ROWS, ROWS)).to(device)


def products(device: str) -> list[torch.Tensor]:
    matrix, dense = adjacency(device), torch.linspace(-1, 1, ROWS * FEATURES).view(ROWS, FEATURES).to(device)
    dense.requires_grad_()
    rows = matrix.coalesce().to_sparse_csr()
    torch.sparse.mm(matrix, dense).pow(2).sum().backward()
    return [matrix @ dense, torch.spmm(matrix, dense), rows @ dense, torch.mv(matrix, dense[:, 0]), dense.grad]


def gradients(device: str) -> list[torch.Tensor]:
    coo = adjacency(device).coalesce().requires_grad_()
    csr = adjacency(device).coalesce().to_sparse_csr().requires_grad_()
    dense = torch.ones(ROWS, FEATURES, device=device)
    for matrix in (coo, csr):
        torch.sparse.mm(matrix, dense).pow(2).sum().backward()
    return [coo.grad.to_dense(), csr.grad.to_dense()]


def parts(device: str) -> list[torch.Tensor]:
    coo = adjacency(device).coalesce()
    csr = torch.sparse_csr_tensor([0, 1, 1, 3], [1, 0, 2], [1.0, 2.0, 3.0], (3, 3), device=device)
    back = torch.eye(3, device=device).to_sparse()
    return [coo.indices(), coo.values(), csr.crow_indices(), csr.col_indices(), csr.values(), back.to_dense()]


def arithmetic(device: str) -> list[torch.Tensor]:
    one = adjacency(device)
    other = one.clone().mul_(2).add_(one).coalesce()
    joined = torch.cat([one, other]).t()
    return [(one + other).to_dense(), joined.to_dense(), torch.sparse.sum(other, 1).to_dense(), other.half().to_dense()]


def trained(optimizer: Callable[..., torch.optim.Optimizer]) -> Callable[[str], list[torch.Tensor]]:
    def train(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        table = torch.nn.Embedding(9, FEATURES, sparse=True).to(device)
        bags = torch.nn.EmbeddingBag(9, FEATURES, mode="sum", sparse=True).to(device)
        steps = optimizer([*table.parameters(), *bags.parameters()], lr=0.1)
        words = torch.tensor([[1, 4, 4], [8, 0, 1]], device=device)
        for _ in range(3):
            steps.zero_grad()
            (table(words).sum(1) * bags(words)).pow(2).sum().backward()
            steps.step()
        return [table.weight, bags.weight]

    return train


told: dict[str, object] = {"differing": [], "devices": []}
for name, use in {
    "products": products,
    "gradients": gradients,
    "parts": parts,
    "arithmetic": arithmetic,
    "SGD": trained(torch.optim.SGD),
    "SparseAdam": trained(torch.optim.SparseAdam),
}.items():
    expected, results = use("cpu"), use("cuda")
    told["devices"].append([name, sorted({result.device.type for result in results})])
    if not all(torch.equal(one, result.cpu()) for one, result in zip(expected, results, strict=True)):
        told["differing"].append(name)

before = torch.cuda.memory_allocated()
held = adjacency("cuda")
told["bytes"] = torch.cuda.memory_allocated() - before
with torch.cuda.graph(torch.cuda.CUDAGraph()):
    try:
        torch.sparse.mm(held, torch.ones(ROWS, FEATURES, device="cuda"))
    except NotImplementedError as error:
        told["captured"] = str(error)
try:
    torch.sparse.mm(held.coalesce().to_sparse_csr(), torch.ones(ROWS, FEATURES, device="cuda"), "amax")
except NotImplementedError as error:
    told["of the CPU alone"] = str(error)
json.dump(told, sys.stdout)
