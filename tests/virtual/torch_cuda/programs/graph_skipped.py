"""Graphs of few values where numerics are skipped: which values are known is found by each replay."""

import torch
from virtual.torch_cuda.programs.telling import fact

big = torch.ones(2048, 2048, device="cuda")


def unknown() -> torch.Tensor:
    return (big @ big)[0, :3].clone()


def made_unknown() -> object:
    x, out, host = torch.ones(3, device="cuda"), torch.zeros(3, device="cuda"), torch.zeros(3).pin_memory()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out.copy_(x * 2)
        host.copy_(out, non_blocking=True)
    graph.replay()
    before = out.tolist()
    x.copy_(unknown())
    graph.replay()
    return [before, out.tolist(), host.tolist()]


def made_known() -> object:
    x, out = unknown(), torch.zeros(3, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out.copy_(x * 2)
    x.copy_(torch.tensor([1.0, 2.0, 3.0]))
    graph.replay()
    first = out.tolist()
    out.copy_(unknown())
    graph.replay()
    return [first, out.tolist()]


def never_replayed() -> object:
    x = unknown()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.zero_()
        result = x + 1
    return [x.tolist(), result.tolist()]


def in_parts() -> object:
    x, whole, count = torch.ones(3, device="cuda"), torch.zeros(6, device="cuda"), torch.zeros((), device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        whole[:3].copy_(x * 2)
        whole[3:] = 7
        count.add_(1)
    x.fill_(4)
    for _ in range(3):
        graph.replay()
    return [whole.tolist(), count.item()]


for each in (made_unknown, made_known, never_replayed, in_parts):
    fact(each.__name__, each)
