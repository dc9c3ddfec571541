"""Graphs whose temporaries are freed while they are captured: does a replay give what the eager function gives?"""

import functools
import threading
from collections.abc import Callable

import torch
from torch import Tensor, nn
from virtual.torch_cuda.programs.telling import fact

x = torch.randn(16, 16, device="cuda")
layers = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 16)).cuda()
recurrent = nn.LSTM(64, 64, batch_first=True).cuda()


def views() -> list[Tensor]:
    results = []
    for step in range(6):
        temporary = x * (step + 1)
        turned = temporary[2:5].t()
        del temporary  # its view lives
        every_other = (x + step).view(-1)[::2]
        other = x * 3
        results += [turned + other[:3].t(), every_other.add_(1)]
    return results


def written() -> list[Tensor]:
    results = []
    for step in range(6):
        doubled = torch.empty(0, device="cuda")
        torch.mul(x, step + 2, out=doubled)  # resizes it
        more = doubled + 1
        del doubled
        product = torch.empty(16, 16, device="cuda")
        torch.mm(x, more, out=product)
        results.append((product * 2).sigmoid_())
    return results


def streams() -> list[Tensor]:
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        one = x * 2
        for _ in range(5):
            one = (one + 1).sin()
    other = x * 3
    for _ in range(5):
        other = (other + 1).cos()
    main.wait_stream(side)
    return [one + other]


def freed_by_a_thread() -> list[Tensor]:
    held = [x * 2]
    sum_of_it = held[0] + 1
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    return [sum_of_it, x * 9]


def resized() -> list[Tensor]:
    temporary = x * 2
    sum_of_it = temporary + 1
    temporary.untyped_storage().resize_(0)
    again = x * 4
    del again
    other = torch.empty(16, 16, device="cuda")
    other.untyped_storage().resize_(0)
    return [sum_of_it, x * 3]


def trained() -> list[Tensor]:
    for parameter in layers.parameters():
        parameter.grad = None
    loss = layers(x).square().mean()
    loss.backward()
    return [loss.detach(), *(each.grad for each in layers.parameters() if each.grad is not None)]


def without_gradients() -> list[Tensor]:
    with torch.no_grad():
        return [recurrent(x.view(1, 4, 64).repeat(32, 16, 1))[0]]


def same(function: Callable[[], list[Tensor]]) -> object:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        function()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        results = function()
    equal = []
    for _ in range(2):
        x.normal_()
        graph.replay()
        found = [result.clone() for result in results]
        equal += [torch.equal(*each) for each in zip(found, function(), strict=True)]
    return all(equal)


for each in (views, written, streams, freed_by_a_thread, resized, trained, without_gradients):
    fact(each.__name__, functools.partial(same, each))
