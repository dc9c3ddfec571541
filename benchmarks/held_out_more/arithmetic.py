"""Programs of numerics: graphs, clusters, processes, equations, derivatives."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from benchmarks.held_out import Step


def convolves() -> Step:
    """A graph convolutional network, whose matrix of the graph is sparse."""
    nodes, edges = 3000, 12_000
    ends = torch.randint(0, nodes, (2, edges)).unique(dim=1)
    graph = torch.sparse_coo_tensor(ends, torch.full((ends.shape[1],), 0.25), (nodes, nodes)).coalesce().cuda()
    features, labels = torch.randn(nodes, 500).cuda(), torch.randint(0, 7, (nodes,)).cuda()
    shown = (torch.rand(nodes) < 0.3).cuda()
    one, other = nn.Linear(500, 64).cuda(), nn.Linear(64, 7).cuda()
    optimizer = torch.optim.Adam([*one.parameters(), *other.parameters()], lr=0.01, weight_decay=5e-4)

    def step() -> None:
        hidden = functional.dropout(functional.relu(torch.sparse.mm(graph, one(features))), 0.5)
        scores = torch.sparse.mm(graph, other(hidden))
        optimizer.zero_grad()
        functional.cross_entropy(scores[shown], labels[shown]).backward()
        optimizer.step()

    return step


def ratings() -> Step:
    """Factors of a matrix of ratings, whose gradients are sparse."""
    users, films = nn.Embedding(20_000, 32, sparse=True).cuda(), nn.Embedding(5_000, 32, sparse=True).cuda()
    rows, columns = torch.randint(0, 20_000, (4096,)), torch.randint(0, 5_000, (4096,))
    stars = torch.rand(4096) * 4 + 1
    optimizer = torch.optim.SparseAdam([*users.parameters(), *films.parameters()], lr=1e-3)

    def step() -> float:
        row, column = rows.cuda(non_blocking=True), columns.cuda(non_blocking=True)
        loss = functional.mse_loss((users(row) * films(column)).sum(1), stars.cuda(non_blocking=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def clusters() -> Step:
    """Principal components by a singular value decomposition, and ten rounds of k-means on them."""
    x = torch.randn(4096, 64).cuda()

    def step() -> Tensor:
        centred = x - x.mean(0)
        _, sizes, turned = torch.linalg.svd(centred, full_matrices=False)
        low: Tensor = centred @ turned[:8].T / sizes[:8]
        centres: Tensor = low[torch.randperm(len(low), device="cuda")[:16]]
        for _ in range(10):
            nearest = torch.cdist(low, centres).argmin(1)
            sums = torch.zeros_like(centres).index_add_(0, nearest, low)
            counts = torch.bincount(nearest, minlength=16).clamp(min=1).unsqueeze(1)
            moved = sums / counts
            if (moved - centres).abs().max().item() < 1e-12:
                break
            centres = moved
        return centres

    return step


def processes() -> Step:
    """A Gaussian process: the likelihood by a Cholesky decomposition, its gradient, and a prediction."""
    x, y, new = torch.rand(512, 3).cuda(), torch.randn(512).cuda(), torch.rand(64, 3).cuda()
    scale, noise = nn.Parameter(torch.zeros(3, device="cuda")), nn.Parameter(torch.tensor(-2.0, device="cuda"))
    optimizer = torch.optim.Adam([scale, noise], lr=0.1)

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        near = (a / scale.exp()).unsqueeze(1) - (b / scale.exp()).unsqueeze(0)
        return torch.exp(-0.5 * near.pow(2).sum(-1))

    def step() -> Tensor:
        lower = torch.linalg.cholesky(kernel(x, x) + noise.exp() * torch.eye(512, device="cuda"))
        weights = torch.cholesky_solve(y.unsqueeze(1), lower)
        loss = 0.5 * (y.unsqueeze(0) @ weights).squeeze() + lower.diagonal().log().sum() + 256 * math.log(2 * math.pi)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            across = kernel(x, new)
            left = torch.linalg.solve_triangular(lower, across, upper=False)
            return torch.stack([(across.T @ weights).squeeze(1), 1 - left.square().sum(0)])

    return step


def flows() -> Step:
    """A neural ordinary differential equation: Runge-Kutta of fourth order, with its gradient."""
    field = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)).cuda()
    optimizer = torch.optim.AdamW(field.parameters(), lr=1e-3)
    begin, wanted = torch.randn(256, 2).cuda(), torch.randn(20, 256, 2).cuda()
    times = torch.linspace(0, 1, 21).cuda()

    def slope(x: Tensor, time: Tensor) -> Tensor:
        found: Tensor = field(torch.cat([x, time.expand(len(x), 1)], dim=1))
        return found

    def step() -> None:
        x, path = begin, []
        for time, after in itertools.pairwise(times):
            width = after - time
            one = slope(x, time)
            two = slope(x + width / 2 * one, time + width / 2)
            three = slope(x + width / 2 * two, time + width / 2)
            four = slope(x + width * three, after)
            x = x + width / 6 * (one + 2 * two + 2 * three + four)
            path.append(x)
        loss = (torch.stack(path) - wanted).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def private() -> Step:
    """Gradients of each example by vmap of grad, clipped one by one, with noise, as for private training."""
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 25, 10)
    ).cuda()
    weights = {name: each.detach() for name, each in model.named_parameters()}
    images, labels = torch.randn(64, 1, 28, 28).cuda(), torch.randint(0, 10, (64,)).cuda()

    def loss(weights: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        found: Tensor = functional.cross_entropy(
            functional_call(model, weights, (image.unsqueeze(0),)), label.unsqueeze(0)
        )
        return found

    def step() -> None:
        slopes = vmap(grad(loss), in_dims=(None, 0, 0))(weights, images, labels)
        norms = torch.stack([each.flatten(1).norm(dim=1) for each in slopes.values()], 1).norm(dim=1)
        shares = (1.0 / (norms + 1e-6)).clamp(max=1.0)
        for name, each in slopes.items():
            total = torch.einsum("n,n...->...", shares, each)
            weights[name] -= 0.1 * (total + 0.5 * torch.randn_like(total)) / 64

    return step


def bends() -> Step:
    """A physics-informed network: second derivatives by autograd, fitted with L-BFGS."""
    net = nn.Sequential(nn.Linear(1, 50), nn.Tanh(), nn.Linear(50, 50), nn.Tanh(), nn.Linear(50, 1)).cuda()
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=5, history_size=10)
    x, ends = torch.linspace(0, 1, 200).unsqueeze(1).cuda(), torch.tensor([[0.0], [1.0]]).cuda()
    force = (math.pi**2 * torch.sin(math.pi * x)).detach()

    def closure() -> Tensor:
        optimizer.zero_grad()
        inside = x.clone().requires_grad_(True)
        found = net(inside)
        (once,) = torch.autograd.grad(found.sum(), inside, create_graph=True)
        (twice,) = torch.autograd.grad(once.sum(), inside, create_graph=True)
        loss: Tensor = (twice + force).square().mean() + 100 * net(ends).square().mean()
        loss.backward()
        return loss

    return lambda: optimizer.step(closure)


ARITHMETIC: dict[str, Callable[[], Step]] = {
    "convolves": convolves,
    "ratings": ratings,
    "clusters": clusters,
    "processes": processes,
    "flows": flows,
    "private": private,
    "bends": bends,
}
